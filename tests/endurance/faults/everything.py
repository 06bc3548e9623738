"""Kill everything at once, as a reboot does."""

from __future__ import annotations

import signal
import time

from tests.endurance.plan import Fault, Options
from tests.endurance.world import World, send_signal
from tests.processes import is_running


class RestartEverything(Fault):
    """All clients, the server, runners, jobs and the engine's daemons end at the same moment.

    What runs on other machines goes on: pods, and servers of storages.
    """

    kind = "restart of everything"

    def inject(self, world: World, options: Options) -> str:
        found: list[int] = []
        while more := [pid for pid in _processes(world) if pid not in found]:
            for pid in more:
                send_signal(pid, signal.SIGSTOP)
            found += more
        if world.site.has_runners:
            world.killed_tasks |= set(world.unfinished_tasks())
        for pid in world.clients():
            world.hurt_client(pid, signal.SIGKILL)
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        while any(map(is_running, found)):
            time.sleep(0.01)
        world.site.restart_daemons(world)
        return f"{len(found)} processes"


def _processes(world: World) -> set[int]:
    return {*world.members(), *world.site.daemons_and_tasks(world)}
