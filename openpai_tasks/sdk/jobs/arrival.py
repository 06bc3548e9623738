"""Find out whether a job is on the cluster after its submission got no clear answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, NotFound, PaiError, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key

PAUSES = (0.0, 0.5, 1.5, 3.0)
"""Seconds before each look for the job."""
LONGEST_SECONDS = 30.0  # for a cluster that does not answer


def is_unclear(err: PaiError) -> bool:
    """Return whether the request may have succeeded: a server can fail after it accepted a job."""
    return isinstance(err, ApiError) and not 300 <= err.status < 500


def _unsure(client: Backend, name: str) -> str:
    status = f"`{command('job.status', name, '-a', client.cluster.alias)}`"
    return f"job {name!r} may have been submitted: check with {status}"


@contextlib.contextmanager
def reporting_interrupt(client: Backend, name: str) -> Iterator[None]:
    """Say after Ctrl-C that the cluster may have the job, as its answer is not known."""
    try:
        yield
    except KeyboardInterrupt:
        client.say(_unsure(client, name))
        raise


def has_arrived(client: Backend, name: str, cause: PaiError) -> bool:
    """Return whether the job exists, looking for a while as a slow server may still be working."""
    problem: PaiError | None = None
    begun = time.monotonic()
    for pause in PAUSES:
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
    unsure = _unsure(client, name)
    raise Unreachable(f"{cause}; {unsure}") from problem


def exists(client: Backend, key: str) -> bool:
    try:
        client.job(key)
    except NotFound:
        return False
    return True


def wait_for_job(client: Backend, key: str) -> JobInfo:
    """Return the submitted job; the oldest servers need a moment to know it."""
    for pause in PAUSES[1:]:
        try:
            return client.job(key)
        except ApiError as err:
            if not isinstance(err, NotFound) and not is_unclear(err):
                raise
            time.sleep(pause)
    return client.job(key)
