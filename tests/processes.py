"""What the system shows of a running process."""

from __future__ import annotations

import os
import select
import signal
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


def kill(pid: int) -> None:
    """Kill the process, and wait until it has ended: on a busy machine, it still answers for a while."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert select.select([process], [], [], 60)[0], f"process {pid} does not end"
    finally:
        os.close(process)
