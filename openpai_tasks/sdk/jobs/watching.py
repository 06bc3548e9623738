"""Asking a cluster on behalf of whoever watches a job: an outage is waited out."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, PaiError, TimedOut
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.settings.registry import LOCAL

T = TypeVar("T")

GROWTH = {"least_pause": 0.5, "growth": 1.5, "longest_pause": 15.0}
DATABASE_DOWN = 500  # what the REST server answers while it cannot reach its database


def ask_patiently(client: Backend, call: Callable[[], T], limit: float = math.inf) -> T:
    """Return what ``call`` brings, asking again during an outage for as long as ``watch-patience`` says.

    ``limit`` is the moment of the monotonic clock when the whole watch is over.
    """
    policy = RetryPolicy(tries=sys.maxsize, budget_seconds=client.patience, **GROWTH)
    begun, number = 0.0, 0
    while True:
        try:
            answer = call()
        except PaiError as err:
            now = time.monotonic()
            begun = begun if number else now
            pause = policy.pause(number, spent=now - begun)
            if pause is None or not is_outage(err) or _has_ended(client):
                raise
            if now >= limit:
                raise TimedOut(f"the time to wait is over, and {err}") from err
            if not number:
                client.say(_lost(client, err))
            number += 1
            time.sleep(min(pause, limit - now))
        else:
            if number:
                client.say(f"cluster {client.cluster.alias!r} answers again")
            return answer


def is_outage(err: PaiError) -> bool:
    """Whether the same call may well succeed later."""
    return err.is_outage or (isinstance(err, ApiError) and err.status == DATABASE_DOWN)


def _has_ended(client: Backend) -> bool:
    """Whether it is an embedded cluster that was ended: nothing brings it back while one watches."""
    return client.cluster.alias == LOCAL and embedded.running() is None


def _lost(client: Backend, err: PaiError) -> str:
    cluster, reason = client.cluster, str(err)
    for before in (f"({cluster.uri}): ", f"({cluster.uri}) says no: "):
        reason = reason.partition(before)[2] or reason
    tries = f"it is asked again for up to {client.patience:g} s (the setting watch-patience)"
    return f"cluster {cluster.alias!r} does not answer: {reason}; {tries}"
