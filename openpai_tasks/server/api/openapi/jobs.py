"""Description of jobs, their attempts and their tasks."""

from __future__ import annotations

from openpai_tasks.protocol import states
from openpai_tasks.server.api.openapi.shapes import (
    FLAG,
    NULL,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    by_name,
    listed,
    maybe,
    one_of,
    record,
    ref,
)
from openpai_tasks.server.api.shapes import jobs
from openpai_tasks.server.api.shapes.profiles import Profile

STATE = one_of(states.WAITING, states.RUNNING, states.STOPPING, *sorted(states.FINAL))
SUB_STATES = (
    *(states.CREATION_PENDING, states.CREATION_REQUESTED, states.PREPARING, states.ATTEMPT_RUNNING),
    *(states.DELETION_PENDING, states.DELETION_REQUESTED, states.DELETING),
    *(states.ATTEMPT_COMPLETED, states.COMPLETED),
)
EXECUTION = one_of("START", "STOP")


def schemas(profile: Profile) -> dict[str, Schema]:
    task, run = _task(), _try(profile)
    return {
        "JobSummary": record(profile.without("summary", _summary(profile)), optional=["userExitCode"]),
        "JobSummaries": record({"totalCount": WHOLE, "data": listed(ref("JobSummary"))}),
        "JobDetail": record(profile.without("detail", _detail()), optional=["environment"]),
        "JobStatus": record(profile.without("status", _status(profile))),
        "TaskRole": _role(ref("TaskStatus")),
        "TaskStatus": record(profile.without("task", {**task, **run})),
        "TaskDetail": record({**_place(), **task, "attempts": listed(record(profile.without("task", run)))}),
        "JobAttempt": record(_attempt(profile)),
        "ExitSpec": _exit_spec(),
        "ExitMessages": record(
            {"container": NULL, "runtime": maybe(_runtime(profile)), "launcher": maybe(TEXT)}
        ),
        "Event": _event(),
    }


def _summary(profile: Profile) -> dict[str, Schema]:
    return {
        "debugId": TEXT,
        "name": TEXT,
        "username": TEXT,
        **_standing(profile),
        "completedTime": maybe(TIME),
        "appExitCode": maybe(WHOLE),
        "virtualCluster": TEXT,
        "totalGpuNumber": WHOLE,
        "totalTaskNumber": WHOLE,
        "totalTaskRoleNumber": WHOLE,
        "tags": listed(TEXT),
        "jobPriority": maybe(TEXT),
        "userExitCode": WHOLE,
    }


def _detail() -> dict[str, Schema]:
    return {
        "debugId": TEXT,
        "name": TEXT,
        "tags": listed(TEXT),
        "jobStatus": ref("JobStatus"),
        "taskRoles": by_name(ref("TaskRole")),
        "environment": by_name(TEXT),
    }


def _status(profile: Profile) -> dict[str, Schema]:
    return {
        "name": TEXT,
        "username": TEXT,
        **_standing(profile),
        "completedTime": maybe(TIME),
        "attemptId": WHOLE,
        "attemptState": STATE,
        "appId": TEXT,
        "appProgress": NUMBER,
        "appTrackingUrl": TEXT,
        "appCreatedTime": TIME,
        "appLaunchedTime": maybe(TIME),
        "appCompletedTime": maybe(TIME),
        "appExitCode": maybe(WHOLE),
        **_exit(),
        "appExitType": maybe(TEXT) if profile.is_yarn else maybe(one_of("Succeeded", "Failed")),
        "virtualCluster": TEXT,
    }


def _standing(profile: Profile) -> dict[str, Schema]:
    words = dict.fromkeys(profile.sub_states.get(name, name) for name in SUB_STATES)
    return {
        "state": STATE,
        "subState": one_of(*words),
        "executionType": EXECUTION,
        "retries": WHOLE,
        "retryDetails": record({"user": WHOLE, "platform": WHOLE, "resource": WHOLE}),
        "retryDelayTime": maybe(WHOLE),
        "submissionTime": TIME,
        "createdTime": TIME,
        "launchedTime": maybe(TIME),
    }


def _exit() -> dict[str, Schema]:
    return {
        "appExitSpec": maybe(ref("ExitSpec")),
        "appExitDiagnostics": maybe(TEXT),
        "appExitMessages": maybe(ref("ExitMessages")),
        "appExitTriggerMessage": maybe(TEXT),
        "appExitTriggerTaskRoleName": maybe(TEXT),
        "appExitTriggerTaskIndex": maybe(WHOLE),
    }


def _exit_spec() -> Schema:
    words = ("phrase", "issuer", "causer", "type", "stage", "behavior", "reaction", "reason")
    lists = {"repro": listed(TEXT), "solution": listed(TEXT)}
    return record({"code": WHOLE, **dict.fromkeys(words, TEXT), **lists}, optional=["reason"])


def _runtime(profile: Profile) -> Schema:
    """Return the schema of the report about a failed command."""
    if profile.is_yarn:
        logs = record({"user": TEXT, "runtime": TEXT, "diskCleaner": TEXT})
        own = {"exitcode": WHOLE, "originalUserExitCode": WHOLE, "caughtSignal": NULL, "errorLogs": logs}
    else:
        logs = record({"user": TEXT, "platform": TEXT})
        own = {"exitCode": WHOLE, "originUserExitCode": WHOLE, "errorLogs": logs, "name": TEXT}
    return record({**own, "matchedUserLogString": TEXT}, optional=["matchedUserLogString"])


def _role(task: Schema) -> Schema:
    return record({"taskRoleStatus": record({"name": TEXT}), "taskStatuses": listed(task)})


def _place() -> dict[str, Schema]:
    return {"username": TEXT, "jobName": TEXT, "jobAttemptId": WHOLE, "taskRoleName": TEXT}


def _task() -> dict[str, Schema]:
    return {
        "taskIndex": WHOLE,
        "taskUid": TEXT,
        "taskState": STATE,
        "retries": WHOLE,
        "accountableRetries": WHOLE,
        "createdTime": TIME,
        "launchedTime": maybe(TIME),
        "completedTime": maybe(TIME),
    }


def _try(profile: Profile) -> dict[str, Schema]:
    port = WHOLE if isinstance(profile.ports((1, 2)), int) else TEXT
    return {
        "attemptId": WHOLE,
        "attemptState": STATE,
        "currentAttemptCreatedTime": TIME,
        "currentAttemptLaunchedTime": maybe(TIME),
        "currentAttemptCompletedTime": maybe(TIME),
        "containerId": TEXT,
        "containerIp": TEXT,
        "containerNodeName": TEXT,
        "containerPorts": by_name(port),
        "containerGpus": maybe(WHOLE),
        "containerLog": TEXT,
        "containerExitCode": maybe(WHOLE),
        "containerExitSpec": maybe(ref("ExitSpec")),
        "containerExitDiagnostics": maybe(TEXT),
        "peakMemoryMB": maybe(WHOLE),
        "cpuSeconds": maybe(NUMBER),
    }


def _attempt(profile: Profile) -> dict[str, Schema]:
    """Return the schema of an attempt in the older format."""
    whole_task = {**_task(), **_try(profile)}
    short = record({key: whole_task[key] for key in jobs.SHORT_TASK})
    diagnostics = {
        "diagnosticsSummary": TEXT,
        "runtime": maybe(_runtime(profile)),
        "launcher": maybe(TEXT),
    }
    return {
        "jobName": TEXT,
        "frameworkName": TEXT,
        "uid": TEXT,
        "userName": TEXT,
        "state": STATE,
        "originState": TEXT,
        "attemptIndex": WHOLE,
        "jobStartedTime": TIME,
        "attemptStartedTime": TIME,
        "attemptCompletedTime": maybe(TIME),
        "exitCode": maybe(WHOLE),
        "exitPhrase": maybe(TEXT),
        "exitType": maybe(TEXT),
        "exitDiagnostics": maybe(record(diagnostics)),
        **_exit(),
        "totalGpuNumber": WHOLE,
        "totalTaskNumber": WHOLE,
        "totalTaskRoleNumber": WHOLE,
        "taskRoles": by_name(_role(short)),
        "isLatest": FLAG,
    }


def _event() -> Schema:
    return record(
        {
            "uid": TEXT,
            "frameworkName": TEXT,
            "podUid": maybe(TEXT),
            "taskroleName": maybe(TEXT),
            "taskName": maybe(TEXT),
            "taskIndex": maybe(WHOLE),
            "type": one_of("Normal", "Warning"),
            "reason": TEXT,
            "message": TEXT,
            "firstTimestamp": TEXT,
            "lastTimestamp": TEXT,
            "count": WHOLE,
            "sourceComponent": TEXT,
            "sourceHost": maybe(TEXT),
        }
    )
