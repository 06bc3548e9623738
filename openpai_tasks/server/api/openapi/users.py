"""Description of users and groups."""

from __future__ import annotations

from openpai_tasks.server.api.handlers import groups, users
from openpai_tasks.server.api.openapi.shapes import (
    FLAG,
    MESSAGE,
    OBJECT,
    TEXT,
    BodyShape,
    Operation,
    Operations,
    Schema,
    listed,
    record,
    ref,
)
from openpai_tasks.server.api.shapes.profiles import Profile

INVALID = "InvalidParametersError"
PASSWORD: Schema = {"type": "string", "minLength": 6}
USER_FIELDS: dict[str, Schema] = {
    "username": {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"},
    "password": PASSWORD,
    "email": TEXT,
    "virtualCluster": listed(TEXT),
    "admin": FLAG,
    "extension": OBJECT,
}
SELF_FIELDS: dict[str, Schema] = {
    "username": TEXT,
    "email": TEXT,
    "oldPassword": TEXT,
    "newPassword": PASSWORD,
    "extension": OBJECT,
}
GROUP_FIELDS: dict[str, Schema] = {
    "groupname": {"type": "string", "pattern": "^[A-Za-z0-9_]+$"},
    "description": TEXT,
    "externalName": TEXT,
    "extension": OBJECT,
}


def schemas(profile: Profile) -> dict[str, Schema]:
    user: dict[str, Schema] = {
        "username": TEXT,
        "grouplist": listed(TEXT),
        "email": TEXT,
        "extension": OBJECT,
        "admin": FLAG,
        "virtualCluster": listed(TEXT),
        "storageConfig": listed(TEXT),
    }
    return {
        "User": record(profile.without("user", user)),
        "Group": record(GROUP_FIELDS),
        "GroupMember": record({"username": TEXT, "clusterAdmin": FLAG}),
    }


def operations(profile: Profile) -> Operations:
    return {**_users(), **_groups()}


def _users() -> Operations:
    optional = [name for name in USER_FIELDS if name not in ("username", "password")]
    no_cluster = (INVALID, "NoVirtualClusterError")
    update = _patch(USER_FIELDS)
    self_update = _patch(SELF_FIELDS)
    changed: dict[int, tuple[str, ...]] = {
        400: no_cluster,
        403: ("ForbiddenUserError",),
        404: ("NoUserError",),
    }
    made: dict[int, tuple[str, ...]] = {400: no_cluster, 404: ("NoGroupError",), 409: ("ConflictUserError",)}
    removed: dict[int, tuple[str, ...]] = {403: ("RemoveAdminError",), 404: ("NoUserError",)}
    return {
        users.list_users: Operation("all users", {200: listed(ref("User"))}),
        users.get_user: Operation("one user", {200: ref("User")}, {400: ("NoUserError",)}),
        users.create_user: Operation(
            "create a user", {201: MESSAGE}, made, body=BodyShape(record(USER_FIELDS, optional))
        ),
        users.update_user: Operation("change a user", {201: MESSAGE}, changed, body=BodyShape(update)),
        users.update_me: Operation("change oneself", {201: MESSAGE}, changed, body=BodyShape(self_update)),
        users.delete_user: Operation("remove a user", {200: MESSAGE}, removed),
        users.set_groups: _field("set a user's groups", "grouplist", listed(TEXT)),
        users.add_group: _field("add a user to a group", "groupname", GROUP_FIELDS["groupname"]),
        users.drop_group: _field("remove a user from a group", "groupname", GROUP_FIELDS["groupname"]),
        users.set_virtual_clusters: _field("set a user's virtual clusters", "virtualCluster", listed(TEXT)),
        users.set_admin: _field("make a user an admin, or not", "admin", FLAG),
        users.set_email: _field("set a user's address", "email", TEXT),
        users.set_extension: _field("add to a user's extension", "extension", OBJECT),
        users.set_password: Operation(
            "set a user's password",
            {201: MESSAGE},
            changed,
            body=BodyShape(record({"oldPassword": TEXT, "newPassword": PASSWORD}, ["oldPassword"])),
        ),
    }


def _groups() -> Operations:
    optional = [name for name in GROUP_FIELDS if name != "groupname"]
    fields = record(GROUP_FIELDS, optional)
    none: dict[int, tuple[str, ...]] = {400: ("NoGroupError",)}
    changed: dict[int, tuple[str, ...]] = {400: (INVALID,), 404: ("NoGroupError",)}
    made: dict[int, tuple[str, ...]] = {400: (INVALID,), 409: ("ConflictGroupError",)}
    removed: dict[int, tuple[str, ...]] = {403: ("ForbiddenUserError",), 404: ("NoGroupError",)}
    one_field = {key: value for key, value in GROUP_FIELDS.items() if key != "groupname"}
    bare_or_patch: Schema = {"anyOf": [_patch(GROUP_FIELDS), fields]}
    return {
        groups.list_groups: Operation("all groups", {200: listed(ref("Group"))}),
        groups.get_group: Operation("one group", {200: ref("Group")}, none),
        groups.list_members: Operation("the users in a group", {200: listed(ref("GroupMember"))}, none),
        groups.create_group: Operation("create a group", {201: MESSAGE}, made, body=BodyShape(fields)),
        groups.update_group: Operation(
            "change a group", {201: MESSAGE}, changed, body=BodyShape(bare_or_patch)
        ),
        groups.delete_group: Operation("remove a group", {200: MESSAGE}, removed),
        groups.set_field: Operation(
            "set one field of a group", {201: MESSAGE}, changed, body=BodyShape(record(one_field, one_field))
        ),
        groups.set_extension_key: Operation(
            "set what lies at a path in a group's extension",
            {201: MESSAGE},
            changed,
            body=BodyShape(record({"data": {}})),
        ),
    }


def _patch(fields: dict[str, Schema]) -> Schema:
    """Return a schema for ``data`` with some of the fields, or with all if ``patch`` is not set."""
    data = record(fields, [name for name in fields if not name.endswith("name")])
    return record({"data": data, "patch": FLAG}, ["patch"])


def _field(summary: str, name: str, schema: Schema) -> Operation:
    """Return the operation of a call that changes one field of a user."""
    errors: dict[int, tuple[str, ...]] = {
        400: (INVALID, "NoVirtualClusterError"),
        403: ("ForbiddenUserError",),
        404: ("NoUserError", "NoGroupError"),
    }
    return Operation(summary, {201: MESSAGE}, errors, body=BodyShape(record({name: schema})))
