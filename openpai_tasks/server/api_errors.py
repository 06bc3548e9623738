"""The errors of the REST API, with OpenPAI's status, code and message."""

from __future__ import annotations

from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound


def invalid(message: str) -> ApiError:
    return ApiError(message, 400, "InvalidParametersError")


def invalid_protocol(message: str) -> ApiError:
    return ApiError(message, 400, "InvalidProtocolError")


def guest() -> Denied:
    return Denied("Guest is not allowed to do this operation.", 401, "UnauthorizedUserError")


def bad_token() -> Denied:
    return Denied("Your token is invalid.", 401, "UnauthorizedUserError")


def forbidden(message: str) -> Denied:
    return Denied(message, 403, "ForbiddenUserError")


def non_admin() -> Denied:
    return forbidden("Non-admin is not allow to do this operation.")


def application() -> Denied:
    return forbidden("Applications are not allowed to do this operation.")


def remove_admin(user: str) -> Denied:
    return Denied(f"Admin {user} is not allowed to remove.", 403, "RemoveAdminError")


def no_api(path: str) -> NotFound:
    return NotFound(f"API {path} is not found.", 404, "NoApiError")


def no_user(user: str, status: int = 404) -> ApiError:
    return ApiError(f"User {user} is not found.", status, "NoUserError")


def wrong_password() -> ApiError:
    return ApiError("Password is incorrect.", 400, "IncorrectPasswordError")


def user_exists(user: str) -> Conflict:
    return Conflict(f"User name {user} already exists.", 409, "ConflictUserError")


def no_group(group: str, status: int = 404) -> ApiError:
    return ApiError(f"Group {group} is not found.", status, "NoGroupError")


def group_exists(group: str) -> Conflict:
    return Conflict(f"Group name {group} already exists.", 409, "ConflictGroupError")


def no_virtual_cluster(name: str, status: int = 404) -> ApiError:
    return ApiError(f"Vc {name} not found", status, "NoVirtualClusterError")


def no_storage(name: str) -> NotFound:
    return NotFound(f"Storage {name} is not found.", 404, "NoStorageError")


def no_job(key: str) -> NotFound:
    return NotFound(f"Job {key} is not found.", 404, "NoJobError")


def no_config(key: str) -> NotFound:
    return NotFound(f"Config of job {key} is not found.", 404, "NoJobConfigError")


def job_exists(name: str) -> Conflict:
    return Conflict(f"Job name {name} already exists.", 409, "ConflictJobError")


def no_tag(tag: str, key: str) -> NotFound:
    return NotFound(f"Tag {tag} is not found for job {key}.", 404, "NoTagError")


def no_ssh(key: str) -> NotFound:
    return NotFound(f"SSH info of job {key} is not found.", 404, "NoJobSshInfoError")


def no_log() -> NotFound:
    return NotFound("Log of task is not found.", 404, "NoTaskLogError")


def not_implemented(what: str) -> ApiError:
    return ApiError(f"{what} is not implemented.", 400, "NotImplementedError")


def unknown(message: str) -> ApiError:
    return ApiError(message, 500, "UnknownError")
