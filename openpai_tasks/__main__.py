"""The console script `pai`, and ``python -m openpai_tasks``."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the program; Ctrl-C ends it without a traceback while it is still being loaded, too."""
    try:
        from openpai_tasks.program import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
