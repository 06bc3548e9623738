"""Jobs that wait for others: on a cluster that keeps no dependencies, the client waits in its place."""

from __future__ import annotations

from collections.abc import Sequence

from openpai_tasks.backends.base import Backend, Say
from openpai_tasks.errors import JobFailed
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.policy import Dependency
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.lookup import find, watch
from openpai_tasks.text.hints import command

MOST_DEPENDENTS = 1000  # each takes a request


def check_dependencies(
    client: Backend, wanted: Sequence[Dependency], say: Say, is_in_document: bool = True
) -> None:
    """Raise if a job that is depended on is unknown or has ended otherwise.

    A cluster that keeps no dependencies, or gets a document without them, does not wait: this does.
    """
    found = [(one, find(client, one.job)) for one in wanted]
    waits = not (client.capabilities.dependencies and is_in_document)
    if waits and not all(job.final for _, job in found):
        where = f"cluster {client.cluster.alias!r} ({client.product})"
        say(f"{where} keeps no dependencies between jobs: keep this running, it submits when they are met")
    for one, job in found:
        end = _wait(client, job, say) if waits and not job.final else job
        if end.final and not one.is_met_by(end.state):
            why = f"; `{command('job.why', one.job)}` says why" if end.exit_status else ""
            raise JobFailed(f"nothing was submitted: {one.describe(end.state)}{why}", end.exit_status or 1)


def _wait(client: Backend, job: JobInfo, say: Say) -> JobInfo:
    now = job
    for now in watch(client, job.key):
        if not now.final:
            say(f"waiting for job {now.name!r}, which is {now.state}")
    return now


def stopped_dependents(client: Backend, job: JobInfo) -> list[JobInfo]:
    """Return the user's jobs that were stopped because of how this one ended, in the order of submission.

    There are at most MOST_DEPENDENTS.
    """
    found: dict[str, JobInfo] = {}
    left = [job]
    while left:
        for key in stopped_keys(left.pop()):
            if key not in found and key.startswith(f"{client.user}~") and len(found) < MOST_DEPENDENTS:
                found[key] = client.job(key)
                left.append(found[key])
    return sorted(found.values(), key=lambda one: one.submitted or 0)


def stopped_keys(job: JobInfo) -> list[str]:
    """Return the jobs that were stopped because of how this one ended, without those that wait for them."""
    return [one.job for one in job.dependents if one.state == states.STOPPED and one.met is False]
