"""Information about the cluster, login and logout, and tokens."""

from __future__ import annotations

from starlette.responses import HTMLResponse, PlainTextResponse

from openpai_tasks.errors import ApiError
from openpai_tasks.server import fields
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request

SHORTEST_SESSION, LONGEST_SESSION = 60, 604800


def health(context: Context, request: Request) -> Reply:
    return PlainTextResponse("Pylon ready.")


def info(context: Context, request: Request) -> Reply:
    return 200, {
        "name": "PAI RESTful API",
        "version": context.profile.version,
        "launcherType": context.profile.launcher,
        "engine": context.engine.name,
        "authnMethod": "basic",
    }


def get_description(context: Context, request: Request) -> Reply:
    return 200, context.describe()


def greeting(context: Context, request: Request) -> Reply:
    """Answer like the oldest servers."""
    return HTMLResponse("<pre>PAI RESTful API</pre>")


def authn_info(context: Context, request: Request) -> Reply:
    return 200, {
        "authn_type": "basic",
        "loginURI": "/api/v1/authn/basic/login",
        "loginURIMethod": "post",
    }


def login(context: Context, request: Request) -> Reply:
    body = fields.mapping(request.body, ("username", "password", "expiration"))
    name, password = fields.user_name(body), fields.password(body)
    if "expiration" in body:  # checked and then ignored, like OpenPAI
        fields.whole_number(body["expiration"], "expiration", SHORTEST_SESSION, LONGEST_SESSION)
    is_right = context.check_password(request.process, name, password)
    user = context.accounts.existing_user(name, 400)
    if not is_right:
        raise ApiError("Password is incorrect.", 400, "IncorrectPasswordError")
    reply = {"user": user.name, "token": context.tokens.issue(user.name), "admin": user.admin}
    if context.profile.is_yarn:
        reply["hasGitHubPAT"] = bool(user.extension.get("githubPAT"))
    elif "githubPAT" in user.extension:
        reply["hasGitHubPAT"] = user.extension["githubPAT"]
    return 200, reply


def logout(context: Context, request: Request) -> Reply:
    context.tokens.forget(request.caller.token_id)
    return 200, {"message": "Logout successfully"}


def list_tokens(context: Context, request: Request) -> Reply:
    return 200, {"tokens": context.tokens.list_of(request.caller.user)}


def create_application_token(context: Context, request: Request) -> Reply:
    return 200, {"token": context.tokens.issue(request.caller.user, application=True), "application": True}


def revoke_token(context: Context, request: Request) -> Reply:
    context.tokens.revoke(request.params["token"], request.caller.user)
    return 200, {"message": "revoke successfully"}


def check_token(context: Context, request: Request) -> Reply:
    caller = request.caller
    return 200, {
        "username": caller.user,
        "application": caller.application,
        "jobSpecific": False,
        "encodedFrameworkName": "",
        "iat": caller.issued,
        **({} if caller.expires is None else {"exp": caller.expires}),
        "admin": caller.admin,
    }
