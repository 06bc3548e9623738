"""Whether a job whose submission got no clear answer is on the cluster."""

from __future__ import annotations

import time

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, NotFound, PaiError, Unreachable
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key

LOOKS = (0.0, 0.5, 1.5, 3.0)
"""Pauses before looking whether a job whose submission was not answered is there after all."""
LONGEST_SECONDS = 30.0  # for looking at a cluster that does not answer


def is_unclear(err: PaiError) -> bool:
    """Whether the cluster may have done what it was asked: a server can fail after it accepted a job."""
    return isinstance(err, ApiError) and not 300 <= err.status < 500


def arrived(client: Backend, name: str, cause: PaiError) -> bool:
    """Whether the job is there; a slow server may still be at it, so a no counts only after a while."""
    problem: PaiError | None = None
    begun = time.monotonic()
    for pause in LOOKS:
        if problem and time.monotonic() - begun > LONGEST_SECONDS:
            break
        time.sleep(pause)
        try:
            if exists(client, job_key(client.user, name)):
                return True
            problem = None
        except (ApiError, Unreachable) as err:
            problem = err
    if problem is None:
        return False
    status = f"`pai job.status {name} -a {client.cluster.alias}`"
    unsure = f"whether job {name!r} was submitted is not known: {status} will tell"
    raise Unreachable(f"{cause}; {unsure}") from problem


def exists(client: Backend, key: str) -> bool:
    try:
        client.job(key)
    except NotFound:
        return False
    return True


def settled(client: Backend, key: str) -> JobInfo:
    """The job as the cluster tells it; the oldest servers know it a moment after they took it."""
    for pause in LOOKS[1:]:
        try:
            return client.job(key)
        except ApiError as err:
            if not isinstance(err, NotFound) and not is_unclear(err):
                raise
            time.sleep(pause)
    return client.job(key)
