"""``python -m openpai_tasks.server``: run the server, without secrets in its environment variables."""

from __future__ import annotations

import sys

from openpai_tasks.files import shortages
from openpai_tasks.server import variables

if __name__ == "__main__":
    variables.drop_others(sys.argv[1:])  # before slow imports, as it restarts Python
    try:
        from openpai_tasks.server.command import main
    except (OSError, MemoryError) as err:  # too many open files, or a failing disk
        sys.exit(f"error: the server cannot be loaded: {shortages.describe(err)}")
    sys.exit(main())
