"""The script that Slurm starts for each task, in isolated mode."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
main = __import__("runner.slurm_task", fromlist=["main"]).main
del sys.path[0]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
