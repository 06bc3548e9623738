"""Retry after a pause if that can help."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from openpai_tasks.errors import ApiError, PaiError, PathError, TooManyRequests, Unreachable
from openpai_tasks.net.retry import RetryPolicy

TRIES = 5
FIRST_PAUSE = 0.2  # seconds; each further pause is twice as long

Result = TypeVar("Result")


class CorruptData(PathError):
    """Raised when the bytes that arrived are not those of the source; nothing is kept."""


def is_temporary(err: PaiError) -> bool:
    """Whether the same call may succeed the next time: not after a refusal or on a full disk."""
    if isinstance(err, (Unreachable, TooManyRequests, CorruptData)):
        return True
    return isinstance(err, ApiError) and err.status >= 500


_around = threading.local()


def wait_before_retry(seconds: float) -> bool:
    """Pause; return True to stop retrying, as decided by the retries around this one."""
    if wait := getattr(_around, "wait", None):
        return bool(wait(seconds))
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _waiting_with(wait: Callable[[float], bool]) -> Iterator[None]:
    """Make pauses in the block use ``wait``."""
    before = getattr(_around, "wait", None)
    if wait is not wait_before_retry:
        _around.wait = wait
    try:
        yield
    finally:
        _around.wait = before


def retrying(operation: Callable[[], Result], wait: Callable[[float], bool] = wait_before_retry) -> Result:
    """Return the result of ``operation``, retried; ``wait(seconds)`` pauses and returns True to stop."""
    return retrying_numbered(lambda _: operation(), wait)


def retrying_numbered(
    operation: Callable[[int], Result], wait: Callable[[float], bool] = wait_before_retry
) -> Result:
    """As ``retrying``; ``operation`` gets the number of the try, as an earlier answer may be lost."""
    number, tries = 0, Tries(wait)
    while True:
        try:
            with _waiting_with(wait):
                return operation(number)
        except PaiError as err:
            if not tries.another(err):
                raise
        number += 1


def retrying_stream(begin: Callable[[], Iterator[Result]]) -> Iterator[Result]:
    """Yield what ``begin`` yields; call it again when it breaks, unless no data has arrived for long."""
    tries = Tries()
    while True:
        try:
            for item in begin():
                tries.begin()
                yield item
            return
        except PaiError as err:
            if not tries.another(err):
                raise


class Tries:
    """The tries of one operation; after the last one, callers do not retry either: there is one layer."""

    def __init__(self, wait: Callable[[float], bool] = wait_before_retry) -> None:
        self._wait = wait
        self.begin()

    def begin(self) -> None:
        """Start counting again, as data has arrived."""
        self._policy, self._number = RetryPolicy(TRIES, FIRST_PAUSE), 0

    def another(self, err: PaiError) -> bool:
        """Pause, and return whether to retry after this error."""
        if not is_temporary(err) or err.is_given_up:
            return False
        pause, self._number = self._policy.pause(self._number), self._number + 1
        if pause is None:
            err.is_given_up = True
            return False
        return not self._wait(pause)
