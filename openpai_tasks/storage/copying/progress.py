"""Who watches a copy: told of every file and every piece, and able to end it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from openpai_tasks import exits
from openpai_tasks.errors import PaiError
from openpai_tasks.interruptible import wait_for_event

if TYPE_CHECKING:
    from openpai_tasks.storage.copying.copy import Copied


class Stopped(PaiError):
    """The person wants no more of it."""

    exit_code = exits.INTERRUPTED


class Watch:
    """Watches in silence; a subclass draws. Its methods are called from several threads."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def found(self, size: int) -> None:
        """One more file is to be looked at."""

    def moved(self, count: int) -> None:
        """So many bytes more are there; fewer when a file has to begin again."""

    def ended(self, name: str, outcome: str, size: int) -> None:
        """A file is done with: copied, skipped, failed or removed."""

    def interrupted(self, copied: Copied) -> None:
        """The copy ends before its end; so much of it is done."""

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """Called between two pieces."""
        if self._stop.is_set():
            raise Stopped("interrupted")

    def wait(self, seconds: float) -> bool:
        """Pause; True when the copy is to end."""
        return wait_for_event(self._stop, seconds)
