"""Which requests to a cluster are retried, and when."""

from __future__ import annotations

import time
from typing import NamedTuple

from openpai_tasks.backends.http.errors import chain, pause
from openpai_tasks.net.exchange import AnswerTooLarge
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.net.retry import RetryPolicy

UNAVAILABLE = (502, 503, 504)
DATABASE_DOWN = 500
TOO_MANY = 429
REPEATABLE = ("GET", "PUT")  # safe to send twice


class Policies(NamedTuple):
    """How often to retry a request without an answer, and after "too many requests"."""

    unanswered: RetryPolicy
    busy: RetryPolicy


USUAL = Policies(
    unanswered=RetryPolicy(tries=4, least_pause=0.2, budget_seconds=120.0),
    busy=RetryPolicy(tries=20, least_pause=0.5, budget_seconds=120.0),
)
ONCE = RetryPolicy(tries=1, least_pause=0.0)
NEVER = Policies(ONCE, ONCE)
UNPAUSED = Policies(ONCE, USUAL.busy)  # for callers that retry by themselves


class Retries:
    """The retries of one request; both policies count the time since it was first sent."""

    def __init__(self, policies: Policies, method: str) -> None:
        self._policies, self._method, self._is_repeatable = policies, method, method in REPEATABLE
        self._begun = time.monotonic()
        self._unanswered = self._busy = 0

    def after_error(self, err: Exception) -> float | None:
        """Return the seconds to wait after a failed request, or None to give up."""
        if isinstance(err, ValueError) or not self._is_repeatable:
            return None
        # A server that was silent for so long is not likely to answer.
        hopeless = (TimeoutError, AnswerTooLarge)
        if any(isinstance(one, hopeless) for one in chain(err)):
            return None
        return self._after_no_answer()

    def after(self, response: HttpAnswer) -> float | None:
        """Return the seconds to wait after an answer; None if there is no reason to retry or to give up."""
        if response.status_code == TOO_MANY:
            number, self._busy = self._busy, self._busy + 1
            return self._policies.busy.pause(number, pause(response), self._spent())
        if self._method == "PUT" and response.status_code == DATABASE_DOWN:
            return self._after_no_answer()
        if response.status_code in UNAVAILABLE and self._is_repeatable:
            return self._after_no_answer()
        return None

    def _after_no_answer(self) -> float | None:
        number, self._unanswered = self._unanswered, self._unanswered + 1
        return self._policies.unanswered.pause(number, spent=self._spent())

    def _spent(self) -> float:
        return time.monotonic() - self._begun
