"""Description of jobs, their attempts, tasks and logs, and of the calls about them."""

from __future__ import annotations

from openpai_tasks.protocol import states
from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.api.formats.jobs import SHORT_TASK
from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.api.handlers import jobs, jobs_v1, logs, node_logs, ssh
from openpai_tasks.server.api.openapi.schema import (
    FLAG,
    FORBIDDEN,
    HTML,
    INVALID,
    MESSAGE,
    NO_CODE,
    NO_JOB,
    NULL,
    NUMBER,
    OBJECT,
    PLAIN,
    STATUS_MESSAGE,
    TEXT,
    TIME,
    WHOLE,
    YAML,
    Answer,
    Errors,
    Fields,
    Operation,
    Operations,
    Schema,
    by_name,
    each,
    listed,
    maybe,
    one_of,
    record,
    ref,
)

STATE = one_of(states.WAITING, states.RUNNING, states.STOPPING, *sorted(states.FINAL))
SUB_STATES = (
    *(states.CREATION_PENDING, states.CREATION_REQUESTED, states.PREPARING, states.ATTEMPT_RUNNING),
    *(states.DELETION_PENDING, states.DELETION_REQUESTED, states.DELETING),
    *(states.ATTEMPT_COMPLETED, states.COMPLETED),
)
EXECUTION = one_of("START", "STOP")
_NOTICES = {OWN_FIELD: record({"notices": listed(TEXT)})}
SUBMITTED = record({"status": WHOLE, "message": TEXT, **_NOTICES}, optional=_NOTICES)
SUBMITTED_V1 = record({"message": TEXT, **_NOTICES}, optional=_NOTICES)
GONE: Errors = {404: (NO_JOB,)}
_ELSEWHERE = ("containerSshIp",)  # where the SSH service of a task has another address than the task


def schemas(profile: Profile) -> dict[str, Schema]:
    task, run = _task(), _task_attempt(profile)
    place = {**each(TEXT, "username jobName taskRoleName"), "jobAttemptId": WHOLE}
    messages = {"container": NULL, "runtime": maybe(_runtime(profile)), "launcher": maybe(TEXT)}
    container = record(each(TEXT, "id sshIp sshPort"))
    pair = record(each(TEXT, "folderPath publicKeyFileName privateKeyFileName privateKeyDirectDownloadLink"))
    return {
        "JobSummary": record(profile.without("summary", _summary(profile)), optional=["userExitCode"]),
        "JobSummaries": record({"totalCount": WHOLE, "data": listed(ref("JobSummary"))}),
        "JobDetail": record(profile.without("detail", _detail()), optional=["environment"]),
        "JobStatus": record(profile.without("status", _status(profile))),
        "TaskRole": _role(ref("TaskStatus")),
        "TaskStatus": record(profile.without("task", {**task, **run}), _ELSEWHERE),
        "TaskDetail": record(
            {**place, **task, "attempts": listed(record(profile.without("task", run), _ELSEWHERE))}
        ),
        "JobAttempt": record(_attempt(profile)),
        "ExitSpec": _exit_spec(),
        "ExitMessages": record(messages),
        "Event": _event(),
        "LogLocations": record({"locations": listed(record(each(TEXT, "name uri")))}),
        "SshInfo": record({"containers": listed(container), "keyPair": maybe(pair)}),
    }


def _summary(profile: Profile) -> Fields:
    return {
        **each(TEXT, "debugId name username virtualCluster"),
        **_common(profile),
        **each(WHOLE, "totalGpuNumber totalTaskNumber totalTaskRoleNumber userExitCode"),
        "completedTime": maybe(TIME),
        "appExitCode": maybe(WHOLE),
        "tags": listed(TEXT),
        "jobPriority": maybe(TEXT),
    }


def _detail() -> Fields:
    return {
        **each(TEXT, "debugId name"),
        "tags": listed(TEXT),
        "jobStatus": ref("JobStatus"),
        "taskRoles": by_name(ref("TaskRole")),
        "environment": by_name(TEXT),
    }


def _status(profile: Profile) -> Fields:
    return {
        **each(TEXT, "name username appId appTrackingUrl virtualCluster"),
        **_common(profile),
        **_exit(),
        "attemptId": WHOLE,
        "attemptState": STATE,
        "appProgress": NUMBER,
        "appCreatedTime": TIME,
        **each(maybe(TIME), "completedTime appLaunchedTime appCompletedTime"),
        "appExitCode": maybe(WHOLE),
        "appExitType": maybe(TEXT) if profile.is_yarn else maybe(one_of("Succeeded", "Failed")),
    }


def _common(profile: Profile) -> Fields:
    words = dict.fromkeys(profile.sub_states.get(name, name) for name in SUB_STATES)
    return {
        "state": STATE,
        "subState": one_of(*words),
        "executionType": EXECUTION,
        "retries": WHOLE,
        "retryDetails": record(each(WHOLE, "user platform resource")),
        "retryDelayTime": maybe(WHOLE),
        **each(TIME, "submissionTime createdTime"),
        "launchedTime": maybe(TIME),
    }


def _exit() -> Fields:
    texts = "appExitDiagnostics appExitTriggerMessage appExitTriggerTaskRoleName"
    return {
        **each(maybe(TEXT), texts),
        "appExitSpec": maybe(ref("ExitSpec")),
        "appExitMessages": maybe(ref("ExitMessages")),
        "appExitTriggerTaskIndex": maybe(WHOLE),
    }


def _exit_spec() -> Schema:
    texts = each(TEXT, "phrase issuer causer type stage behavior reaction reason")
    return record({"code": WHOLE, **texts, **each(listed(TEXT), "repro solution")}, optional=["reason"])


def _runtime(profile: Profile) -> Schema:
    """Return the schema of the report about a failed command."""
    if profile.is_yarn:
        logs = record(each(TEXT, "user runtime diskCleaner"))
        own = {**each(WHOLE, "exitcode originalUserExitCode"), "caughtSignal": NULL, "errorLogs": logs}
    else:
        logs = record(each(TEXT, "user platform"))
        own = {**each(WHOLE, "exitCode originUserExitCode"), "errorLogs": logs, "name": TEXT}
    return record({**own, "matchedUserLogString": TEXT}, optional=["matchedUserLogString"])


def _role(task: Schema) -> Schema:
    return record({"taskRoleStatus": record({"name": TEXT}), "taskStatuses": listed(task)})


def _task() -> Fields:
    return {
        **each(WHOLE, "taskIndex retries accountableRetries"),
        "taskUid": TEXT,
        "taskState": STATE,
        "createdTime": TIME,
        **each(maybe(TIME), "launchedTime completedTime"),
    }


def _task_attempt(profile: Profile) -> Fields:
    port = WHOLE if isinstance(profile.ports((1, 2)), int) else TEXT
    return {
        **each(TEXT, "containerId containerIp containerSshIp containerNodeName containerLog"),
        **each(maybe(WHOLE), "containerGpus containerExitCode peakMemoryMB"),
        "attemptId": WHOLE,
        "attemptState": STATE,
        "currentAttemptCreatedTime": TIME,
        **each(maybe(TIME), "currentAttemptLaunchedTime currentAttemptCompletedTime"),
        "containerPorts": by_name(port),
        "containerExitSpec": maybe(ref("ExitSpec")),
        "containerExitDiagnostics": maybe(TEXT),
        "cpuSeconds": maybe(NUMBER),
    }


def _attempt(profile: Profile) -> Fields:
    """Return the fields of an attempt in the older format."""
    whole_task = {**_task(), **_task_attempt(profile)}
    short = record({key: whole_task[key] for key in SHORT_TASK})
    diagnostics = {
        "diagnosticsSummary": TEXT,
        "runtime": maybe(_runtime(profile)),
        "launcher": maybe(TEXT),
    }
    return {
        **each(TEXT, "jobName frameworkName uid userName originState"),
        **each(WHOLE, "attemptIndex totalGpuNumber totalTaskNumber totalTaskRoleNumber"),
        **each(TIME, "jobStartedTime attemptStartedTime"),
        **each(maybe(TEXT), "exitPhrase exitType"),
        **_exit(),
        "state": STATE,
        "attemptCompletedTime": maybe(TIME),
        "exitCode": maybe(WHOLE),
        "exitDiagnostics": maybe(record(diagnostics)),
        "taskRoles": by_name(_role(short)),
        "isLatest": FLAG,
    }


def _event() -> Schema:
    texts = "uid frameworkName reason message firstTimestamp lastTimestamp sourceComponent"
    return record(
        {
            **each(TEXT, texts),
            **each(maybe(TEXT), "podUid taskroleName taskName sourceHost"),
            "taskIndex": maybe(WHOLE),
            "type": one_of("Normal", "Warning"),
            "count": WHOLE,
        }
    )


def operations(profile: Profile) -> Operations:
    return {**_jobs(profile), **_changes(), **_attempts(), **_old_jobs(), **_logs()}


def _jobs(profile: Profile) -> Operations:
    rows: Schema = listed(ref("JobSummary"))
    if "withTotalCount" in profile.filters:
        rows = {"anyOf": [rows, ref("JobSummaries")]}
    odd: Errors = {400: (INVALID,), 500: (NO_CODE,)} if "limit" in profile.filters else {}
    return {
        jobs.list_jobs: Operation(
            "the jobs of all users", {200: rows}, odd, dict.fromkeys(sorted(profile.filters), TEXT)
        ),
        jobs.submit: Operation("submit a job", {202: SUBMITTED}, _refused(), text=YAML),
        jobs.get_job: Operation("a job with one of its attempts", {200: ref("JobDetail")}, GONE),
        jobs.get_config: Operation("a job's document without secrets", {200: YAML}, GONE),
        jobs.list_events: Operation(
            "the events of a job",
            {200: record({"totalCount": {"type": "integer"}, "data": listed(ref("Event"))})},
            GONE,
            {"type": TEXT},
        ),
    }


def _changes() -> Operations:
    refused: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: (NO_JOB,)}
    no_tag: Errors = {**refused, 404: (NO_JOB, "NoTagError")}
    tag = record({"value": {"type": "string", "pattern": "^[^,]+$"}})
    return {
        jobs.set_execution: Operation(
            "stop a job or start it again",
            {202: STATUS_MESSAGE},
            refused,
            body=record({"value": EXECUTION}),
        ),
        jobs.add_tag: Operation("add a tag", {200: STATUS_MESSAGE}, refused, body=tag),
        jobs.remove_tag: Operation("remove a tag", {200: STATUS_MESSAGE}, no_tag, body=tag),
    }


def _attempts() -> Operations:
    every = {200: listed(ref("JobAttempt")), 404: NULL}
    return {
        jobs.attempts_health: Operation("whether attempts are kept", {200: PLAIN}, deprecated=True),
        jobs.list_job_attempts: Operation("the attempts of a job", every, deprecated=True),
        jobs.get_job_attempt: Operation(
            "one attempt of a job", {200: ref("JobAttempt")}, GONE, deprecated=True
        ),
        jobs.get_task: Operation("a task with all its attempts", {200: ref("TaskDetail")}, GONE),
    }


def _old_jobs() -> Operations:
    """Jobs at the paths of the oldest servers."""
    refused = _refused()
    old: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: ("NoVirtualClusterError",), 409: refused[409]}
    either = {status: (*refused.get(status, ()), *old.get(status, ())) for status in {**refused, **old}}
    document: dict[int, Answer] = {200: (OBJECT, YAML)}
    return {
        jobs_v1.submit: Operation("submit a v1 configuration", {202: SUBMITTED_V1}, old, body=OBJECT),
        jobs_v1.submit_either: Operation(
            "submit a document, or a v1 configuration",
            {202: {"anyOf": [SUBMITTED, SUBMITTED_V1]}},
            either,
            body=OBJECT,
            text=YAML,
        ),
        jobs_v1.remove: Operation(
            "stop a job and forget it", {202: MESSAGE}, {**GONE, 403: (FORBIDDEN,), 500: ("UnknownError",)}
        ),
        jobs_v1.get_config: Operation("a job as it was submitted", document, GONE),
        jobs_v1.get_document: Operation("a job's document", document, {404: ("NoJobConfigError",)}),
        ssh.get_ssh: Operation(
            "where a job accepts ssh", {200: ref("SshInfo")}, {404: (NO_JOB, "NoJobSshInfoError")}
        ),
        ssh.refuse_ssh: Operation("always refused", {}, {404: ("NoJobSshInfoError",)}),
        ssh.get_key: Operation(
            "a key of a job, for its owner",
            {200: "application/octet-stream"},
            {401: ("UnauthorizedUserError",), 403: (FORBIDDEN,), 404: ("NoJobSshInfoError",)},
            {"op": TEXT, "ticket": TEXT},
        ),
    }


def _logs() -> Operations:
    none: Errors = {404: ("NoTaskLogError",)}
    file: dict[int, Answer] = dict.fromkeys((200, 206, 416), PLAIN)
    page: dict[int, Answer] = {200: HTML}
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
        node_logs.get_pod_log_tail: Operation("the end of a log", {200: PLAIN}, none),
    }


def _refused() -> Errors:
    """Return the errors for a document; text that is not YAML has no code."""
    return {
        400: ("InvalidProtocolError", INVALID),
        403: (FORBIDDEN,),
        404: ("NoStorageError",),
        409: ("ConflictJobError",),
        500: (NO_CODE,),
    }
