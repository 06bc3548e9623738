"""The script that starts runners; in isolated mode, it finds its package without other folders."""

from __future__ import annotations

import os
import sys

# Modules, unlike this script, are loaded from compiled files: the smaller the script, the faster it starts.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
main = __import__("runner.main", fromlist=["main"]).main
del sys.path[0]

if __name__ == "__main__":
    main(sys.argv[1:])
