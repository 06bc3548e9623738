"""The vocabulary of the description, and the operations of all handlers with the schemas of their answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.policy import WHEN
from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.jobs import SHORT_TASK
from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.api.handlers import (
    authn,
    cluster,
    groups,
    jobs,
    jobs_v1,
    logs,
    node_logs,
    ssh,
    usage,
    users,
)
from openpai_tasks.server.api.request import Reply, Request

Schema = dict[str, Any]
Fields = dict[str, Schema]
Errors = dict[int, tuple[str, ...]]
"""The codes of each status; NO_CODE for an error without one."""

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
OBJECT: Schema = {"type": "object"}  # with any content
TIME: Schema = {"type": "integer", "description": "milliseconds since the epoch"}
HTML = "text/html"
PLAIN = "text/plain"
YAML = "text/yaml"
NO_CODE = ""
INVALID, FORBIDDEN, NO_JOB = "InvalidParametersError", "ForbiddenUserError", "NoJobError"


def maybe(schema: Schema) -> Schema:
    """Return a schema for the value or null."""
    if "type" not in schema or "enum" in schema:
        return {"anyOf": [schema, NULL]}
    return {**schema, "type": [schema["type"], "null"]}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def by_name(values: Schema) -> Schema:
    """Return a schema for an object with any keys."""
    return {"type": "object", "additionalProperties": values}


def each(schema: Schema, names: str) -> Fields:
    """Return several fields with the same schema."""
    return dict.fromkeys(names.split(), schema)


def record(properties: Mapping[str, Schema], optional: Collection[str] = ()) -> Schema:
    """Return a schema for an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


MESSAGE = record({"message": TEXT})
STATUS_MESSAGE = record({"status": WHOLE, "message": TEXT})

Answer = Schema | str | tuple[Schema, str]
"""JSON, another media type, or either as the caller accepts it."""


@dataclass(frozen=True)
class Operation:
    """The request and the answers of a handler."""

    summary: str
    answers: Mapping[int, Answer]
    errors: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None  # of a request in JSON or a form
    text: str = ""  # the media type of a request in text
    deprecated: bool = False


Operations = dict[Callable[[Context, Request], Reply], Operation]


def schemas(profile: Profile) -> dict[str, Schema]:
    return {**_account_schemas(profile), **_cluster_schemas(profile), **_job_schemas(profile)}


def operations(profile: Profile) -> Operations:
    return {
        **_authn(),
        **_users(),
        **_groups(),
        **_cluster(),
        **_jobs(profile),
        **_old_jobs(),
        **_logs(),
    }


# Accounts: the cluster itself, logins, tokens, users and groups

USER_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"}
PASSWORD: Schema = {"type": "string", "minLength": 6}
EXPIRATION: Schema = {
    "type": "integer",
    "minimum": authn.SHORTEST_SESSION,
    "maximum": authn.LONGEST_SESSION,
}
LOGIN_FIELDS: Fields = {"username": USER_NAME, "password": PASSWORD, "expiration": EXPIRATION}
USER_FIELDS: Fields = {
    "username": USER_NAME,
    "password": PASSWORD,
    "email": TEXT,
    "virtualCluster": listed(TEXT),
    "admin": FLAG,
    "extension": OBJECT,
}
SELF_FIELDS: Fields = {
    **each(TEXT, "username email oldPassword"),
    "newPassword": PASSWORD,
    "extension": OBJECT,
}
GROUP_FIELDS: Fields = {
    "groupname": {"type": "string", "pattern": "^[A-Za-z0-9_]+$"},
    **each(TEXT, "description externalName"),
    "extension": OBJECT,
}


def _account_schemas(profile: Profile) -> dict[str, Schema]:
    info = {
        **each(TEXT, "name version engine"),
        "launcherType": one_of("k8s", "yarn"),
        "authnMethod": one_of("basic", "OIDC"),
    }
    payload = {
        **each(TEXT, "username encodedFrameworkName"),
        **each(FLAG, "application jobSpecific admin"),
        **each(WHOLE, "iat exp"),
    }
    login = {"user": TEXT, "token": TEXT, "admin": FLAG, "hasGitHubPAT": {}}
    user = {
        **each(TEXT, "username email"),
        **each(listed(TEXT), "grouplist virtualCluster storageConfig"),
        "extension": OBJECT,
        "admin": FLAG,
    }
    return {
        "Info": record(info),
        "AuthnInfo": record(each(TEXT, "authn_type loginURI loginURIMethod")),
        "Login": record(login, optional=() if profile.is_yarn else ("hasGitHubPAT",)),
        "TokenPayload": record(payload, optional=["exp"]),
        "User": record(profile.without("user", user)),
        "Group": record(GROUP_FIELDS),
        "GroupMember": record({"username": TEXT, "clusterAdmin": FLAG}),
    }


def _authn() -> Operations:
    wrong: Errors = {400: (INVALID, "NoUserError", "IncorrectPasswordError")}
    revoked: Errors = {403: (FORBIDDEN,), 500: ("UnknownError",)}
    issued = record({"token": TEXT, "application": FLAG})
    body = record(LOGIN_FIELDS, optional=["expiration"])
    return {
        authn.get_description: Operation("this description", {200: OBJECT}),
        authn.health: Operation("whether the cluster answers", {200: PLAIN}),
        authn.info: Operation("information about the cluster", {200: ref("Info")}),
        authn.greeting: Operation("a greeting", {200: HTML}),
        authn.authn_info: Operation("how to log in", {200: ref("AuthnInfo")}),
        authn.login: Operation("log in", {200: ref("Login")}, wrong, body=body),
        authn.logout: Operation("revoke the token of this call", {200: MESSAGE}),
        authn.list_tokens: Operation("the caller's tokens", {200: record({"tokens": listed(TEXT)})}),
        authn.create_application_token: Operation("a token that does not expire", {200: issued}),
        authn.revoke_token: Operation("revoke one of the caller's tokens", {200: MESSAGE}, revoked),
        authn.check_token: Operation("the claims of the token", {200: ref("TokenPayload")}),
    }


def _users() -> Operations:
    created = record(USER_FIELDS, [name for name in USER_FIELDS if name not in ("username", "password")])
    passwords = record({"oldPassword": TEXT, "newPassword": PASSWORD}, ["oldPassword"])
    no_cluster = (INVALID, "NoVirtualClusterError")
    changed: Errors = {400: no_cluster, 403: (FORBIDDEN,), 404: ("NoUserError",)}
    made: Errors = {400: no_cluster, 404: ("NoGroupError",), 409: ("ConflictUserError",)}
    removed: Errors = {403: ("RemoveAdminError",), 404: ("NoUserError",)}
    group = GROUP_FIELDS["groupname"]
    return {
        users.list_users: Operation("all users", {200: listed(ref("User"))}),
        users.get_user: Operation("one user", {200: ref("User")}, {400: ("NoUserError",)}),
        users.create_user: Operation("create a user", {201: MESSAGE}, made, body=created),
        users.update_user: Operation("change a user", {201: MESSAGE}, changed, body=_patch(USER_FIELDS)),
        users.update_me: Operation("change oneself", {201: MESSAGE}, changed, body=_patch(SELF_FIELDS)),
        users.delete_user: Operation("remove a user", {200: MESSAGE}, removed),
        users.set_groups: _field("set a user's groups", "grouplist", listed(TEXT)),
        users.add_group: _field("add a user to a group", "groupname", group),
        users.drop_group: _field("remove a user from a group", "groupname", group),
        users.set_virtual_clusters: _field("set a user's virtual clusters", "virtualCluster", listed(TEXT)),
        users.set_admin: _field("make a user an admin, or not", "admin", FLAG),
        users.set_email: _field("set a user's address", "email", TEXT),
        users.set_extension: _field("add to a user's extension", "extension", OBJECT),
        users.set_password: Operation("set a user's password", {201: MESSAGE}, changed, body=passwords),
    }


def _groups() -> Operations:
    one_field = {key: value for key, value in GROUP_FIELDS.items() if key != "groupname"}
    group = record(GROUP_FIELDS, one_field)
    bare_or_patch: Schema = {"anyOf": [_patch(GROUP_FIELDS), group]}
    none: Errors = {400: ("NoGroupError",)}
    changed: Errors = {400: (INVALID,), 404: ("NoGroupError",)}
    made: Errors = {400: (INVALID,), 409: ("ConflictGroupError",)}
    removed: Errors = {403: (FORBIDDEN,), 404: ("NoGroupError",)}
    return {
        groups.list_groups: Operation("all groups", {200: listed(ref("Group"))}),
        groups.get_group: Operation("one group", {200: ref("Group")}, none),
        groups.list_members: Operation("the users in a group", {200: listed(ref("GroupMember"))}, none),
        groups.create_group: Operation("create a group", {201: MESSAGE}, made, body=group),
        groups.update_group: Operation("change a group", {201: MESSAGE}, changed, body=bare_or_patch),
        groups.delete_group: Operation("remove a group", {200: MESSAGE}, removed),
        groups.set_field: Operation(
            "set one field of a group", {201: MESSAGE}, changed, body=record(one_field, one_field)
        ),
        groups.set_extension_key: Operation(
            "set the value at a path in a group's extension",
            {201: MESSAGE},
            changed,
            body=record({"data": {}}),
        ),
    }


def _patch(fields: Fields) -> Schema:
    """Return a schema for ``data`` with some of the fields, or with all if ``patch`` is not set."""
    data = record(fields, [name for name in fields if not name.endswith("name")])
    return record({"data": data, "patch": FLAG}, ["patch"])


def _field(summary: str, name: str, schema: Schema) -> Operation:
    """Return the operation of a call that changes one field of a user."""
    errors = {
        400: (INVALID, "NoVirtualClusterError"),
        403: (FORBIDDEN,),
        404: ("NoUserError", "NoGroupError"),
    }
    return Operation(summary, {201: MESSAGE}, errors, body=record({name: schema}))


# The cluster: virtual clusters, storages and nodes

STORAGE_TYPES = ("nfs", "samba", "azureFile", "azureBlob", "dshuttle", "other", "unknown")
SHARE: Fields = {**each(NUMBER, "capacity usedCapacity maxCapacity"), "dedicated": FLAG}


def _cluster_schemas(profile: Profile) -> dict[str, Schema]:
    volume: Fields = {**each(TEXT, "name volumeName"), "share": FLAG}
    folder: Fields = {
        "type": one_of(*STORAGE_TYPES),
        "data": OBJECT,
        OWN_FIELD: record({"type": one_of("local"), "path": TEXT}),
    }
    own: Fields = {OWN_FIELD: record({"mountPoint": TEXT})}
    summary = profile.without("storage", {**volume, "default": FLAG, **own})
    detail = profile.without("storage", {**volume, **folder, "readOnly": FLAG})
    mount = record(each(TEXT, "mountPoint server path permission"))
    config = {"name": TEXT, "default": FLAG, "servers": listed(TEXT), "mountInfos": listed(mount)}
    items = {**each(TEXT, "kind apiVersion"), "metadata": OBJECT, "items": listed(OBJECT)}
    return {
        "VirtualCluster": _queue() if profile.is_yarn else _virtual_cluster(),
        "NodeGpus": record(each(WHOLE, "gpuUsed gpuAvailable gpuTotal")),
        "StorageSummary": record(summary, optional=own),
        "StorageDetail": record(detail),
        "StorageConfig": record(config),
        "StorageServer": record({"spn": TEXT, **folder, "extension": OBJECT}),
        "KubernetesList": record(items),
    }


def _cluster() -> Operations:
    none: Errors = {404: ("NoVirtualClusterError",)}
    refused: Errors = {403: (FORBIDDEN,), 404: ("NoStorageError",)}
    clusters: Schema = {"anyOf": [by_name(ref("VirtualCluster")), by_name(ref("NodeGpus"))]}
    removed = record({"name": TEXT, **each(WHOLE, "completedTime bytes")})
    skus = by_name(record(each(WHOLE, "cpu memory gpu")))
    hours = "waited gpu gpu_measured gpu_used gpu_failed cpu cpu_measured cpu_used cpu_failed"
    used: Fields = {"name": TEXT, "jobs": WHOLE, **each(NUMBER, hours), "series": listed(listed(NUMBER))}
    busy: Fields = {"time": TIME, **each(NUMBER, "running waiting cpu memory_mb gpu")}
    return {
        cluster.list_virtual_clusters: Operation(
            "the virtual clusters, or the nodes' GPUs", {200: clusters}, query={"nodes": TEXT}
        ),
        cluster.get_virtual_cluster: Operation("one virtual cluster", {200: ref("VirtualCluster")}, none),
        cluster.change_virtual_cluster: Operation("always refused", {}, {400: ("NotImplementedError",)}),
        cluster.clean_jobs: Operation(
            "remove finished jobs beyond the limits; only in the embedded cluster",
            {200: record({"jobs": listed(removed)})},
            {400: (INVALID,)},
            body=record({"keep": TEXT, "preview": FLAG}, optional=("preview",)),
        ),
        cluster.clean_orphans: Operation(
            "remove what other embedded clusters that are gone have left; only in the embedded cluster",
            {200: record({"orphans": listed(record(each(TEXT, "name job home")))})},
            {400: (INVALID,)},
            body=record({"preview": FLAG}, optional=("preview",)),
        ),
        usage.get_cluster_usage: Operation(
            "how busy the cluster was; only in the embedded cluster",
            {200: record({"span": WHOLE, "rows": listed(record(busy))})},
            {400: (INVALID,)},
            {"seconds": WHOLE, "points": WHOLE},
        ),
        usage.get_report: Operation(
            "what jobs had and used, by user, tag or sweep; only in the embedded cluster",
            {
                200: record(
                    {"user": TEXT, "until": TIME, "removed": maybe(TIME), "rows": listed(record(used))}
                )
            },
            {400: (INVALID,), 403: (FORBIDDEN,)},
            {"seconds": WHOLE, "points": WHOLE, **each(TEXT, "by username")},
        ),
        cluster.list_sku_types: Operation("SKU types of HiveD", {200: skus}, none, {"vc": TEXT}),
        cluster.list_storages: Operation(
            "the storages granted to the caller",
            {200: record({"storages": listed(ref("StorageSummary"))})},
            query={"default": TEXT},
        ),
        cluster.get_storage: Operation("one storage", {200: ref("StorageDetail")}, refused),
        cluster.list_storage_configs: _views("StorageConfig", "storages in the older shape"),
        cluster.list_storage_servers: _views("StorageServer", "servers of storages"),
        cluster.list_nodes: Operation("the nodes of Kubernetes", {200: ref("KubernetesList")}),
        cluster.list_pods: Operation(
            "the pods of Kubernetes",
            {200: ref("KubernetesList")},
            query=each(TEXT, "namespace labelSelector"),
        ),
    }


def _views(name: str, summary: str) -> Operation:
    answer: Schema = {"anyOf": [listed(ref(name)), ref(name)]}
    missing: Errors = {500: ("UnknownError",)}
    return Operation(summary, {200: answer}, missing, {"names": listed(TEXT)}, deprecated=True)


def _virtual_cluster() -> Schema:
    resources = record(each(WHOLE, "cpu memory gpu vCores GPUs"))
    used = each(resources, "resourcesUsed resourcesGuaranteed resourcesTotal")
    parts: Fields = {**each(by_name(WHOLE), "gpuTypes freeGpus"), "takenGpus": listed(TEXT), "images": FLAG}
    own = {OWN_FIELD: record(parts, optional=parts)}
    return record({**SHARE, **used, **own}, optional=own)


def _queue() -> Schema:
    jobs = each(WHOLE, "numActiveJobs numJobs numPendingJobs")
    state = {"status": one_of("RUNNING", "STOPPED", "DRAINING"), "nodeList": listed(TEXT)}
    resources = each(record(each(WHOLE, "memory vCores GPUs")), "resourcesUsed resourcesTotal")
    return record({**SHARE, **jobs, **state, **resources})


# Jobs, their attempts, tasks and logs

STATE = one_of(states.WAITING, states.RUNNING, states.STOPPING, *sorted(states.FINAL))
SUB_STATES = (
    *(states.CREATION_PENDING, states.CREATION_REQUESTED, states.PREPARING, states.ATTEMPT_RUNNING),
    *(states.DELETION_PENDING, states.DELETION_REQUESTED, states.DELETING),
    *(states.ATTEMPT_COMPLETED, states.COMPLETED),
)
EXECUTION = one_of("START", "STOP")
_OF_SUBMISSION = {"notices": listed(TEXT), "hooks": WHOLE}
_NOTICES = {OWN_FIELD: record(_OF_SUBMISSION, optional=_OF_SUBMISSION)}
SUBMITTED = record({"status": WHOLE, "message": TEXT, **_NOTICES}, optional=_NOTICES)
SUBMITTED_V1 = record({"message": TEXT, **_NOTICES}, optional=_NOTICES)
GONE: Errors = {404: (NO_JOB,)}
REFUSED: Errors = {
    400: ("InvalidProtocolError", INVALID),
    403: (FORBIDDEN,),
    404: ("NoStorageError",),
    409: ("ConflictJobError",),
    500: (NO_CODE,),  # text that is not YAML
}
_SOMETIMES = ("containerSshIp", "keptUntil", "cause")
"""For an SSH service at another address than its task, and for a failed task that is kept."""


_OF_FAILURES = ["userExitCode", "cause", "keptUntil"]
_OF_SOME_JOBS = ["environment", "after", "dependents", "place", "jobPriority"]


def _job_schemas(profile: Profile) -> dict[str, Schema]:
    task, run = _task(), _task_attempt(profile)
    place = {**each(TEXT, "username jobName taskRoleName"), "jobAttemptId": WHOLE}
    messages = {"container": NULL, "runtime": maybe(_runtime(profile)), "launcher": maybe(TEXT)}
    container = record(each(TEXT, "id sshIp sshPort"))
    pair = record(each(TEXT, "folderPath publicKeyFileName privateKeyFileName privateKeyDirectDownloadLink"))
    return {
        "JobSummary": record(profile.without("summary", _summary(profile)), optional=_OF_FAILURES),
        "JobSummaries": record({"totalCount": WHOLE, "data": listed(ref("JobSummary"))}),
        "JobDetail": record(profile.without("detail", _detail()), optional=_OF_SOME_JOBS),
        "JobStatus": record(profile.without("status", _status(profile)), optional=["cause"]),
        "TaskRole": _role(ref("TaskStatus")),
        "TaskStatus": record(profile.without("task", {**task, **run}), _SOMETIMES),
        "TaskDetail": record(
            {**place, **task, "attempts": listed(record(profile.without("task", run), _SOMETIMES))}
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
        **each(TEXT, "debugId name username virtualCluster cause"),
        **_common(profile),
        **each(WHOLE, "totalGpuNumber totalTaskNumber totalTaskRoleNumber userExitCode"),
        "completedTime": maybe(TIME),
        "appExitCode": maybe(WHOLE),
        "tags": listed(TEXT),
        "jobPriority": maybe(TEXT),
        "keptUntil": TIME,
    }


def _detail() -> Fields:
    dependency = record({**each(TEXT, "job state"), "when": one_of(*WHEN), "met": maybe(FLAG), "kept": FLAG})
    return {
        **each(TEXT, "debugId name"),
        "tags": listed(TEXT),
        "jobStatus": ref("JobStatus"),
        "taskRoles": by_name(ref("TaskRole")),
        "environment": by_name(TEXT),
        **each(listed(dependency), "after dependents"),
        "place": TEXT,
        "jobPriority": TEXT,
    }


def _status(profile: Profile) -> Fields:
    return {
        **each(TEXT, "name username appId appTrackingUrl virtualCluster cause"),
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
        "keptUntil": TIME,
        "cause": TEXT,
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


def _jobs(profile: Profile) -> Operations:
    rows: Schema = listed(ref("JobSummary"))
    if "withTotalCount" in profile.filters:
        rows = {"anyOf": [rows, ref("JobSummaries")]}
    odd: Errors = {400: (INVALID,), 500: (NO_CODE,)} if "limit" in profile.filters else {}
    refused: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: (NO_JOB,)}
    no_tag: Errors = {**refused, 404: (NO_JOB, "NoTagError")}
    tag = record({"value": {"type": "string", "pattern": "^[^,]+$"}})
    attempts = {200: listed(ref("JobAttempt")), 404: NULL}
    return {
        jobs.list_jobs: Operation(
            "the jobs of all users", {200: rows}, odd, dict.fromkeys(sorted(profile.filters), TEXT)
        ),
        jobs.submit: Operation("submit a job", {202: SUBMITTED}, REFUSED, text=YAML),
        jobs.get_job: Operation("a job with one of its attempts", {200: ref("JobDetail")}, GONE),
        jobs.get_config: Operation("a job's document without secrets", {200: YAML}, GONE),
        jobs.list_events: Operation(
            "the events of a job",
            {200: record({"totalCount": {"type": "integer"}, "data": listed(ref("Event"))})},
            GONE,
            {"type": TEXT},
        ),
        jobs.set_execution: Operation(
            "stop a job or start it again",
            {202: STATUS_MESSAGE},
            refused,
            body=record({"value": EXECUTION}),
        ),
        jobs.move: Operation(
            "put a waiting job before the others of its owner; only in the embedded cluster",
            {200: STATUS_MESSAGE},
            {**refused, 409: ("ConflictJobError",)},
            body=record({"value": one_of("first")}),
        ),
        jobs.add_tag: Operation("add a tag", {200: STATUS_MESSAGE}, refused, body=tag),
        jobs.remove_tag: Operation("remove a tag", {200: STATUS_MESSAGE}, no_tag, body=tag),
        jobs.attempts_health: Operation("whether attempts are kept", {200: PLAIN}, deprecated=True),
        jobs.list_job_attempts: Operation("the attempts of a job", attempts, deprecated=True),
        jobs.get_job_attempt: Operation(
            "one attempt of a job", {200: ref("JobAttempt")}, GONE, deprecated=True
        ),
        jobs.get_task: Operation("a task with all its attempts", {200: ref("TaskDetail")}, GONE),
    }


def _old_jobs() -> Operations:
    """Jobs at the paths of the oldest servers."""
    old: Errors = {400: (INVALID,), 403: (FORBIDDEN,), 404: ("NoVirtualClusterError",), 409: REFUSED[409]}
    either = {status: (*REFUSED[status], *old.get(status, ())) for status in REFUSED}
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
    used: Fields = {"time": TIME, "seconds": NUMBER, "values": by_name(listed(NUMBER))}
    ticket = ("username", "framework-name", "pod-uid", "taskrole", "token", "tail-mode")
    return {
        logs.list_logs: Operation(
            "where the logs of an attempt are",
            {200: ref("LogLocations")},
            {404: ("NoTaskLogError",), 500: ("UnknownError",)},
            {"tail-mode": TEXT, "tailMode": TEXT},
        ),
        usage.get_task_usage: Operation(
            "mean and maximum of what an attempt used over time; only in the embedded cluster",
            {200: record({"unrecorded": TEXT, "rows": listed(record(used))})},
            {400: (INVALID,), 404: (NO_JOB, "NoTaskLogError")},
            {"points": WHOLE},
        ),
        logs.read_printed_results: Operation(
            "the last JSON object that each of these ended jobs printed; only in the embedded cluster",
            {200: record({"jobs": listed(record({"name": TEXT, "completedTime": TIME, "line": TEXT}))})},
            {400: (INVALID,)},
            body=record({"jobs": listed(TEXT)}),
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
