"""What the system shows of a running process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def open_files(process: Path) -> Iterator[tuple[str, str]]:
    """Yield the number and the target of each open file of a process, given as its folder in /proc.

    The process opens and closes files meanwhile: those that are closed before they are read are left out.
    """
    with suppress(OSError):  # the process has ended, or is another user's
        for handle in process.joinpath("fd").iterdir():
            with suppress(OSError):
                yield handle.name, os.readlink(handle)


def is_running(pid: int) -> bool:
    """Return whether the process exists, and is not a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
