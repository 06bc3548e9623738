"""The futures of calls, and those of them that have no result yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
OnCancel = Callable[[int], None]
"""Is called with the number of a call whose future was cancelled."""


class PaiFuture(Future[T]):
    """The future of a call; it is running once its job is, and can be cancelled until then."""

    def __init__(self, number: int, on_cancel: OnCancel) -> None:
        super().__init__()
        self.number = number
        self.job = ""
        """The name of the job that runs the call, once it has one."""
        self._on_cancel = on_cancel
        self._begun: bool | None = None

    def __repr__(self) -> str:
        job = f" job={self.job!r}" if self.job else ""
        return f"{super().__repr__()[:-1]} call={self.number}{job}>"

    def cancel(self) -> bool:
        """Cancel the call unless it runs; its job is stopped if it has no other call."""
        is_cancelled = super().cancel()
        if is_cancelled:
            self._on_cancel(self.number)
        return is_cancelled

    def begin(self) -> bool:
        """Mark the call as running, or return False if it was cancelled; for the executor's thread."""
        if self._begun is None:
            self._begun = self.set_running_or_notify_cancel()
        return self._begun


class OpenFutures:
    """The futures without a result, by number; threads share them."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._open: dict[int, PaiFuture[Any]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def add(self, future: PaiFuture[Any]) -> None:
        with self._changed:
            self._open[future.number] = future

    def all(self) -> list[PaiFuture[Any]]:
        with self._changed:
            return list(self._open.values())

    def take(self, number: int) -> PaiFuture[Any] | None:
        """Remove and return a future; None if it has its result, or was cancelled, already."""
        with self._changed:
            return self._open.pop(number, None)
