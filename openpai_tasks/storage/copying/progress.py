"""The progress and the result of a copy, and how to interrupt it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from openpai_tasks import exits
from openpai_tasks.compat import wait_for_event
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CopyFailure:
    """A file that was not copied, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class Copied:
    """The result of a copy."""

    files: int = 0
    bytes: int = 0
    skipped: int = 0
    removed: int = 0
    failed: tuple[CopyFailure, ...] = ()
    seconds: float = 0.0
    preview: bool = False
    interrupted: bool = False
    target: str = ""  # the URL of the copy, or of the folder that it went into


class Interrupted(PaiError):
    """Raised when the user interrupts the copy."""

    exit_code = exits.INTERRUPTED


class Watch:
    """Follows a copy without showing anything; subclasses show progress. Called from several threads."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def found(self, size: int) -> None:
        """Called for each file that the walk finds."""

    def moved(self, count: int) -> None:
        """Called with the number of bytes that arrived; negative when a file starts again."""

    def ended(self, name: str, outcome: str, size: int) -> None:
        """Called when a file has been copied, skipped or removed, or has failed."""

    def skipped(self, sizes: Mapping[str, int]) -> None:
        """Called with the paths and sizes of files that the walk finds unchanged."""
        for path, size in sizes.items():
            self.found(size)
            self.ended(path, "skipped", size)

    def interrupted(self, copied: Copied) -> None:
        """Called with the result so far when the copy is interrupted."""

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """Raise Interrupted if the copy has to end; called between two pieces."""
        if self._stop.is_set():
            raise Interrupted("interrupted")

    def wait(self, seconds: float) -> bool:
        """Pause; return whether the copy has to end."""
        return wait_for_event(self._stop, seconds)
