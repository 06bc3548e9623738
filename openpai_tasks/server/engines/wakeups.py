"""What wakes the scheduler: a named pipe that the server and all runners can write to."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path


def pipe_path(folder: Path) -> Path:
    """Return the path of the pipe of the cluster whose jobs are in ``folder``."""
    return folder / ".bell"


class WakePipe:
    def __init__(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Also opened for writing, so that reading never returns end-of-file.
        self._handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def notify(self, folder: str = "") -> None:
        """Wake the scheduler, which looks at the task in a folder first."""
        with contextlib.suppress(BlockingIOError):  # full: enough to wake it
            os.write(self._handle, os.fsencode(folder) + b"\0")

    def wait(self, seconds: float | None) -> set[str]:
        """Wait for a notification, or for this long; return the folders of tasks that have begun or ended."""
        select.select([self._handle], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            *folders, self._rest = (self._rest + os.read(self._handle, 65536)).split(b"\0")
            return {os.fsdecode(name) for name in folders if name}
        return set()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
