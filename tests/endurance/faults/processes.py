"""Kill, pause and interrupt our own processes."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

from tests.endurance.plan import Fault, Options
from tests.endurance.world import World, send_signal

PROGRAMS = {"server": "openpai_tasks.server ", "runner": "start_runner.py", "portal": "openpai_tasks.portal "}
"""Words in the command lines of our processes."""


class OfProcess(Fault):
    """A fault of one process of the history, chosen among those that run."""

    target = ""

    def plan(self, chance: random.Random) -> Options:
        return {"chosen": chance.random()}

    def inject(self, world: World, options: Options) -> str | None:
        found = self.targets(world)
        if not found:
            return None
        pid = found[int(options["chosen"] * len(found))]
        self.hurt(world, pid, options)
        return str(pid)

    def targets(self, world: World) -> list[int]:
        return world.clients() if self.target == "client" else world.pids(PROGRAMS[self.target])

    def hurt(self, world: World, pid: int, options: Options) -> None:
        send_signal(pid, signal.SIGKILL)


class PauseProcess(OfProcess):
    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "seconds": round(chance.uniform(0.2, 4), 2)}

    def hurt(self, world: World, pid: int, options: Options) -> None:
        send_signal(pid, signal.SIGSTOP)
        time.sleep(options["seconds"])
        send_signal(pid, signal.SIGCONT)


class KillServer(OfProcess):
    kind, weight, target = "kill server", 4, "server"


class StopServer(OfProcess):
    kind, weight, target = "stop server", 1, "server"

    def hurt(self, world: World, pid: int, options: Options) -> None:
        send_signal(pid, signal.SIGTERM)


class PauseServer(PauseProcess):
    kind, weight, target = "pause server", 2, "server"


class KillRunner(OfProcess):
    kind, weight, target = "kill runner", 2, "runner"

    def fits(self, world: World) -> bool:
        return world.site.has_runners

    def hurt(self, world: World, pid: int, options: Options) -> None:
        with suppress(OSError):
            world.killed_tasks.add(os.readlink(f"/proc/{pid}/cwd"))
        super().hurt(world, pid, options)


class KillClient(OfProcess):
    kind, weight, target = "kill client", 4, "client"

    def hurt(self, world: World, pid: int, options: Options) -> None:
        world.hurt_client(pid, signal.SIGKILL)


class InterruptClient(OfProcess):
    kind, weight, target = "interrupt client", 2, "client"

    def hurt(self, world: World, pid: int, options: Options) -> None:
        world.hurt_client(pid, signal.SIGINT)


class PauseClient(PauseProcess):
    kind, weight, target = "pause client", 1, "client"
