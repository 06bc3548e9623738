"""The console script `paddlecloud`, and ``python -m openpai_tasks.paddlecloud``."""

import sys

from openpai_tasks import compat, exits
from openpai_tasks.files import shortages


def main() -> None:
    """Run the program; Ctrl-C while it is still loading ends it without a traceback, too."""
    if reason := shortages.missing_folder():
        sys.stderr.write(f"error: {reason}\n")
        sys.exit(1)
    try:
        compat.load_invoke()
        from openpai_tasks.paddlecloud.program import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)


if __name__ == "__main__":
    main()
