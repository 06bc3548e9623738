"""Fill the disk, make it read-only, and let it fail."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

from tests.endurance.faults.preloading import can_build, control, preload
from tests.endurance.plan import Fault, Options
from tests.endurance.world import World

SIZE = 400 << 20  # bytes, more than the files of a history need
READ, WRITE, FLUSH, NAME = 1, 2, 4, 8  # as in disk.c
FOLDERS = ("trees", "downloads", "fetched", "outputs")  # of clients: sources and targets of copies


class _OfDisk(Fault):
    """A fault of the disk with the cluster and its storage for some seconds; output of jobs may be lost."""

    order = 0

    def plan(self, chance: random.Random) -> Options:
        return {"seconds": round(chance.uniform(0.3, 5), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        if world.has_old_server:
            return None  # 0.2.0 fails jobs that are to start while the disk is full
        server = _server(world)
        ended = set(world.tasks()) - set(world.unfinished_tasks())
        self.begin(world, options)
        time.sleep(options["seconds"])
        self.repair(world)
        self.note(world, set(world.tasks()) - ended)
        if server and server not in world.pids("openpai_tasks.server "):
            world.broken.append(f"{self.kind}: the server {server} has ended")
        return f"{options['seconds']} s"

    def note(self, world: World, tasks: set[str]) -> None:
        """Note what can be missing of the tasks that ran meanwhile."""
        world.lossy_tasks |= tasks

    def begin(self, world: World, options: Options) -> None:
        raise NotImplementedError


def _server(world: World) -> int:
    """Return the server that has started; 0 if there is none."""
    try:
        found = int(json.loads((world.site.server_folder(world) / "server.json").read_text())["pid"])
    except (OSError, ValueError):
        return 0
    return found if found in world.pids("openpai_tasks.server ") else 0


class Full(_OfDisk):
    """The disk is full: a small file system (root mounts it) on which a large file appears."""

    kind, weight = "disk full", 3

    def fits(self, world: World) -> bool:
        return os.geteuid() == 0 and shutil.which("mount") is not None

    def prepare(self, world: World) -> None:
        place = _disk(world)
        place.mkdir(mode=0o700, parents=True)
        options = f"size={SIZE},mode=0700"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "endure", place]).returncode == 0:
            world.cleanups.callback(_unmount, world)

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "left": chance.choice((0, 0, 4096, 20_000, 200_000))}

    def begin(self, world: World, options: Options) -> None:
        with open(_disk(world) / "filler", "wb") as file:
            free = os.statvfs(file.fileno())
            wanted = free.f_bavail * free.f_frsize - options["left"]
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, wanted))
            if not options["left"]:
                with contextlib.suppress(OSError):
                    while os.write(file.fileno(), bytes(1 << 12)):
                        pass

    def note(self, world: World, tasks: set[str]) -> None:
        super().note(world, tasks)
        if world.site.has_journals_on_disk:
            world.killed_tasks |= tasks  # commands fail that cannot write to their journal

    def repair(self, world: World) -> None:
        (_disk(world) / "filler").unlink(missing_ok=True)


def _disk(world: World) -> Path:
    """Return the home folder of the server, which can be on another machine than the clients."""
    return world.site.server_folder(world).parent


def _unmount(world: World) -> None:
    for path in _disk(world).glob("local/*.[dl][bo]*"):  # the database and the log, to find out why it failed
        with contextlib.suppress(OSError):
            shutil.copy(path, world.folder)
    with contextlib.suppress(OSError):  # also the logs of tasks; pipes and sockets cannot be copied
        shutil.copytree(_disk(world) / "local" / "jobs", world.folder / "jobs", symlinks=True)
    subprocess.run(["umount", "-l", _disk(world)])


class _Broken(_OfDisk):
    """Calls of servers and clients on files fail; disk.c is loaded into them, which needs gcc."""

    errors: tuple[tuple[int, int], ...] = ()
    """Errors, each with the calls that it affects."""

    def fits(self, world: World) -> bool:
        return can_build()

    def prepare(self, world: World) -> None:
        path = control(world, "disk", 0, 1, 0)
        folders = (*world.homes(), *(world.folder / name for name in FOLDERS))
        preload(world, "disk", BROKEN_DISK_FOLDERS=":".join(map(str, folders)), BROKEN_DISK_CONTROL=str(path))

    def plan(self, chance: random.Random) -> Options:
        error, kinds = chance.choice(self.errors)
        one_in = chance.choice((1, 2, 10, 100))
        return {**super().plan(chance), "error": error, "kinds": kinds, "one_in": one_in}

    def begin(self, world: World, options: Options) -> None:
        control(world, "disk", options["error"], options["one_in"], options["kinds"])

    def repair(self, world: World) -> None:
        control(world, "disk", 0, 1, 0)


class ReadOnly(_Broken):
    kind = "read-only disk"
    errors = ((errno.EROFS, WRITE | NAME),)

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "one_in": 1}


class FailingDisk(_Broken):
    kind = "failing disk"
    errors = tuple(
        (errno.EIO, kinds) for kinds in (READ, WRITE | FLUSH, FLUSH, NAME, READ | WRITE | FLUSH | NAME)
    )


class FullAtTimes(_Broken):
    """Some writes find no space, or write a part."""

    kind = "disk full at times"
    errors = ((errno.ENOSPC, WRITE), (errno.EDQUOT, WRITE), (errno.EDQUOT, NAME))
