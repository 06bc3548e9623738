"""Whole HTTP answers, status line and headers included, to requests that depend on what is in their head."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

from openpai_tasks.backends.http import errors
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, PaiError, TooManyRequests, Unreachable
from openpai_tasks.hooks import delivery, hook
from openpai_tasks.hooks.messages import Facts
from openpai_tasks.sdk.notebooks.link import Link
from tests.fuzz.feeding import http_answers
from tests.fuzz.target import Target
from tests.fuzz.targets.openpai import client_of

USES: tuple[Callable[[Client], object], ...] = (
    lambda client: client.job("ann~train"),
    lambda client: client.log_size("/logs/all"),
    lambda client: client.read_log_end("/logs/all", 100),
    lambda client: list(client.read_log("/logs/all", 3)),
    lambda client: client.login("ann", "secret"),
)


def _head(data: bytes) -> None:
    """Use an answer in the way that the first byte chooses; a wait is never longer than a day."""
    use = USES[data[0] % len(USES) if data else 0]
    with http_answers(lambda method, target: data[1:]):
        try:
            use(client_of())
        except TooManyRequests as err:
            assert 0 <= err.retry_after <= errors.LONGEST
            str(err).encode()
        except (ApiError, Unreachable) as err:
            str(err).encode()


def _jupyter(data: bytes) -> object:
    """Ask a Jupyter server whether it answers, and for its pages."""
    link = Link(cast(Any, None), "job", "http://127.0.0.1:9")
    with http_answers(lambda method, target: data):
        found = link.address("token", "a b.ipynb").encode()
        return found, link.answers("token")


def _hook(data: bytes) -> None:
    """Post to the hook of a job."""
    with http_answers(lambda method, target: data), contextlib.suppress(delivery.DeliveryFailed, PaiError):
        delivery.deliver(hook.parse("https://ntfy.sh/x"), FACTS, {}, "1")


FACTS = Facts("end", "train", "SUCCEEDED", "ann")
SLOW = b"HTTP/1.1 429 Too Many\r\nDate: Thu, 19 Nov 2026 10:00:00 GMT\r\nContent-Length: 2\r\n%b\r\n{}"
WAITS = (
    b"Retry-After: 30\r\n",
    b"Retry-After: Thu, 19 Nov 2026 10:01:00 GMT\r\n",
    b"X-RateLimit-Reset: 1795082430.5\r\nRetry-After: 60\r\n",
)
MOVED = b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
PART = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nhello"
PAST = b"HTTP/1.1 416 Range\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n"
HEADS = (*(SLOW % one for one in WAITS), MOVED % b"https://user@other.example:99/x", PART, PAST)
SEEDS = tuple(bytes([at]) + head for at in range(len(USES)) for head in HEADS)
JUPYTER = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"kernels": 1}'
TARGETS = (
    Target("http-head", _head, SEEDS),
    Target("jupyter-answer", _jupyter, (JUPYTER,)),
    Target("hook-answer", _hook, (JUPYTER, MOVED % b"/x")),
)
