"""Description of the calls about the cluster itself, logins, tokens, users and groups."""

from __future__ import annotations

from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.api.handlers import authn, groups, users
from openpai_tasks.server.api.openapi.schema import (
    FLAG,
    FORBIDDEN,
    HTML,
    INVALID,
    MESSAGE,
    OBJECT,
    PLAIN,
    TEXT,
    WHOLE,
    Errors,
    Fields,
    Operation,
    Operations,
    Schema,
    each,
    listed,
    one_of,
    record,
    ref,
)

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


def schemas(profile: Profile) -> dict[str, Schema]:
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


def operations(profile: Profile) -> Operations:
    return {**_authn(), **_users(), **_groups()}


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
            "set what lies at a path in a group's extension",
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
