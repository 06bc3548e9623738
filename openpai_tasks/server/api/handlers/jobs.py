"""Jobs: submit, list, show, stop, start and tag."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from openpai_tasks.protocol import routes
from openpai_tasks.protocol.yaml.reader import read
from openpai_tasks.server import fields, refusals
from openpai_tasks.server.api import paging, submission
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request, TextBody
from openpai_tasks.server.api.shapes import jobs as views
from openpai_tasks.server.state.query import ORDERS, JobQuery
from openpai_tasks.server.state.records import Job


def submit(context: Context, request: Request) -> Reply:
    document = submission.read_document(request.body)
    environment = submission.read_environment(context, request)
    job, more = submission.accept(context, request.caller.account, document, request.body, environment)
    message = f"Update job {job.name} for user {job.user} successfully."
    return 202, {"status": 202, "message": message, **more}


def list_jobs(context: Context, request: Request) -> Reply:
    profile = context.profile
    known = {name: values for name, values in request.query.items() if name in profile.filters}
    asked = dataclasses.replace(request, query=known)
    paging.check(known)
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
        users=(request.params["user"],) if "user" in request.params else _listed(request, "username"),
        virtual_clusters=_listed(request, "vc"),
        states=_listed(request, "state"),
        keyword=request.first("keyword"),
        tags=_listed(request, "tagsContain"),
        without_tags=_listed(request, "tagsNotContain"),
        priorities=_listed(request, "jobPriority"),
        order=field if ordered else "submissionTime",
        descending=not ordered or direction == "DESC",
        offset=paging.offset(request),
        limit=paging.limit(request, page),
    )


def get_job(context: Context, request: Request) -> Reply:
    """Return the job with its latest attempt, or with the one in the path."""
    job = existing(context, request)
    number = attempt_number(job, request) if "attempt" in request.params else job.attempt
    attempt = context.state.attempt(job.key, number)
    if attempt is None:
        raise refusals.no_job(job.key)
    roles = task_roles(context, request, job, number)
    return 200, views.detail(context.profile, job, attempt, roles, context.state.environment(job.key))


def get_config(context: Context, request: Request) -> Reply:
    """Return the document without its secrets, as JSON, which is also YAML."""
    return 200, TextBody(compact(document_of(existing(context, request))), "text/yaml; charset=utf-8")


def set_execution(context: Context, request: Request) -> Reply:
    value = _value(request)
    if value not in ("START", "STOP"):
        raise refusals.invalid('"value" must be one of [START, STOP]')
    job = own(context, request)
    context.state.set_execution(job.key, value)
    return 202, {"status": 202, "message": f"Execute job {job.key} successfully."}


def add_tag(context: Context, request: Request) -> Reply:
    tag, job = _tag(request), own(context, request)
    context.state.add_tag(job.key, tag)
    return 200, {"status": 200, "message": f"Add tag {tag} for job {job.key} successfully."}


def remove_tag(context: Context, request: Request) -> Reply:
    tag, job = _tag(request), own(context, request)
    if not context.state.remove_tag(job.key, tag):
        raise refusals.no_tag(tag, job.key)
    return 200, {"status": 200, "message": f"Delete tag {tag} from job {job.key} successfully."}


def list_events(context: Context, request: Request) -> Reply:
    job = existing(context, request)
    found = context.state.events(job.key, request.first("type") or None)
    host = next((node.name for node in context.engine.capacity().nodes), "")
    return 200, {"totalCount": len(found), "data": [views.event(host, one) for one in found]}


def existing(context: Context, request: Request) -> Job:
    """Return the job in the path."""
    job = context.state.job(key(request))
    if job is None:
        raise refusals.no_job(key(request))
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
        raise refusals.no_job(job.key)
    return int(number)


def view(context: Context, request: Request) -> views.ViewContext:
    return views.ViewContext(context.profile, context.engine.capacity(), request.site)


def task_roles(context: Context, request: Request, job: Job, attempt: int) -> dict[str, object]:
    """Return the tasks of an attempt; their times come from the first attempt of each."""
    state = context.state
    pairs = [
        (task, state.task_attempts(job.key, attempt, task.role, task.index)[-1] if task.attempt else task)
        for task in state.tasks(job.key, attempt)
    ]
    return views.task_roles(view(context, request), job, pairs)


def _listed(request: Request, name: str) -> tuple[str, ...]:
    return tuple(one for one in request.first(name).split(",") if one)


def own(context: Context, request: Request) -> Job:
    """Return the job in the path; raise if the caller may not change it."""
    job = existing(context, request)
    if job.user != request.caller.user and not request.caller.admin:
        raise refusals.forbidden(f"User {request.caller.user} is not allowed to change job {job.key}.")
    return job


def _value(request: Request) -> str:
    return fields.text(fields.mapping(request.body, ("value",)), "value")


def _tag(request: Request) -> str:
    tag = _value(request)
    if not tag or "," in tag:
        raise refusals.invalid('"value" must be a word without commas')
    return tag
