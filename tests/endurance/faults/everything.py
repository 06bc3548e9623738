"""Kill everything at once, as a reboot does."""

from __future__ import annotations

import signal
import time

from tests.endurance.plan import Fault, Options
from tests.endurance.world import World, send_signal
from tests.processes import is_running


class RestartEverything(Fault):
    """All clients, the server, runners and jobs end at the same moment."""

    kind = "restart of everything"

    def fits(self, world: World) -> bool:
        return world.site.kind == "process"

    def inject(self, world: World, options: Options) -> str:
        found: list[int] = []
        while more := [pid for pid in world.members() if pid not in found]:
            for pid in more:
                send_signal(pid, signal.SIGSTOP)
            found += more
        world.killed_tasks |= set(world.unfinished_tasks())
        for pid in world.clients():
            world.hurt_client(pid, signal.SIGKILL)
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        while any(map(is_running, found)):
            time.sleep(0.01)
        return f"{len(found)} processes"
