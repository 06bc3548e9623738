"""Jobs: submit, list, kill."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from datetime import datetime, timezone
from typing import Any

from openpai_tasks.errors import ApiError, Conflict, NotFound
from openpai_tasks.protocol import states
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.server.api import submission as api_submission
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud import places
from openpai_tasks.server.paddlecloud.account import check_quota
from openpai_tasks.server.paddlecloud.document import TRAINER, document, namespace, package_path
from openpai_tasks.server.paddlecloud.records import PaddleJob, PaddleRecords
from openpai_tasks.server.paddlecloud.submission import PaddleSubmission, memory_text, read_submission
from openpai_tasks.server.state.state import STOP

OK = 200, {"code": 200, "msg": ""}
FOLDER = "folder"
PACKAGE_ANNOTATION = "paddle-job-package"
"""The name of the folder that was uploaded as the package, in the metadata of a job."""


def submit(context: Context, request: Request) -> Reply:
    user, wanted = request.caller.user, read_submission(request.body)
    wanted = _with_package(context, user, wanted)
    records = PaddleRecords(context.state.database)
    with context.state.database.transaction():  # nothing else is submitted between the checks and the job
        _check_name_is_free(records.job(user, wanted.name), wanted.name)
        check_quota(context, user, wanted)
        name = _free_name(context, records, user, wanted.name)
        text = document(user, name, wanted)
        parsed = api_submission.read_document(text)
        job, more = api_submission.accept(context, request.caller.account, parsed, text)
        shown = _request(user, wanted)
        records.add(job.key, user, wanted.name, wanted.trainers, wanted.pservers, shown)
    return 200, {"code": 200, "msg": "OK"} if wanted.is_designed else {**OK[1], **more}


def list_jobs(context: Context, request: Request) -> Reply:
    """Return the jobs in the fields of the design document, and as Kubernetes describes them."""
    records, user = PaddleRecords(context.state.database), request.caller.user
    found, counts = records.jobs(user), records.counts(user)
    listed = [one for one in found if not one.is_killed]
    return 200, {
        "code": 200,
        "msg": [_designed_row(one) for one in listed],
        "items": [_job(one, counts.get(one.job.key, Counter())) for one in listed],
        "terminating": [one.name for one in found if one.is_terminating],
    }


def kill(context: Context, request: Request) -> Reply:
    """Stop a job and take it off the list; its files and logs stay."""
    given = request.body if isinstance(request.body, dict) else {}
    name = request.params.get("job") or given.get("jobname")
    if not isinstance(name, str) or not name:
        raise ApiError("no jobname specified", 400)
    found = PaddleRecords(context.state.database).job(request.caller.user, name)
    if found is None or not found.is_listed:
        raise no_job(name)
    context.state.set_execution(found.job.key, STOP)
    return OK


def no_job(name: str) -> NotFound:
    return NotFound(f"no job named {name[:80]!r}", 404)


def _with_package(context: Context, user: str, wanted: PaddleSubmission) -> PaddleSubmission:
    """Return the submission with the path of its package; raise unless it is a folder in the home."""
    place = places.locate(context, user, package_path(user, wanted))
    if place.prefix != places.home_path(wanted.datacenter, user):
        raise ApiError(f"invalid job_package: expected a folder in /pfs/{wanted.datacenter}/home/{user}", 400)
    if not place.is_folder():
        raise NotFound(f"package not exist in cloud: {place.path}", 404)
    return dataclasses.replace(wanted, package=place.path)


def _request(user: str, wanted: PaddleSubmission) -> dict[str, Any]:
    """Return the values of a submission that the list of jobs shows."""
    return {
        "name": wanted.name,
        "job_package": package_path(user, wanted),
        "parallelism": wanted.trainers,
        "cpu": wanted.cpu,
        "gpu": wanted.gpu,
        "memory": memory_text(wanted.memory_mb),
        "pservers": wanted.pservers,
        "pscpu": wanted.pserver_cpu,
        "psmemory": memory_text(wanted.pserver_memory_mb),
        "topology": wanted.topology,
        FOLDER: wanted.folder,
    }


def _designed_row(one: PaddleJob) -> dict[str, Any]:
    """Return a job in the fields of the design document; older releases have kept only three of them."""
    kept = {"name": one.name, "parallelism": one.trainers, "pservers": one.pservers}
    return {name: value for name, value in (one.request or kept).items() if name != FOLDER}


def _check_name_is_free(found: PaddleJob | None, name: str) -> None:
    if found and found.is_terminating:
        raise Conflict(f"job {name} is terminating: wait until it has ended, or choose another name", 409)
    if found and found.is_listed:
        raise Conflict(f"job {name} exists already: kill it first, or choose another name", 409)


def _free_name(context: Context, records: PaddleRecords, user: str, name: str) -> str:
    """Return the job's name in OpenPAI's API; it must not share a folder with another job."""
    for number in itertools.count(1):
        internal = name if number == 1 else f"{name}_{number}"  # names of PaddleCloud have no underscore
        key = job_key(user, internal)
        if not context.state.has_job(key):
            return internal
        if not records.has_job(key):
            raise Conflict(f"jobs/{name} is the folder of a job of OpenPAI's API: choose another name", 409)
    raise AssertionError


def _job(one: PaddleJob, counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    job = one.job
    has_ended, has_succeeded = job.state in states.FINAL, job.state == states.SUCCEEDED
    succeeded, failed = counts[TRAINER, states.SUCCEEDED], counts[TRAINER, states.FAILED]
    ended = succeeded + failed + counts[TRAINER, states.STOPPED]
    about = metadata(one, f"{one.name}-trainer", {"paddle-job": one.name})
    if folder := one.request.get(FOLDER):
        about["annotations"] = {PACKAGE_ANNOTATION: folder}
    return {
        "metadata": about,
        "spec": {"parallelism": one.trainers, "completions": one.trainers},
        "status": {
            "active": (0 if has_ended else one.trainers - ended) or None,
            "succeeded": succeeded or None,
            "failed": failed or (1 if job.state == states.FAILED else None),
            "start_time": timestamp(job.launched),
            "completion_time": timestamp(job.completed) if has_succeeded else None,
            "conditions": [_condition(one)] if has_ended else None,
        },
    }


def _condition(one: PaddleJob) -> dict[str, Any]:
    kind = "Complete" if one.job.state == states.SUCCEEDED else "Failed"
    when = timestamp(one.job.completed)
    return {"type": kind, "status": "True", "message": one.message, "last_transition_time": when}


def metadata(one: PaddleJob, name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace(one.job.user),
        "creation_timestamp": timestamp(one.job.submitted),
        "labels": labels,
    }


def timestamp(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
