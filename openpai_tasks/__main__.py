"""The console script `pai`, and ``python -m openpai_tasks``."""

from __future__ import annotations

import _thread
import signal
import sys
import time
from typing import TYPE_CHECKING

from openpai_tasks import compat, exits
from openpai_tasks.files import shortages

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> None:
    """Run the program; Ctrl-C or a lack of memory while it is still loading shows no traceback, too."""
    sys.unraisablehook = _repeat_interrupt
    if reason := shortages.missing_folder():
        sys.stderr.write(f"error: {reason}\n")
        sys.exit(exits.BAD_PATH)
    try:
        compat.load_invoke()
        from openpai_tasks.tasks.program import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except Exception as err:
        if not (shortage := shortages.find_shortage(err)):
            raise
        sys.stderr.write(f"error: {shortages.describe(shortage)}\n")
        sys.exit(exits.FAILED)


def _repeat_interrupt(lost: UnraisableHookArgs) -> None:
    """Deliver an interrupt again that got lost in a callback, such as those of the import system.

    A thread does it a moment later: in this function, it would get lost, too.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        number = signal.SIGINT if lost.exc_type is KeyboardInterrupt else signal.SIGTERM
        _thread.start_new_thread(_interrupt, (number,))
    else:
        sys.__unraisablehook__(lost)


def _interrupt(number: signal.Signals) -> None:
    time.sleep(0.01)
    _thread.interrupt_main(number)


if __name__ == "__main__":
    main()
