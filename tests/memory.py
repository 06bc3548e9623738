"""The most memory a process held: what rusage tells of a child counts the parent it was forked from."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

measurable = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")


def peak(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    """Bytes, looked at until the process ends."""
    highest = 0
    while process.poll() is None:
        highest = max(highest, peak_of(process.pid))
        time.sleep(0.005)
    return highest


def peak_of(pid: int | str) -> int:
    """Bytes, since its program began; 0 when it has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
