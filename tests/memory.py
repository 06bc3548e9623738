"""Peak memory of a process; the rusage of a child would count the parent it was forked from."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

measurable = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")


def peak(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    """Poll a process until it ends, and return its peak memory in bytes."""
    highest = 0
    while process.poll() is None:
        highest = max(highest, peak_of(process.pid))
        time.sleep(0.005)
    return highest


def peak_of(pid: int | str) -> int:
    """Return the peak memory in bytes since the program began; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
