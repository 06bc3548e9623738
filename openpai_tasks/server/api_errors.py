"""Errors that several calls of the REST API have, with OpenPAI's status, code and message."""

from __future__ import annotations

from openpai_tasks.errors import ApiError, Denied, NotFound


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


def no_user(user: str, status: int = 404) -> ApiError:
    return ApiError(f"User {user} is not found.", status, "NoUserError")


def no_group(group: str, status: int = 404) -> ApiError:
    return ApiError(f"Group {group} is not found.", status, "NoGroupError")


def no_virtual_cluster(name: str, status: int = 404) -> ApiError:
    return ApiError(f"Vc {name} not found", status, "NoVirtualClusterError")


def no_storage(name: str) -> NotFound:
    return NotFound(f"Storage {name} is not found.", 404, "NoStorageError")


def no_job(key: str) -> NotFound:
    return NotFound(f"Job {key} is not found.", 404, "NoJobError")


def no_ssh(key: str) -> NotFound:
    return NotFound(f"SSH info of job {key} is not found.", 404, "NoJobSshInfoError")


def no_log() -> NotFound:
    return NotFound("Log of task is not found.", 404, "NoTaskLogError")


def unknown(message: str) -> ApiError:
    return ApiError(message, 500, "UnknownError")
