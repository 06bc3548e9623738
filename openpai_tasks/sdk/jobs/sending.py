"""Submit many jobs, each exactly once, while the cluster limits requests or does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, Conflict, TooManyRequests, Unreachable
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.polling import is_outage, retry_during_outage
from openpai_tasks.sdk.jobs.submission import NotSubmitted, Submission

TRIES = 3

T = TypeVar("T")


class Sender:
    """Sends requests to a cluster; ``pausing`` is called with the seconds of each pause it asks for."""

    def __init__(self, client: Backend, pausing: Callable[[float], None] = lambda seconds: None) -> None:
        self._client, self._pausing = client, pausing
        self._notices: set[str] = set()  # those of earlier jobs

    def call(self, ask: Callable[[], T], is_repeatable: bool = True) -> T:
        """Call the cluster, pausing as it asks; during an outage, repeat only calls that are safe."""
        while True:
            try:
                return retry_during_outage(self._client, ask) if is_repeatable else ask()
            except TooManyRequests as err:
                self._pausing(err.retry_after)
                time.sleep(err.retry_after)

    def submit(self, made: Submission, claim: Callable[[str], None]) -> None:
        """Submit one document; repeat it only if the cluster certainly does not have the job.

        ``claim`` raises unless an existing job of that name is the one to submit.
        """
        key = job_key(self._client.user, made.name)
        for left in reversed(range(TRIES)):
            try:
                notices = self.call(lambda: submission.submit_once(self._client, made), is_repeatable=False)
                submission.report_notices(self._client, notices, self._notices)
                self._notices.update(notices)
                break
            except Conflict:  # an answer was lost, or the same command runs twice at once
                self.call(lambda: claim(made.name))
                break
            except NotSubmitted:
                if not left:
                    raise
            except (Unreachable, ApiError) as err:
                if not left or not (isinstance(err, Unreachable) or is_outage(err)):
                    raise
                if self.call(lambda: submission.exists(self._client, key)):
                    claim(made.name)
                    break
