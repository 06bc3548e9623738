"""Poll a cluster, with pauses that grow while nothing changes, and wait out its outages."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, PaiError, TimedOut
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.sdk.clusters import embedded

T = TypeVar("T")

SHORT_PAUSES = (0.05, 0.5)  # the shortest and the longest
LONG_PAUSES = (0.5, 5.0)  # well below OpenPAI's limit of 600 requests a minute
GROWTH = 1.4
OUTAGE_PAUSES = {"least_pause": 0.5, "growth": 1.5, "longest_pause": 15.0}
STOPPED_TRIES = 4  # within 4 seconds, in which an embedded cluster that was stopped may be started again
DATABASE_DOWN = 500  # the REST server's answer while its database is unreachable


class Pauses:
    """Pauses between requests, with an optional time limit."""

    def __init__(self, client: Backend, timeout: float | None = None) -> None:
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):  # nor NaN
            raise ConfigError(f"a timeout must be 0 or more seconds, got {timeout!r}")
        self._shortest, self._longest = SHORT_PAUSES if client.polls_cheaply else LONG_PAUSES
        self._next = self._shortest
        self._limit = time.monotonic() + (math.inf if timeout is None else timeout)
        self._client = client

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._limit

    def ask(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, waiting out an outage of the cluster."""
        return retry_during_outage(self._client, call, self._limit)

    def next(self, moved: bool = False) -> float:
        """Return the seconds until the next request; only the shortest time if something has changed."""
        self._next = self._shortest if moved else min(self._next * GROWTH, self._longest)
        return max(0.0, min(self._next, self._limit - time.monotonic()))

    def wait(self, moved: bool = False) -> None:
        """Sleep until the next request."""
        time.sleep(self.next(moved))


def retry_during_outage(client: Backend, call: Callable[[], T], limit: float = math.inf) -> T:
    """Return the result of ``call``, retrying during an outage for up to ``watch-patience`` seconds.

    ``limit`` is the time of the monotonic clock at which to give up in any case.
    """
    policy = RetryPolicy(tries=sys.maxsize, budget_seconds=client.patience, **OUTAGE_PAUSES)
    begun, number, is_said = 0.0, 0, False
    while True:
        try:
            answer = call()
        except PaiError as err:
            now = time.monotonic()
            begun = begun if number else now
            pause = policy.pause(number, spent=now - begun)
            if pause is None or not is_outage(err):
                raise
            is_stopped = _is_stopped(client)
            if is_stopped and number >= STOPPED_TRIES:
                raise
            if now >= limit:
                raise TimedOut(f"timed out: {err}") from err
            if not is_said and not is_stopped:
                is_said = True
                client.say(_outage_message(client, err))
            number += 1
            time.sleep(min(pause, limit - now))
        else:
            if is_said:
                client.say(f"cluster {client.cluster.alias!r} answers again")
            return answer


def is_outage(err: PaiError) -> bool:
    """Return whether the same call may succeed later."""
    return err.is_outage or (isinstance(err, ApiError) and err.status == DATABASE_DOWN)


def _is_stopped(client: Backend) -> bool:
    """Return whether this is the embedded cluster and it was stopped; start one that was killed."""
    return client.cluster.is_embedded and not embedded.revive(client.cluster.uri, client.say)


def _outage_message(client: Backend, err: PaiError) -> str:
    cluster, reason = client.cluster, str(err)
    for before in (f"({cluster.uri}): ", f"({cluster.uri}) answered: "):
        reason = reason.partition(before)[2] or reason
    tries = f"retrying for up to {client.patience:g} s (setting watch-patience)"
    return f"cluster {cluster.alias!r} does not answer: {reason}; {tries}"
