"""``python -m openpai_tasks.server``: the server, in an environment without its starter's secrets."""

from __future__ import annotations

import sys

from openpai_tasks.server import variables

if __name__ == "__main__":
    variables.drop_others(sys.argv[1:])  # before the imports that take time: it starts Python once more
    from openpai_tasks.server.command import main

    sys.exit(main())
