"""The route table: method, path, who may call, and the handler. The first row that fits answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from openpai_tasks.protocol import routes
from openpai_tasks.server.web.handlers import attempts, authn, cluster, groups, jobs, logs, users
from openpai_tasks.server.web.router import ANY, Access, Route

OPEN, TOKEN, USER = Access.OPEN, Access.TOKEN, Access.USER
ADMIN, TOKEN_ADMIN = Access.ADMIN, Access.TOKEN_ADMIN

INFO = [
    Route("GET", routes.HEALTH, OPEN, authn.health),
    Route(ANY, routes.INFO, OPEN, authn.info),
    Route(ANY, routes.INFO_V1, OPEN, authn.info),
]
AUTHN = [
    Route("GET", routes.AUTHN_INFO, OPEN, authn.authn_info),
    Route("POST", routes.LOGIN, OPEN, authn.login),
    Route("DELETE", routes.LOGOUT, USER, authn.logout),
]
TOKENS = [
    Route("POST", routes.TOKENS, OPEN, authn.login),
    Route("GET", routes.TOKENS, USER, authn.list_tokens),
    Route("GET", routes.TOKEN_CHECK, TOKEN, authn.check_token),
    Route("POST", routes.TOKEN_APPLICATION, USER, authn.create_application_token),
    Route("DELETE", routes.TOKEN, USER, authn.revoke_token),
]
USERS = [
    Route("GET", routes.USERS, TOKEN, users.list_users),
    Route("POST", routes.USERS, ADMIN, users.create_user),
    Route("PUT", routes.USERS, ADMIN, users.update_user),
    Route("PUT", routes.USER_ME, USER, users.update_me),
    Route("GET", routes.USER, TOKEN, users.get_user),
    Route("DELETE", routes.USER, ADMIN, users.delete_user),
    Route("PUT", f"{routes.USER}/grouplist", ADMIN, users.set_groups),
    Route("PUT", f"{routes.USER}/group", ADMIN, users.add_group),
    Route("DELETE", f"{routes.USER}/group", ADMIN, users.drop_group),
    Route("PUT", f"{routes.USER}/virtualcluster", ADMIN, users.set_virtual_clusters),
    Route("PUT", f"{routes.USER}/admin", ADMIN, users.set_admin),
    Route("PUT", f"{routes.USER}/password", USER, users.set_password),
    Route("PUT", f"{routes.USER}/email", USER, users.set_email),
    Route("PUT", f"{routes.USER}/extension", USER, users.set_extension),
]
GROUPS = [
    Route("GET", routes.GROUPS, TOKEN, groups.list_groups),
    Route("POST", routes.GROUPS, ADMIN, groups.create_group),
    Route("PUT", routes.GROUPS, ADMIN, groups.update_group),
    Route("GET", routes.GROUP, TOKEN, groups.get_group),
    Route("DELETE", routes.GROUP, ADMIN, groups.delete_group),
    Route("GET", routes.GROUP_USERS, TOKEN_ADMIN, groups.list_members),
    Route("PUT", f"{routes.GROUP}/extension", ADMIN, groups.set_field),
    Route("PUT", f"{routes.GROUP}/description", ADMIN, groups.set_field),
    Route("PUT", f"{routes.GROUP}/externalname", ADMIN, groups.set_field),
    Route("PUT", f"{routes.GROUP}/extension/{{key}}", ADMIN, groups.set_extension_key),
    Route("PUT", f"{routes.GROUP}/extension/{{key}}/{{below}}", ADMIN, groups.set_extension_key),
    Route("PUT", f"{routes.GROUP}/extension/{{key}}/{{below}}/{{last}}", ADMIN, groups.set_extension_key),
]
CLUSTER = [
    Route("GET", routes.VIRTUAL_CLUSTERS, TOKEN, cluster.list_virtual_clusters),
    Route("GET", routes.VIRTUAL_CLUSTER, TOKEN, cluster.get_virtual_cluster),
    Route("GET", routes.VIRTUAL_CLUSTER_SKU_TYPES, TOKEN, cluster.list_sku_types),
    Route("PUT", routes.VIRTUAL_CLUSTER, ADMIN, cluster.change_virtual_cluster),
    Route("PUT", f"{routes.VIRTUAL_CLUSTER}/status", ADMIN, cluster.change_virtual_cluster),
    Route("DELETE", routes.VIRTUAL_CLUSTER, ADMIN, cluster.change_virtual_cluster),
    Route("GET", routes.VIRTUAL_CLUSTERS_V1, TOKEN, cluster.list_virtual_clusters),
    Route("GET", routes.VIRTUAL_CLUSTER_V1, TOKEN, cluster.get_virtual_cluster),
    Route("GET", routes.SKU_TYPES, TOKEN, cluster.list_sku_types),
    Route("GET", routes.STORAGES, TOKEN, cluster.list_storages),
    Route("GET", routes.STORAGE, TOKEN, cluster.get_storage),
    Route("GET", routes.STORAGE_CONFIGS, TOKEN, cluster.list_storage_configs),
    Route("GET", f"{routes.STORAGE_CONFIGS}/{{storage}}", TOKEN, cluster.list_storage_configs),
    Route("GET", routes.STORAGE_SERVERS, TOKEN, cluster.list_storage_servers),
    Route("GET", f"{routes.STORAGE_SERVERS}/{{storage}}", TOKEN, cluster.list_storage_servers),
]
KUBERNETES = [
    Route("GET", routes.NODES, TOKEN_ADMIN, cluster.list_nodes),
    Route("GET", routes.PODS, TOKEN_ADMIN, cluster.list_pods),
]
JOBS = [
    Route("GET", routes.JOBS, TOKEN, jobs.list_jobs),
    Route("POST", routes.JOBS, TOKEN, jobs.submit),
    Route("GET", routes.JOB, TOKEN, jobs.get_job),
    Route("GET", routes.JOB_ATTEMPT, TOKEN, jobs.get_job),
    Route("GET", routes.JOB_CONFIG, TOKEN, jobs.get_config),
    Route("PUT", routes.JOB_EXECUTION, TOKEN, jobs.set_execution),
    Route("GET", routes.JOB_SSH, TOKEN, jobs.get_ssh),
    Route("PUT", routes.JOB_TAG, TOKEN, jobs.add_tag),
    Route("DELETE", routes.JOB_TAG, TOKEN, jobs.remove_tag),
    Route("GET", routes.JOB_EVENTS, TOKEN, jobs.list_events),
    Route("GET", routes.TASK, TOKEN, attempts.get_task),
    Route("GET", routes.TASK_LOGS, TOKEN, logs.list_logs),
    Route("GET", routes.LOG_FILE, OPEN, logs.get_log),  # its ticket is in the query
    Route("GET", routes.JOB_ATTEMPTS_HEALTH, TOKEN, attempts.health),
    Route("GET", routes.JOB_ATTEMPTS_V1, TOKEN, attempts.list_job_attempts),
    Route("GET", routes.JOB_ATTEMPT_V1, TOKEN, attempts.get_job_attempt),
]


def _also(rows: Iterable[Route], path: str, other: str) -> list[Route]:
    """The same routes under another path as well."""
    return [replace(row, path=row.path.replace(path, other, 1)) for row in rows]


ROUTES = [
    *INFO,
    *AUTHN,
    *_also(AUTHN, "/api/v2/authn", "/api/v1/authn"),
    *TOKENS,
    *_also(TOKENS, routes.TOKENS, routes.LOGIN_V1),
    *USERS,
    *_also(USERS, routes.USERS, "/api/v2/user"),
    Route("GET", routes.USER_V1, TOKEN, users.get_user),
    *GROUPS,
    *_also(GROUPS, routes.GROUPS, "/api/v2/group"),
    *CLUSTER,
    *KUBERNETES,
    *_also(KUBERNETES, "/api/v2", "/api/v1"),
    *JOBS,
]
