"""``python -m openpai_tasks.server``: run the server, without secrets in its environment variables."""

from __future__ import annotations

import sys

from openpai_tasks.server import variables

if __name__ == "__main__":
    variables.drop_others(sys.argv[1:])  # before slow imports, as it restarts Python
    from openpai_tasks.server.command import main

    sys.exit(main())
