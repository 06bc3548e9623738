"""What a job that has not begun waits for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from openpai_tasks.client import Client
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import explain, jobs
from openpai_tasks.sdk.polling import Pauses

STARTS = "it starts"
MOMENT = 1.5  # seconds of waiting that are no news


def lines(client: Client, name: str) -> Iterator[str]:
    """A line for each new reason, until the job has begun."""
    pauses, since, last = Pauses(client), time.monotonic(), ""
    while (job := jobs.find(client, name)).state == states.WAITING:
        if time.monotonic() - since >= MOMENT:
            line = f"job {job.name} is {job.state}: {reason(client, job)}"
            if line != last:
                yield line
            last = line
        pauses.wait()


def reason(client: Client, job: JobInfo) -> str:
    with contextlib.suppress(PaiError):
        return explain.why(client, job.key).why
    return STARTS
