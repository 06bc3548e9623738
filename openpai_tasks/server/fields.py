"""Read fields of a request's body, with the API's errors for invalid ones.

As in OpenPAI, an unexpected field is refused, and text is accepted for numbers and flags (forms have only
text).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from openpai_tasks.server import api_errors

NAME = re.compile(r"[\w.-]+", re.ASCII)
GROUP_NAME = re.compile(r"\w+", re.ASCII)
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
LONGEST_NAME = 100
SHORTEST_PASSWORD = 6


def mapping(body: Any, allowed: Collection[str]) -> dict[str, Any]:
    """Return the body as a dictionary; raise if it has other keys than these."""
    if not isinstance(body, dict):
        raise api_errors.invalid('"value" must be an object')
    for key in body:
        if key not in allowed:
            raise api_errors.invalid(f'"{key}" is not allowed')
    return body


def required(body: dict[str, Any], name: str) -> Any:
    if body.get(name) is None:
        raise api_errors.invalid(f'"{name}" is required')
    return body[name]


def text(body: dict[str, Any], name: str) -> str:
    value = required(body, name)
    if not isinstance(value, str):
        raise api_errors.invalid(f'"{name}" must be a string')
    return value


def user_name(body: dict[str, Any]) -> str:
    """Return the name of a user, which is also a folder name, so never only dots."""
    value = text(body, "username")
    if not NAME.fullmatch(value) or not value.strip(".") or len(value) > LONGEST_NAME:
        raise api_errors.invalid(
            f'"username" must be at most {LONGEST_NAME} letters, digits, "_", "." or "-"'
        )
    return value


def group_name(body: dict[str, Any]) -> str:
    value = text(body, "groupname")
    if not GROUP_NAME.fullmatch(value) or len(value) > LONGEST_NAME:
        raise api_errors.invalid(f'"groupname" must be at most {LONGEST_NAME} letters, digits or "_"')
    return value


def password(body: dict[str, Any], name: str = "password") -> str:
    value = text(body, name)
    if len(value) < SHORTEST_PASSWORD:
        raise api_errors.invalid(f'"{name}" length must be at least {SHORTEST_PASSWORD} characters long')
    return value


def email(body: dict[str, Any]) -> str:
    value = text(body, "email")
    if value and not EMAIL.fullmatch(value):
        raise api_errors.invalid('"email" must be a valid email')
    return value


def flag(body: dict[str, Any], name: str) -> bool:
    value = required(body, name)
    if value not in (True, False, "true", "false"):
        raise api_errors.invalid(f'"{name}" must be a boolean')
    return value in (True, "true")


def names(body: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of strings without duplicates."""
    value = required(body, name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise api_errors.invalid(f'"{name}" must be an array of strings')
    return tuple(dict.fromkeys(value))


def extension(body: dict[str, Any]) -> dict[str, Any]:
    value = required(body, "extension")
    if not isinstance(value, dict):
        raise api_errors.invalid('"extension" must be an object')
    return value


def whole_number(value: Any, name: str, least: int, most: int) -> int:
    digits = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,15}", digits, re.ASCII):
        raise api_errors.invalid(f'"{name}" must be a whole number')
    if not least <= int(digits) <= most:
        raise api_errors.invalid(f'"{name}" must be between {least} and {most}, got {digits}')
    return int(digits)
