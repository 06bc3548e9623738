"""Take descriptors and memory from running processes."""

from __future__ import annotations

import random
import resource
import time
from contextlib import suppress
from pathlib import Path

from tests.endurance.faults.processes import OfProcess
from tests.endurance.plan import Options
from tests.endurance.world import World

STAYING = ("openpai_tasks.server ", "openpai_tasks.portal ")
"""What a client may start with its own limits, and leave."""


class _Limit(OfProcess):
    """A lower limit of a process for some seconds."""

    resource = resource.RLIMIT_NOFILE

    def inject(self, world: World, options: Options) -> str | None:
        if self.target == "server" and world.has_old_server:
            return None  # 0.2.0 fails jobs that cannot start for lack of them
        return super().inject(world, options)

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "seconds": round(chance.uniform(0.5, 6), 2)}

    def hurt(self, world: World, pid: int, options: Options) -> None:
        with suppress(ProcessLookupError, FileNotFoundError):
            before, most = resource.prlimit(pid, self.resource)
            lowered = self.value(pid, options), most
            resource.prlimit(pid, self.resource, lowered)
            time.sleep(options["seconds"])
            for one in (pid, *(other for words in STAYING for other in world.pids(words))):
                with suppress(ProcessLookupError):
                    if resource.prlimit(one, self.resource) == lowered:
                        resource.prlimit(one, self.resource, (before, most))

    def value(self, pid: int, options: Options) -> int:
        raise NotImplementedError


class _Descriptors(_Limit):
    """64 descriptors, or none besides the open ones and a few."""

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "spare": chance.choice((None, None, 0, 1, 3, 10))}

    def value(self, pid: int, options: Options) -> int:
        if options["spare"] is None:
            return 64
        return len(list(Path(f"/proc/{pid}/fd").iterdir())) + int(options["spare"])


class ServerDescriptors(_Descriptors):
    kind, weight, target = "few descriptors of server", 2, "server"


class ClientDescriptors(_Descriptors):
    kind, target = "few descriptors of client", "client"


class _Memory(_Limit):
    """No more memory than now and a few megabytes."""

    resource = resource.RLIMIT_AS
    megabytes = (0, 1, 10, 50)

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "spare": chance.choice(self.megabytes) << 20}

    def value(self, pid: int, options: Options) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize() + int(options["spare"])


class ServerMemory(_Memory):
    kind, target = "little memory of server", "server"
    megabytes = (0, 1, 9, 10, 40, 80)


class ClientMemory(_Memory):
    kind, target = "little memory of client", "client"
