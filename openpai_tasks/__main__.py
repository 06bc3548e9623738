"""The console script `pai`, and ``python -m openpai_tasks``."""

import sys

from openpai_tasks import compat, exits


def main() -> None:
    """Run the program; Ctrl-C while it is still loading ends it without a traceback, too."""
    try:
        compat.load_invoke()
        from openpai_tasks.tasks.program import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)


if __name__ == "__main__":
    main()
