"""Submissions that follow each other quickly, which an engine with its own queue can combine."""

from __future__ import annotations

import threading
import time

QUIET = 0.2  # seconds without a submission, after which a burst is over
LATEST = 15.0  # seconds after which its jobs are started even if it continues


class SubmissionBurst:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: float | None = None
        self._last = 0.0

    def note(self) -> bool:
        """Note a submission; return whether it begins a burst."""
        with self._lock:
            self._last = time.monotonic()
            begins = self._first is None
            if self._first is None:
                self._first = self._last
            return begins

    def remaining(self) -> float:
        """Return the seconds until the jobs of the burst are to start; 0 ends the burst."""
        with self._lock:
            if self._first is None:
                return 0.0
            left = min(self._last + QUIET, self._first + LATEST) - time.monotonic()
            if left <= 0:
                self._first = None
            return max(0.0, left)
