"""The control group of a task, which limits its memory.

``memory`` in the task's folder has the limit in bytes and the path of the group, a line each; tasks without a
limit have no such file. The runner creates the group, of version 2 or 1, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import time

FILE = "memory"
REMOVE_SECONDS = 2.0  # that the kernel may need until the last process has left


class MemoryGroup:
    def __init__(self, limit: int, path: str) -> None:
        self.limit, self.path = limit, path

    def create(self) -> int:
        """Create the group; return a handle through which a process joins it by writing 0."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        is_first = self.has("memory.limit_in_bytes")
        self.write("memory.limit_in_bytes" if is_first else "memory.max", str(self.limit))
        with contextlib.suppress(OSError):  # this kernel does not count swap
            if is_first:
                self.write("memory.memsw.limit_in_bytes", str(self.limit))
            else:
                self.write("memory.swap.max", "0")
        return os.open(f"{self.path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def kills(self) -> int:
        """Return how many processes were killed because the group had no memory left."""
        text = self.read("memory.oom_control" if self.has("memory.oom_control") else "memory.events")
        counts = dict(line.split() for line in text.splitlines())
        return int(counts.get("oom_kill", 0))

    def peak(self) -> int:
        """Return the most bytes in use at a time; before Linux 5.19, return the limit."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if self.has(name):
                return int(self.read(name))
        return self.limit

    def remove(self) -> None:
        """Remove the group, from which all processes are gone or about to go."""
        end = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                os.rmdir(self.path)
                return
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > end:
                    return
                time.sleep(0.01)

    def has(self, name: str) -> bool:
        return os.path.exists(f"{self.path}/{name}")

    def read(self, name: str) -> str:
        with open(f"{self.path}/{name}") as file:
            return file.read()

    def write(self, name: str, text: str) -> None:
        with open(f"{self.path}/{name}", "w") as file:
            file.write(text)


def group_of(folder: str) -> MemoryGroup | None:
    """Return the group of the task in this folder; None if it has no limit."""
    try:
        with open(f"{folder}/{FILE}", encoding="utf-8", errors="surrogateescape", opener=_open) as file:
            limit, path = file.read().splitlines()
    except FileNotFoundError:
        return None
    return MemoryGroup(int(limit), path)


def _open(path: str, flags: int) -> int:
    """Open a file without waiting, as the job may have put a pipe there."""
    return os.open(path, flags | os.O_NONBLOCK)
