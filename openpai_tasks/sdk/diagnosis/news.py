"""Report why a followed job waits, and when it is retried."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.diagnosis import explain

STARTS = "starting"
NEWS_SECONDS = 1.5  # waits shorter than this are not reported


class News:
    """Reports changes since the last look at a job, each reason for a wait once."""

    def __init__(self, client: Backend, say: Callable[[str], object]) -> None:
        self._client, self._say = client, say
        self._attempt: int | None = None
        self._waits_since: float | None = None
        self._last = ""

    def __call__(self, job: JobInfo) -> None:
        if self._attempt is not None and job.attempt > self._attempt:
            self._say(f"job {job.name} failed and is retried: {explain.attempt_number(job)}")
            self._waits_since, self._last = None, ""
        self._attempt = job.attempt
        if job.state != states.WAITING:
            self._waits_since = None
            return
        self._waits_since = self._waits_since or time.monotonic()
        if time.monotonic() - self._waits_since >= NEWS_SECONDS:
            line = f"job {job.name} is {job.state}: {wait_reason(self._client, job)}"
            if line != self._last:
                self._say(line)
            self._last = line


def wait_reason(client: Backend, job: JobInfo) -> str:
    """Return what the job waits for, unless it has started since."""
    with contextlib.suppress(PaiError):
        found = explain.why(client, job.key)
        return found.why if found.state == job.state else STARTS
    return STARTS
