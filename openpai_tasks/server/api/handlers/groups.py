"""Groups, which any token can read and admins can change."""

from __future__ import annotations

import dataclasses
from typing import Any

from openpai_tasks.server import api_errors, fields
from openpai_tasks.server.accounts.groups import Group
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request

FIELDS = ("groupname", "description", "externalName", "extension")


def list_groups(context: Context, request: Request) -> Reply:
    return 200, [_group(group) for group in context.accounts.groups.all().values()]


def get_group(context: Context, request: Request) -> Reply:
    return 200, _group(context.accounts.groups.existing_group(request.params["group"], 400))


def list_members(context: Context, request: Request) -> Reply:
    group = context.accounts.groups.existing_group(request.params["group"], 400)
    members = context.accounts.members(group.name)
    return 200, [{"username": user.name, "clusterAdmin": user.admin} for user in members]


def create_group(context: Context, request: Request) -> Reply:
    body = fields.mapping(request.body, FIELDS)
    context.accounts.groups.create(_with_changes(Group(fields.group_name(body), "", "", {}), body))
    return 201, {"message": "group is created successfully"}


def update_group(context: Context, request: Request) -> Reply:
    """Change a group by ``{data, patch}``; a bare group, as the JavaScript SDK sends it, is a patch."""
    bare = isinstance(request.body, dict) and "groupname" in request.body
    body = {"data": request.body, "patch": True} if bare else request.body
    body = fields.mapping(body, ("data", "patch"))
    data = fields.mapping(fields.required(body, "data"), FIELDS)
    group = context.accounts.groups.existing_group(fields.group_name(data))
    if not ("patch" in body and fields.flag(body, "patch")):
        group = Group(group.name, "", "", {})
    return _save(context, _with_changes(group, data))


def delete_group(context: Context, request: Request) -> Reply:
    context.accounts.remove_group(request.params["group"])
    return 200, {"message": "group is removed successfully"}


def set_field(context: Context, request: Request) -> Reply:
    """Set ``extension``, ``description`` or ``externalName``, whichever the body contains."""
    group = context.accounts.groups.existing_group(request.params["group"])
    body = fields.mapping(request.body, FIELDS[1:])
    if len(body) != 1:
        raise api_errors.invalid("exactly one field is expected")
    return _save(context, _with_changes(group, body))


def set_extension_key(context: Context, request: Request) -> Reply:
    """Set the value at a path of keys inside the extension."""
    group = context.accounts.groups.existing_group(request.params["group"])
    data = fields.required(fields.mapping(request.body, ("data",)), "data")
    keys = [request.params[name] for name in ("key", "below", "last") if name in request.params]
    extension = _with_value(group.extension, keys, data)
    return _save(context, dataclasses.replace(group, extension=extension))


def _with_value(tree: Any, keys: list[str], value: Any) -> dict[str, Any]:
    """Return a copy of the tree with the value at the path of keys."""
    copy = dict(tree) if isinstance(tree, dict) else {}
    first, *rest = keys
    copy[first] = _with_value(copy.get(first), rest, value) if rest else value
    return copy


def _group(group: Group) -> dict[str, Any]:
    return {
        "groupname": group.name,
        "description": group.description,
        "externalName": group.external_name,
        "extension": group.extension,
    }


def _with_changes(group: Group, body: dict[str, Any]) -> Group:
    changes: dict[str, Any] = {}
    if "description" in body:
        changes["description"] = fields.text(body, "description")
    if "externalName" in body:
        changes["external_name"] = fields.text(body, "externalName")
    if "extension" in body:
        changes["extension"] = fields.extension(body)
    return dataclasses.replace(group, **changes)


def _save(context: Context, group: Group) -> Reply:
    context.accounts.groups.change(group)
    return 201, {"message": f"update group {group.name} successfully."}
