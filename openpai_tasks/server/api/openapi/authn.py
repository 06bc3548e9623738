"""Description of the cluster's information, login and logout, and tokens."""

from __future__ import annotations

from openpai_tasks.server.api.handlers import authn
from openpai_tasks.server.api.openapi.shapes import (
    FLAG,
    HTML,
    MESSAGE,
    OBJECT,
    PLAIN,
    TEXT,
    WHOLE,
    BodyShape,
    Content,
    Operation,
    Operations,
    Schema,
    listed,
    one_of,
    record,
    ref,
)
from openpai_tasks.server.api.shapes.profiles import Profile

LOGIN_BODY = record(
    {
        "username": {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"},
        "password": {"type": "string", "minLength": 6},
        "expiration": {
            "type": "integer",
            "minimum": authn.SHORTEST_SESSION,
            "maximum": authn.LONGEST_SESSION,
        },
    },
    optional=["expiration"],
)


def schemas(profile: Profile) -> dict[str, Schema]:
    payload = {
        "username": TEXT,
        "application": FLAG,
        "jobSpecific": FLAG,
        "encodedFrameworkName": TEXT,
        "iat": WHOLE,
        "exp": WHOLE,
        "admin": FLAG,
    }
    login = {"user": TEXT, "token": TEXT, "admin": FLAG, "hasGitHubPAT": {}}
    return {
        "Info": record(
            {
                "name": TEXT,
                "version": TEXT,
                "launcherType": one_of("k8s", "yarn"),
                "engine": TEXT,
                "authnMethod": one_of("basic", "OIDC"),
            }
        ),
        "AuthnInfo": record({"authn_type": TEXT, "loginURI": TEXT, "loginURIMethod": TEXT}),
        "Login": record(login, optional=() if profile.is_yarn else ("hasGitHubPAT",)),
        "TokenPayload": record(payload, optional=["exp"]),
    }


def operations(profile: Profile) -> Operations:
    wrong = ("InvalidParametersError", "NoUserError", "IncorrectPasswordError")
    revoked: dict[int, tuple[str, ...]] = {403: ("ForbiddenUserError",), 500: ("UnknownError",)}
    issued = record({"token": TEXT, "application": FLAG})
    return {
        authn.get_description: Operation("this description", {200: OBJECT}),
        authn.health: Operation("whether the cluster answers", {200: Content(PLAIN)}),
        authn.info: Operation("information about the cluster", {200: ref("Info")}),
        authn.greeting: Operation("a greeting", {200: Content(HTML)}),
        authn.authn_info: Operation("how to log in", {200: ref("AuthnInfo")}),
        authn.login: Operation("log in", {200: ref("Login")}, {400: wrong}, body=BodyShape(LOGIN_BODY)),
        authn.logout: Operation("revoke the token of this call", {200: MESSAGE}),
        authn.list_tokens: Operation("the caller's tokens", {200: record({"tokens": listed(TEXT)})}),
        authn.create_application_token: Operation("a token that does not expire", {200: issued}),
        authn.revoke_token: Operation("revoke one of the caller's tokens", {200: MESSAGE}, revoked),
        authn.check_token: Operation("the claims of the token", {200: ref("TokenPayload")}),
    }
