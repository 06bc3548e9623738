"""``python -m tests.server.core_process FOLDER CPUS``: a cluster core that runs until it is killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.server.workshop import Workshop, machine

if __name__ == "__main__":
    here = machine(int(sys.argv[2]))
    Workshop(Path(sys.argv[1]), here, {"default": here.resources}, enforce=False)
    print("up", flush=True)
    signal.pause()
