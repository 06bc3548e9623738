"""Description of the calls about jobs and their logs."""

from __future__ import annotations

from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.api.handlers import attempts, jobs, jobs_v1, logs, node_logs, ssh
from openpai_tasks.server.api.openapi.jobs import EXECUTION
from openpai_tasks.server.api.openapi.shapes import (
    HTML,
    MESSAGE,
    NO_CODE,
    NULL,
    OBJECT,
    PLAIN,
    STATUS_MESSAGE,
    TEXT,
    WHOLE,
    YAML,
    Answer,
    BodyShape,
    Content,
    Operation,
    Operations,
    Schema,
    listed,
    maybe,
    record,
    ref,
)
from openpai_tasks.server.api.shapes.profiles import Profile

_NOTICES = {OWN_FIELD: record({"notices": listed(TEXT)})}
SUBMITTED = record({"status": WHOLE, "message": TEXT, **_NOTICES}, optional=_NOTICES)
SUBMITTED_V1 = record({"message": TEXT, **_NOTICES}, optional=_NOTICES)
INVALID, PROTOCOL, NO_JOB = "InvalidParametersError", "InvalidProtocolError", "NoJobError"
FORBIDDEN = "ForbiddenUserError"
Errors = dict[int, tuple[str, ...]]


def schemas(profile: Profile) -> dict[str, Schema]:
    location = record({"name": TEXT, "uri": TEXT})
    container = record({"id": TEXT, "sshIp": TEXT, "sshPort": TEXT})
    names = ("folderPath", "publicKeyFileName", "privateKeyFileName", "privateKeyDirectDownloadLink")
    pair = record(dict.fromkeys(names, TEXT))
    return {
        "LogLocations": record({"locations": listed(location)}),
        "SshInfo": record({"containers": listed(container), "keyPair": maybe(pair)}),
    }


def operations(profile: Profile) -> Operations:
    return {**_jobs(profile), **_changes(), **_attempts(), **_old_jobs(), **_logs()}


def _jobs(profile: Profile) -> Operations:
    rows: Schema = listed(ref("JobSummary"))
    if "withTotalCount" in profile.filters:
        rows = {"anyOf": [rows, ref("JobSummaries")]}
    odd: Errors = {400: (INVALID,), 500: (NO_CODE,)} if "limit" in profile.filters else {}
    gone: Errors = {404: (NO_JOB,)}
    return {
        jobs.list_jobs: Operation(
            "the jobs of all users", {200: rows}, odd, dict.fromkeys(sorted(profile.filters), TEXT)
        ),
        jobs.submit: Operation("submit a job", {202: SUBMITTED}, _refused(), body=BodyShape(text=YAML)),
        jobs.get_job: Operation("a job with one of its attempts", {200: ref("JobDetail")}, gone),
        jobs.get_config: Operation("a job's document without secrets", {200: Content(YAML)}, gone),
        jobs.list_events: Operation(
            "the events of a job",
            {200: record({"totalCount": {"type": "integer"}, "data": listed(ref("Event"))})},
            gone,
            {"type": TEXT},
        ),
    }


def _changes() -> Operations:
    refused: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: (NO_JOB,)}
    no_tag: Errors = {**refused, 404: (NO_JOB, "NoTagError")}
    tag = BodyShape(record({"value": {"type": "string", "pattern": "^[^,]+$"}}))
    return {
        jobs.set_execution: Operation(
            "stop a job or start it again",
            {202: STATUS_MESSAGE},
            refused,
            body=BodyShape(record({"value": EXECUTION})),
        ),
        jobs.add_tag: Operation("add a tag", {200: STATUS_MESSAGE}, refused, body=tag),
        jobs.remove_tag: Operation("remove a tag", {200: STATUS_MESSAGE}, no_tag, body=tag),
    }


def _attempts() -> Operations:
    gone: Errors = {404: (NO_JOB,)}
    every = {200: listed(ref("JobAttempt")), 404: NULL}
    return {
        attempts.health: Operation("whether attempts are kept", {200: Content(PLAIN)}, deprecated=True),
        attempts.list_job_attempts: Operation("the attempts of a job", every, deprecated=True),
        attempts.get_job_attempt: Operation(
            "one attempt of a job", {200: ref("JobAttempt")}, gone, deprecated=True
        ),
        attempts.get_task: Operation("a task with all its attempts", {200: ref("TaskDetail")}, gone),
    }


def _old_jobs() -> Operations:
    """Jobs at the paths of the oldest servers."""
    refused = _refused()
    old: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: ("NoVirtualClusterError",), 409: refused[409]}
    either = {status: (*refused.get(status, ()), *old.get(status, ())) for status in {**refused, **old}}
    gone: Errors = {404: (NO_JOB,)}
    document: dict[int, Answer] = {200: (OBJECT, Content(YAML))}
    return {
        jobs_v1.submit: Operation(
            "submit a v1 configuration", {202: SUBMITTED_V1}, old, body=BodyShape(OBJECT)
        ),
        jobs_v1.submit_either: Operation(
            "submit a document, or a v1 configuration",
            {202: {"anyOf": [SUBMITTED, SUBMITTED_V1]}},
            either,
            body=BodyShape(OBJECT, text=YAML),
        ),
        jobs_v1.remove: Operation(
            "stop a job and forget it", {202: MESSAGE}, {**gone, 403: (FORBIDDEN,), 500: ("UnknownError",)}
        ),
        jobs_v1.get_config: Operation("a job as it was submitted", document, gone),
        jobs_v1.get_document: Operation("a job's document", document, {404: ("NoJobConfigError",)}),
        ssh.get_ssh: Operation(
            "where a job accepts ssh", {200: ref("SshInfo")}, {404: (NO_JOB, "NoJobSshInfoError")}
        ),
        ssh.get_no_ssh: Operation("always refused", {}, {404: ("NoJobSshInfoError",)}),
        ssh.get_key: Operation(
            "a key of a job, for its owner",
            {200: Content("application/octet-stream")},
            {401: ("UnauthorizedUserError",), 403: (FORBIDDEN,), 404: ("NoJobSshInfoError",)},
            {"op": TEXT, "ticket": TEXT},
        ),
    }


def _logs() -> Operations:
    none: Errors = {404: ("NoTaskLogError",)}
    file: dict[int, Answer] = dict.fromkeys((200, 206, 416), Content(PLAIN))
    page: dict[int, Answer] = {200: Content(HTML)}
    ticket = ("username", "framework-name", "pod-uid", "taskrole", "token", "tail-mode")
    return {
        logs.list_logs: Operation(
            "where the logs of an attempt are",
            {200: ref("LogLocations")},
            {404: ("NoTaskLogError",), 500: ("UnknownError",)},
            {"tail-mode": TEXT, "tailMode": TEXT},
        ),
        logs.get_log: Operation(
            "a log", file, {**none, 401: ("UnauthorizedUserError",)}, dict.fromkeys(ticket, TEXT)
        ),
        node_logs.list_container_logs: Operation("a page of logs", page, none),
        node_logs.show_container_log: Operation(
            "a page with a log", page, none, {"start": TEXT, "end": TEXT}
        ),
        node_logs.list_pod_logs: Operation("a folder of logs", page, none),
        node_logs.get_pod_log: Operation("a log", file, none),
        node_logs.get_pod_log_tail: Operation("the end of a log", {200: Content(PLAIN)}, none),
    }


def _refused() -> Errors:
    """Return the errors for a document; text that is not YAML has no code."""
    return {
        400: (PROTOCOL, INVALID),
        403: (FORBIDDEN,),
        404: ("NoStorageError",),
        409: ("ConflictJobError",),
        500: (NO_CODE,),
    }
