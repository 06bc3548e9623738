"""Users, which any token can read, and admins or, in part, the users themselves can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.server import api_errors, fields
from openpai_tasks.server.accounts.groups import ADMIN_GROUP
from openpai_tasks.server.accounts.users import User
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request

CREATE = ("username", "password", "email", "virtualCluster", "admin", "extension")
UPDATE_SELF = ("username", "email", "oldPassword", "newPassword", "extension")


def list_users(context: Context, request: Request) -> Reply:
    return 200, [_user(context, user) for user in context.accounts.users()]


def get_user(context: Context, request: Request) -> Reply:
    return 200, _user(context, context.accounts.existing_user(request.params["user"], 400))


def create_user(context: Context, request: Request) -> Reply:
    body = fields.mapping(request.body, CREATE)
    name, password = fields.user_name(body), fields.password(body)
    given = _read_fields(body)
    groups = given.get("virtualCluster", ())
    context.accounts.check_virtual_clusters(groups)
    groups += (ADMIN_GROUP,) if given.get("admin") else ()
    context.accounts.create(name, password, given.get("email", ""), groups, given.get("extension", {}))
    return 201, {"message": "User is created successfully"}


def update_user(context: Context, request: Request) -> Reply:
    """Replace all fields of a user or, with ``patch``, some of them."""
    data, patch = _patch_of(request, CREATE)
    name = fields.user_name(data)
    changes = {key: value for key, value in data.items() if key != "username"}
    if not patch:
        for key in CREATE:
            fields.required(data, key)
    context.accounts.existing_user(name)
    _apply(context, request, name, changes, patch)
    return _update_reply(name)


def update_me(context: Context, request: Request) -> Reply:
    data, patch = _patch_of(request, UPDATE_SELF)
    name = fields.user_name(data)
    if name != request.caller.user:
        raise api_errors.forbidden("Users can change only their own profile.")
    context.accounts.existing_user(name)
    if "newPassword" in data:
        password = fields.password(data, "newPassword")
        _check_old_password(context, request, name, data)
    _apply(context, request, name, {key: data[key] for key in ("email", "extension") if key in data}, patch)
    if "newPassword" in data:
        context.set_password(name, password, request.caller)
    return _update_reply(name)


def delete_user(context: Context, request: Request) -> Reply:
    context.accounts.remove(request.params["user"])
    return 200, {"message": "user is removed successfully"}


def set_groups(context: Context, request: Request) -> Reply:
    body = fields.mapping(request.body, ("grouplist",))
    context.accounts.existing_user(request.params["user"])
    context.accounts.set_groups(request.params["user"], fields.names(body, "grouplist"))
    return 201, {"message": "update user grouplist successfully."}


def add_group(context: Context, request: Request) -> Reply:
    user, group = _membership(context, request)
    context.accounts.add_group(user, group)
    return 201, {"message": f"User {user} is added into group {group}"}


def drop_group(context: Context, request: Request) -> Reply:
    user, group = _membership(context, request)
    context.accounts.drop_group(user, group)
    return 201, {"message": f"User {user} is removed from group {group}"}


def set_virtual_clusters(context: Context, request: Request) -> Reply:
    return _set_one(context, request, "virtualCluster")


def set_admin(context: Context, request: Request) -> Reply:
    return _set_one(context, request, "admin")


def set_email(context: Context, request: Request) -> Reply:
    _self_or_admin(request)
    return _set_one(context, request, "email")


def set_extension(context: Context, request: Request) -> Reply:
    _self_or_admin(request)
    return _set_one(context, request, "extension")


def set_password(context: Context, request: Request) -> Reply:
    _self_or_admin(request)
    body = fields.mapping(request.body, ("oldPassword", "newPassword"))
    password, name = fields.password(body, "newPassword"), request.params["user"]
    context.accounts.existing_user(name)
    if not request.caller.admin:
        _check_old_password(context, request, name, body)
    context.set_password(name, password, request.caller)
    return 201, {"message": "update user password successfully."}


def _user(context: Context, user: User) -> dict[str, Any]:
    body = {
        "username": user.name,
        "grouplist": list(user.grouplist),
        "email": user.email,
        "extension": user.extension,
        "admin": user.admin,
        "virtualCluster": list(user.virtual_clusters),
        "storageConfig": list(user.storages),
    }
    return context.profile.without("user", body)


def _patch_of(request: Request, allowed: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
    body = fields.mapping(request.body, ("data", "patch"))
    patch = "patch" in body and fields.flag(body, "patch")
    return fields.mapping(fields.required(body, "data"), allowed), patch


def _membership(context: Context, request: Request) -> tuple[str, str]:
    body = fields.mapping(request.body, ("groupname",))
    return context.accounts.existing_user(request.params["user"]).name, fields.group_name(body)


def _self_or_admin(request: Request) -> None:
    if request.caller.user != request.params["user"] and not request.caller.admin:
        raise api_errors.forbidden("Users can change only their own profile.")


def _check_old_password(context: Context, request: Request, name: str, body: dict[str, Any]) -> None:
    if not context.check_password(request.process, name, fields.text(body, "oldPassword")):
        raise api_errors.forbidden("The old password is incorrect.")


def _set_one(context: Context, request: Request, field: str) -> Reply:
    body = fields.mapping(request.body, (field,))
    fields.required(body, field)
    context.accounts.existing_user(request.params["user"])
    _apply(context, request, request.params["user"], body, patch=True)
    return _update_reply(request.params["user"])


def _read_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the valid values of the fields that the body has."""
    readers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "email": fields.email,
        "virtualCluster": lambda body: fields.names(body, "virtualCluster"),
        "admin": lambda body: fields.flag(body, "admin"),
        "extension": fields.extension,
        "password": fields.password,
    }
    return {name: read(body) for name, read in readers.items() if name in body}


def _apply(context: Context, request: Request, name: str, changes: dict[str, Any], patch: bool) -> None:
    """Validate all changes, then apply them."""
    accounts, given = context.accounts, _read_fields(changes)
    accounts.check_virtual_clusters(given.get("virtualCluster", ()))
    setters: dict[str, Callable[[str, Any], None]] = {
        "email": accounts.set_email,
        "virtualCluster": accounts.set_virtual_clusters,
        "admin": accounts.set_admin,
        "extension": lambda name, value: accounts.set_extension(name, value, merge=patch),
        "password": lambda name, value: context.set_password(name, value, request.caller),
    }
    for field, value in given.items():
        setters[field](name, value)


def _update_reply(name: str) -> Reply:
    return 201, {"message": f"update user {name} successfully."}
