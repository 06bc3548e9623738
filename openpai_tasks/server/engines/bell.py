"""What the scheduler sleeps on: a named pipe that the server, and any runner of any time, can ring."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path


def bell_path(folder: Path) -> Path:
    """Where runners find the bell of the cluster whose jobs are in ``folder``."""
    return folder / ".bell"


class Bell:
    def __init__(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Opened for writing too, so that it never reads as ended while nobody else holds it.
        self._handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

        self._rest = b""

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it has been rung often enough
            os.write(self._handle, b"\0")

    def wait(self, seconds: float | None) -> set[str]:
        """Sleep until it rings, or for that long; what was called out: the folders of tasks that are over."""
        select.select([self._handle], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            *called, self._rest = (self._rest + os.read(self._handle, 65536)).split(b"\0")
            return {os.fsdecode(name) for name in called if name}
        return set()

    def close(self) -> None:
        os.close(self._handle)
