"""Jobs: submit, list, show, stop, start and tag."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from starlette.responses import PlainTextResponse, Response

from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.protocol import routes
from openpai_tasks.protocol.yaml.reader import read
from openpai_tasks.server import api_errors, fields
from openpai_tasks.server.api import submission
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats import jobs as views
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.state.query import ORDERS, JobQuery
from openpai_tasks.server.state.queue_place import describe_place
from openpai_tasks.server.state.records import Attempt, Job, Task

MOST_ROWS = 50_000
LARGEST_OFFSET = 2**63 - 1
SINGLE = ("username", "vc", "state", "tagsContain", "tagsNotContain", "jobPriority", "order")
"""Query parameters of the list that must not be repeated."""


def submit(context: Context, request: Request) -> Reply:
    document = submission.read_document(request.body)
    environment = submission.read_environment(context, request)
    hooks = submission.read_hooks(context, request)
    job, more = submission.accept(context, request.caller.account, document, request.body, environment, hooks)
    message = f"Update job {job.name} for user {job.user} successfully."
    return 202, {"status": 202, "message": message, **more}


def list_jobs(context: Context, request: Request) -> Reply:
    profile = context.profile
    known = {name: values for name, values in request.query.items() if name in profile.filters}
    asked = dataclasses.replace(request, query=known)
    for name in SINGLE:
        if len(known.get(name, ())) > 1:
            raise ApiError(f"req.query.{name}.split is not a function", 500)
    wanted = query(asked, profile.page)
    rows = [views.summary(profile, job) for job in context.state.jobs(wanted)]
    if asked.first("withTotalCount") == "true":
        return 200, {"totalCount": context.state.count(wanted), "data": rows}
    return 200, rows


def query(request: Request, page: int) -> JobQuery:
    """Read the filters, order and page from the request."""
    field, _, direction = request.first("order").partition(",")
    ordered = field in ORDERS and direction in ("ASC", "DESC")
    return JobQuery(
        users=(request.params["user"],) if "user" in request.params else _values_of(request, "username"),
        virtual_clusters=_values_of(request, "vc"),
        states=_values_of(request, "state"),
        keyword=request.first("keyword"),
        tags=_values_of(request, "tagsContain"),
        without_tags=_values_of(request, "tagsNotContain"),
        priorities=_values_of(request, "jobPriority"),
        order=field if ordered else "submissionTime",
        descending=not ordered or direction == "DESC",
        offset=_offset(request),
        limit=_limit(request, page),
    )


def _offset(request: Request) -> int:
    """Return the number of rows to skip; the database takes 64-bit numbers."""
    value = _number(request, "offset", 0)
    if value > LARGEST_OFFSET:
        raise ApiError(f'value "{value}" is out of range for type bigint', 500)
    return value


def _limit(request: Request, page: int) -> int:
    """Return the maximum number of rows."""
    value = _number(request, "limit", page)
    if value > MOST_ROWS:
        raise api_errors.invalid(f"Limit exceeds max number {MOST_ROWS}.")
    return value


def _number(request: Request, name: str, default: int) -> int:
    """Return the number at the beginning of a query parameter, or the default if it is missing.

    Unusual numbers are handled like OpenPAI's JavaScript and database do.
    """
    if name not in request.query:
        return default
    match = re.match(r"\s*([+-]?)(\d{1,30})", request.first(name), re.ASCII)
    if not match:
        raise ApiError('column "nan" does not exist', 500)
    value = int(match[2])
    if value and match[1] == "-":
        raise ApiError(f"{name.upper()} must not be negative", 500)
    return value


def get_job(context: Context, request: Request) -> Reply:
    """Return the job with its latest attempt, or with the one in the path."""
    job = find_job(context, request)
    number = attempt_number(job, request) if "attempt" in request.params else job.attempt
    attempt = context.state.attempt(job.key, number)
    if attempt is None:
        raise api_errors.no_job(job.key)
    roles = task_roles(context, request, job, number)
    known, environment = context.state.dependencies, context.state.environment(job.key)
    after = known.of(job.key), known.on(job.key)
    place = "" if context.engine.schedules else describe_place(context.state.database, job)
    return 200, views.detail(context.profile, job, attempt, roles, environment, after, place)


def get_config(context: Context, request: Request) -> Reply:
    """Return the document without its secrets, as JSON, which is also YAML."""
    return Response(compact(document_of(find_job(context, request))), media_type="text/yaml")


def set_execution(context: Context, request: Request) -> Reply:
    value = _value(request)
    if value not in ("START", "STOP"):
        raise api_errors.invalid('"value" must be one of [START, STOP]')
    job = find_own_job(context, request)
    context.state.set_execution(job.key, value)
    return 202, {"status": 202, "message": f"Execute job {job.key} successfully."}


def move(context: Context, request: Request) -> Reply:
    """Put a waiting job before the others of its owner."""
    if _value(request) != "first":
        raise api_errors.invalid('"value" must be "first"')
    job = find_own_job(context, request)
    if context.engine.schedules:
        message = (
            f"waiting jobs are in the queue of {context.engine.name}, which alone can change their order"
        )
        raise api_errors.invalid(message)
    context.state.move_first(job.key)
    return 200, {"status": 200, "message": f"Move job {job.key} successfully."}


def add_tag(context: Context, request: Request) -> Reply:
    tag, job = _tag(request), find_own_job(context, request)
    context.state.add_tag(job.key, tag)
    return 200, {"status": 200, "message": f"Add tag {tag} for job {job.key} successfully."}


def remove_tag(context: Context, request: Request) -> Reply:
    tag, job = _tag(request), find_own_job(context, request)
    if not context.state.remove_tag(job.key, tag):
        raise NotFound(f"Tag {tag} is not found for job {job.key}.", 404, "NoTagError")
    return 200, {"status": 200, "message": f"Delete tag {tag} from job {job.key} successfully."}


def list_events(context: Context, request: Request) -> Reply:
    job = find_job(context, request)
    found = context.state.events(job.key, request.first("type") or None)
    host = next((node.name for node in context.engine.capacity().nodes), "")
    return 200, {"totalCount": len(found), "data": [views.event(host, one) for one in found]}


def find_job(context: Context, request: Request) -> Job:
    """Return the job in the path."""
    job = context.state.job(key(request))
    if job is None:
        raise api_errors.no_job(key(request))
    return job


def key(request: Request) -> str:
    """Return ``user~name``, which older paths split in two."""
    user, name = request.params.get("user"), request.params["job"]
    return routes.job_key(user, name) if user else name


def document_of(job: Job) -> Any:
    """Return the job's document without its secrets."""
    return read(job.config).value


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def attempt_number(job: Job, request: Request) -> int:
    number = request.params["attempt"]
    if not number.isdecimal() or len(number) > 9:
        raise api_errors.no_job(job.key)
    return int(number)


def view(context: Context, request: Request) -> views.ViewContext:
    engine = context.engine
    return views.ViewContext(context.profile, engine.capacity(), request.site, engine.ssh_host)


def task_roles(context: Context, request: Request, job: Job, attempt: int) -> dict[str, object]:
    """Return the tasks of an attempt; their times come from the first attempt of each."""
    state = context.state
    pairs = [
        (task, state.task_attempts(job.key, attempt, task.role, task.index)[-1] if task.attempt else task)
        for task in state.tasks(job.key, attempt)
    ]
    return views.task_roles(view(context, request), job, pairs)


def _values_of(request: Request, name: str) -> tuple[str, ...]:
    return tuple(one for one in request.first(name).split(",") if one)


def find_own_job(context: Context, request: Request) -> Job:
    """Return the job in the path; raise if the caller may not change it."""
    job = find_job(context, request)
    if job.user != request.caller.user and not request.caller.admin:
        raise api_errors.forbidden(f"User {request.caller.user} is not allowed to change job {job.key}.")
    return job


def _value(request: Request) -> str:
    return fields.text(fields.mapping(request.body, ("value",)), "value")


def _tag(request: Request) -> str:
    tag = _value(request)
    if not tag or "," in tag:
        raise api_errors.invalid('"value" must be a word without commas')
    return tag


# Attempts of jobs in the older format, and of tasks


def attempts_health(context: Context, request: Request) -> Reply:
    return PlainTextResponse("ok")


def list_job_attempts(context: Context, request: Request) -> Reply:
    """Return the latest attempt, then the others in order."""
    job = context.state.job(key(request))
    if job is None:
        return 404, None
    *others, latest = context.state.attempts(job.key)
    return 200, [
        _job_attempt(context, request, job, latest, True),
        *(_job_attempt(context, request, job, one, False) for one in others),
    ]


def get_job_attempt(context: Context, request: Request) -> Reply:
    job = find_job(context, request)
    attempt = context.state.attempt(job.key, attempt_number(job, request))
    if attempt is None:
        raise api_errors.no_job(job.key)
    return 200, _job_attempt(context, request, job, attempt, True)


def get_task(context: Context, request: Request) -> Reply:
    """Return one task with all its attempts."""
    job = find_job(context, request)
    tries = task_attempts(context, job, request)
    if not tries:
        raise api_errors.no_job(job.key)
    return 200, views.task_detail(view(context, request), job, tries)


def task_attempts(context: Context, job: Job, request: Request) -> list[Task]:
    """Return every attempt of the task in the path, newest first."""
    index = request.params["index"]
    if not index.isdecimal() or len(index) > 9:
        return []
    attempt = attempt_number(job, request)
    return context.state.task_attempts(job.key, attempt, request.params["role"], int(index))


def _job_attempt(
    context: Context, request: Request, job: Job, attempt: Attempt, latest: bool
) -> dict[str, object]:
    roles = task_roles(context, request, job, attempt.id)
    return views.job_attempt(context.profile, job, attempt, roles, latest)
