"""Tokens: a user has one, which is valid until the password changes."""

from __future__ import annotations

from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request, TextBody
from openpai_tasks.server.paddlecloud.records import PaddleRecords

WRONG = "Unable to log in with provided credentials."


def health(context: Context, request: Request) -> Reply:
    return 200, TextBody("OK")


def get_token(context: Context, request: Request) -> Reply:
    """Return the caller's token for a user name and a password, in JSON or a form."""
    given = request.body if isinstance(request.body, dict) else {}
    values = {name: _text(given.get(name)) for name in ("username", "password")}
    missing = {name: ["This field is required."] for name, value in values.items() if not value}
    if missing:
        return 400, missing
    if not context.check_password(request.process, values["username"], values["password"]):
        return 400, {"non_field_errors": [WRONG]}
    return 200, {"token": PaddleRecords(context.state.database).token(values["username"])}


def get_user(context: Context, request: Request) -> Reply:
    return 200, {"user": request.caller.user}


def _text(value: object) -> str:
    """Return a text or, like YAML's readers of a password of digits, a number as text."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
