"""Attempts of jobs in the older format, and of tasks."""

from __future__ import annotations

from openpai_tasks.server import refusals
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers.jobs import attempt_number, existing, key, task_roles, view
from openpai_tasks.server.api.request import Reply, Request, TextBody
from openpai_tasks.server.api.shapes import jobs
from openpai_tasks.server.state.records import Attempt, Job, Task


def health(context: Context, request: Request) -> Reply:
    return 200, TextBody("ok")


def list_job_attempts(context: Context, request: Request) -> Reply:
    """Return the latest attempt, then the others in order."""
    job = context.state.job(key(request))
    if job is None:
        return 404, None
    *others, latest = context.state.attempts(job.key)
    return 200, [
        _shown(context, request, job, latest, True),
        *(_shown(context, request, job, one, False) for one in others),
    ]


def get_job_attempt(context: Context, request: Request) -> Reply:
    job = existing(context, request)
    attempt = context.state.attempt(job.key, attempt_number(job, request))
    if attempt is None:
        raise refusals.no_job(job.key)
    return 200, _shown(context, request, job, attempt, True)


def get_task(context: Context, request: Request) -> Reply:
    """Return one task with all its attempts."""
    job = existing(context, request)
    tries = task_tries(context, job, request)
    if not tries:
        raise refusals.no_job(job.key)
    return 200, jobs.task_detail(view(context, request), job, tries)


def task_tries(context: Context, job: Job, request: Request) -> list[Task]:
    """Return every attempt of the task in the path, newest first."""
    index = request.params["index"]
    if not index.isdecimal() or len(index) > 9:
        return []
    attempt = attempt_number(job, request)
    return context.state.task_attempts(job.key, attempt, request.params["role"], int(index))


def _shown(context: Context, request: Request, job: Job, attempt: Attempt, latest: bool) -> dict[str, object]:
    roles = task_roles(context, request, job, attempt.id)
    return jobs.job_attempt(context.profile, job, attempt, roles, latest)
