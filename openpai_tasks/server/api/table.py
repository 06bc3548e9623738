"""The route table: method, path, access, handler, the servers that have it, and its rate limit.

The first matching row answers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Set
from dataclasses import replace

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback.web import ANY
from openpai_tasks.protocol import routes
from openpai_tasks.server.api import rates
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.profiles import EVERY, MIDDLE, NEWEST, OLDEST, UNION
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
from openpai_tasks.server.api.pools import DOCUMENTS, PASSWORDS, REMOVALS
from openpai_tasks.server.api.request import Reply, Request


class RouteAccess(enum.Enum):
    """Who may call a route."""

    OPEN = "anyone"
    TOKEN = "any valid token"
    USER = "a person's token"
    TOKEN_ADMIN = "any valid token of an admin"
    ADMIN = "a person's token of an admin"


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    access: RouteAccess
    handler: Callable[[Context, Request], Reply]
    profiles: Set[str]  # of the servers that have the route
    limit: str = ""  # the rate limit that counts its calls
    pool: str = ""  # of threads, for a handler that is slow


OPEN, TOKEN, USER = RouteAccess.OPEN, RouteAccess.TOKEN, RouteAccess.USER
ADMIN, TOKEN_ADMIN = RouteAccess.ADMIN, RouteAccess.TOKEN_ADMIN

V14, V18, BOTH_OLD = {OLDEST}, {MIDDLE}, {OLDEST, MIDDLE}
SINCE_18 = EVERY - V14
SINCE_1_8 = {NEWEST, UNION}
ONLY_UNION = {UNION}

INFO = [
    Route("GET", routes.HEALTH, OPEN, authn.health, EVERY),
    Route("GET", routes.OPENAPI, OPEN, authn.get_description, EVERY),
    Route(ANY, routes.INFO, OPEN, authn.info, SINCE_18),
    Route(ANY, routes.INFO_V1, OPEN, authn.info, SINCE_18),
    Route(ANY, routes.INFO_V1, OPEN, authn.greeting, V14),
    Route(ANY, routes.ROOT, OPEN, authn.greeting, V14),
]
AUTHN = [
    Route("GET", routes.AUTHN_INFO, OPEN, authn.authn_info, EVERY),
    Route("POST", routes.LOGIN, OPEN, authn.login, EVERY, pool=PASSWORDS),
    Route("DELETE", routes.LOGOUT, USER, authn.logout, SINCE_18),
]
TOKENS = [
    Route("POST", routes.TOKENS, OPEN, authn.login, EVERY, pool=PASSWORDS),
    Route("GET", routes.TOKENS, USER, authn.list_tokens, SINCE_18),
    Route("GET", routes.TOKEN_CHECK, TOKEN, authn.check_token, SINCE_1_8),
    Route("POST", routes.TOKEN_APPLICATION, USER, authn.create_application_token, SINCE_18),
    Route("DELETE", routes.TOKEN, USER, authn.revoke_token, SINCE_18),
]
USERS = [
    Route("GET", routes.USERS, TOKEN, users.list_users, EVERY),
    Route("POST", routes.USERS, ADMIN, users.create_user, EVERY, pool=PASSWORDS),
    Route("PUT", routes.USERS, ADMIN, users.update_user, SINCE_18, pool=PASSWORDS),
    Route("PUT", routes.USER_ME, USER, users.update_me, SINCE_18, pool=PASSWORDS),
    Route("GET", routes.USER, TOKEN, users.get_user, EVERY),
    Route("DELETE", routes.USER, ADMIN, users.delete_user, EVERY),
    Route("PUT", f"{routes.USER}/grouplist", ADMIN, users.set_groups, EVERY),
    Route("PUT", f"{routes.USER}/group", ADMIN, users.add_group, EVERY),
    Route("DELETE", f"{routes.USER}/group", ADMIN, users.drop_group, EVERY),
    Route("PUT", f"{routes.USER}/virtualcluster", ADMIN, users.set_virtual_clusters, EVERY),
    Route("PUT", f"{routes.USER}/admin", ADMIN, users.set_admin, EVERY),
    Route("PUT", f"{routes.USER}/password", USER, users.set_password, EVERY, pool=PASSWORDS),
    Route("PUT", f"{routes.USER}/email", USER, users.set_email, EVERY),
    Route("PUT", f"{routes.USER}/extension", USER, users.set_extension, EVERY),
]
GROUPS = [
    Route("GET", routes.GROUPS, TOKEN, groups.list_groups, EVERY),
    Route("POST", routes.GROUPS, ADMIN, groups.create_group, EVERY),
    Route("PUT", routes.GROUPS, ADMIN, groups.update_group, SINCE_18),
    Route("GET", routes.GROUP, TOKEN, groups.get_group, EVERY),
    Route("DELETE", routes.GROUP, ADMIN, groups.delete_group, EVERY),
    Route("GET", routes.GROUP_USERS, TOKEN_ADMIN, groups.list_members, EVERY),
    Route("PUT", f"{routes.GROUP}/extension", ADMIN, groups.set_field, EVERY),
    Route("PUT", f"{routes.GROUP}/description", ADMIN, groups.set_field, EVERY),
    Route("PUT", f"{routes.GROUP}/externalname", ADMIN, groups.set_field, EVERY),
    *(
        Route("PUT", f"{routes.GROUP}/extension/{keys}", ADMIN, groups.set_extension_key, SINCE_18)
        for keys in ("{key}", "{key}/{below}", "{key}/{below}/{last}")
    ),
]
CLUSTER = [
    Route("GET", routes.VIRTUAL_CLUSTERS, TOKEN, cluster.list_virtual_clusters, SINCE_18),
    Route("GET", routes.VIRTUAL_CLUSTER, TOKEN, cluster.get_virtual_cluster, SINCE_18),
    Route("GET", routes.VIRTUAL_CLUSTER_SKU_TYPES, TOKEN, cluster.list_sku_types, ONLY_UNION),
    Route("PUT", routes.VIRTUAL_CLUSTER, ADMIN, cluster.change_virtual_cluster, SINCE_18),
    Route("PUT", f"{routes.VIRTUAL_CLUSTER}/status", ADMIN, cluster.change_virtual_cluster, SINCE_18),
    Route("DELETE", routes.VIRTUAL_CLUSTER, ADMIN, cluster.change_virtual_cluster, SINCE_18),
    Route("GET", routes.VIRTUAL_CLUSTERS_V1, OPEN, cluster.list_virtual_clusters, BOTH_OLD),
    Route("GET", routes.VIRTUAL_CLUSTER_V1, OPEN, cluster.get_virtual_cluster, BOTH_OLD),
    Route("PUT", routes.VIRTUAL_CLUSTER_V1, ADMIN, cluster.change_virtual_cluster, V14),
    Route("PUT", f"{routes.VIRTUAL_CLUSTER_V1}/status", ADMIN, cluster.change_virtual_cluster, V14),
    Route("DELETE", routes.VIRTUAL_CLUSTER_V1, ADMIN, cluster.change_virtual_cluster, V14),
    Route("GET", routes.VIRTUAL_CLUSTERS_V1, TOKEN, cluster.list_virtual_clusters, ONLY_UNION),
    Route("GET", routes.VIRTUAL_CLUSTER_V1, TOKEN, cluster.get_virtual_cluster, ONLY_UNION),
    Route("POST", routes.CLEAN_JOBS, ADMIN, cluster.clean_jobs, EVERY),
    Route("POST", routes.CLEAN_ORPHANS, ADMIN, cluster.clean_orphans, EVERY),
    Route("GET", routes.CLUSTER_USAGE, TOKEN, usage.get_cluster_usage, EVERY),
    Route("GET", routes.USAGE_REPORT, TOKEN, usage.get_report, EVERY, rates.LIST),
    Route("GET", routes.SKU_TYPES, TOKEN, cluster.list_sku_types, SINCE_18),
    Route("GET", routes.STORAGES, TOKEN, cluster.list_storages, SINCE_18),
    Route("GET", routes.STORAGE, TOKEN, cluster.get_storage, SINCE_18),
    Route("GET", routes.STORAGE_CONFIGS, TOKEN, cluster.list_storage_configs, SINCE_18),
    Route("GET", f"{routes.STORAGE_CONFIGS}/{{storage}}", TOKEN, cluster.list_storage_configs, SINCE_18),
    Route("GET", routes.STORAGE_SERVERS, TOKEN, cluster.list_storage_servers, SINCE_18),
    Route("GET", f"{routes.STORAGE_SERVERS}/{{storage}}", TOKEN, cluster.list_storage_servers, SINCE_18),
]
KUBERNETES = [
    Route("GET", routes.NODES, TOKEN_ADMIN, cluster.list_nodes, SINCE_18),
    Route("GET", routes.PODS, TOKEN_ADMIN, cluster.list_pods, SINCE_18),
]
JOBS = [
    Route("GET", routes.JOBS, TOKEN, jobs.list_jobs, SINCE_18, rates.LIST),
    Route("POST", routes.JOBS, TOKEN, jobs.submit, EVERY, rates.SUBMIT, pool=DOCUMENTS),
    Route("GET", routes.JOB, TOKEN, jobs.get_job, SINCE_18),
    Route("GET", routes.JOB_CONFIG, OPEN, jobs_v1.get_document, V14, pool=DOCUMENTS),
    Route("GET", routes.JOB_CONFIG, TOKEN, jobs.get_config, SINCE_18, pool=DOCUMENTS),
    Route("PUT", routes.JOB_EXECUTION, TOKEN, jobs.set_execution, SINCE_18),
    Route("GET", routes.JOB_SSH, TOKEN, ssh.refuse_ssh, SINCE_18),
    Route("GET", routes.JOB_ATTEMPTS_HEALTH, TOKEN, jobs.attempts_health, SINCE_18),
    Route("GET", routes.JOB_ATTEMPTS_V1, TOKEN, jobs.list_job_attempts, SINCE_18),
    Route("GET", routes.JOB_ATTEMPT_V1, TOKEN, jobs.get_job_attempt, SINCE_18),
    Route("GET", routes.JOB_ATTEMPT, TOKEN, jobs.get_job, SINCE_1_8),
    Route("PUT", routes.JOB_TAG, TOKEN, jobs.add_tag, SINCE_1_8),
    Route("DELETE", routes.JOB_TAG, TOKEN, jobs.remove_tag, SINCE_1_8),
    Route("GET", routes.JOB_EVENTS, TOKEN, jobs.list_events, SINCE_1_8),
    Route("GET", routes.TASK, TOKEN, jobs.get_task, SINCE_1_8),
    Route("GET", routes.TASK_LOGS, TOKEN, logs.list_logs, SINCE_1_8),
    Route("PUT", routes.JOB_PLACE, TOKEN, jobs.move, ONLY_UNION),
    Route("GET", routes.TASK_USAGE, TOKEN, usage.get_task_usage, ONLY_UNION),
    Route("POST", routes.PRINTED_RESULTS, TOKEN, logs.read_printed_results, ONLY_UNION),
]
JOBS_V1 = [
    Route("GET", routes.JOBS_V1, OPEN, jobs.list_jobs, V14, rates.LIST),
    Route("POST", routes.JOBS_V1, TOKEN, jobs_v1.submit_either, ONLY_UNION, rates.SUBMIT, pool=DOCUMENTS),
    Route("POST", routes.JOBS_V1, TOKEN, jobs_v1.submit, V14, rates.SUBMIT, pool=DOCUMENTS),
    Route("GET", routes.JOB_V1, OPEN, jobs.get_job, V14),
    Route("PUT", routes.JOB_V1, TOKEN, jobs_v1.submit, V14, rates.SUBMIT, pool=DOCUMENTS),
    Route("DELETE", routes.JOB_V1, TOKEN, jobs_v1.remove, V14, pool=REMOVALS),
    Route("PUT", f"{routes.JOB_V1}/executionType", TOKEN, jobs.set_execution, V14),
    Route("GET", f"{routes.JOB_V1}/config", OPEN, jobs_v1.get_config, V14, pool=DOCUMENTS),
    Route("GET", f"{routes.JOB_V1}/ssh", OPEN, ssh.get_ssh, V14),
]
KEYS = [
    # Needs the ticket of a link, or a token.
    Route("GET", routes.SSH_KEY, OPEN, ssh.get_key, V14 | ONLY_UNION),
]
LOGS = [
    Route("GET", routes.LOG_FILE, OPEN, logs.get_log, SINCE_1_8),  # its ticket is in the query
    Route("GET", routes.POD_LOGS_TAIL, OPEN, node_logs.list_pod_logs, V18),
    Route("GET", f"{routes.POD_LOGS_TAIL}/{{file}}", OPEN, node_logs.get_pod_log_tail, V18),
    Route("GET", routes.POD_LOGS_FULL, OPEN, node_logs.list_pod_logs, V18),
    Route("GET", f"{routes.POD_LOGS_FULL}/{{file}}", OPEN, node_logs.get_pod_log, V18),
    Route("GET", routes.POD_LOGS, OPEN, node_logs.list_pod_logs, V18),
    Route("GET", f"{routes.POD_LOGS}/{{file}}", OPEN, node_logs.get_pod_log, V18),
    Route("GET", routes.CONTAINER_LOGS, OPEN, node_logs.list_container_logs, V14),
    Route("GET", routes.CONTAINER_LOG, OPEN, node_logs.show_container_log, V14),
]


def _with_path(rows: Iterable[Route], path: str, other: str) -> list[Route]:
    """Return the same routes under another path."""
    return [replace(row, path=row.path.replace(path, other, 1)) for row in rows]


def _for_profiles(rows: Iterable[Route], profiles: Set[str]) -> list[Route]:
    """Return the same routes for fewer servers."""
    return [replace(row, profiles=row.profiles & profiles) for row in rows]


def _with_token(rows: Iterable[Route]) -> list[Route]:
    """Return the routes that the oldest servers leave open; in the union they need a token."""
    return [
        replace(row, access=TOKEN if row.access is OPEN else row.access, profiles=ONLY_UNION) for row in rows
    ]


OLD_JOBS = [*JOBS_V1, *_with_token(JOBS_V1)]
USER_JOBS = _with_path(OLD_JOBS, routes.JOBS_V1, routes.USER_JOBS_V1)
REWRITTEN = _with_path(_for_profiles(JOBS, V18), routes.JOBS, routes.JOBS_V1)

ROUTES = [
    *INFO,
    *_for_profiles(AUTHN, SINCE_18),
    *_with_path(AUTHN, "/api/v2/authn", "/api/v1/authn"),
    *_for_profiles(TOKENS, SINCE_18),
    *_with_path(TOKENS, routes.TOKENS, routes.LOGIN_V1),
    *_for_profiles(USERS, SINCE_18),
    *_with_path(USERS, routes.USERS, "/api/v2/user"),
    Route("GET", routes.USER_V1, TOKEN, users.get_user, EVERY),
    *_for_profiles(GROUPS, SINCE_18),
    *_with_path(GROUPS, routes.GROUPS, "/api/v2/group"),
    *CLUSTER,
    *KUBERNETES,
    *_with_path(KUBERNETES, "/api/v2", "/api/v1"),
    *JOBS,
    *OLD_JOBS,
    *USER_JOBS,
    *_for_profiles(_with_path(USER_JOBS, "/api/v1", "/api/v2"), V14),
    *REWRITTEN,
    # The server redirects this path to the list of all users' jobs.
    Route("GET", "/api/v1/user/{whoever}/jobs", TOKEN, jobs.list_jobs, V18, rates.LIST),
    *_with_path(REWRITTEN, routes.JOBS_V1, routes.USER_JOBS_V1),
    *KEYS,
    *LOGS,
]


def rows(profile: str) -> list[Route]:
    """Return the routes of servers with this profile."""
    return [row for row in ROUTES if profile in row.profiles]


def is_api(path: str) -> bool:
    """Whether the path belongs to the REST server, not to another service behind the cluster's proxy."""
    return path.lower().startswith("/api")
