"""The page of a job list; unusual numbers are handled like OpenPAI's JavaScript and database do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openpai_tasks.errors import ApiError
from openpai_tasks.server import refusals
from openpai_tasks.server.api.request import Request

MOST_ROWS = 50_000
FARTHEST = 2**63 - 1
SPLIT = ("username", "vc", "state", "tagsContain", "tagsNotContain", "jobPriority", "order")


def check(query: Mapping[str, tuple[str, ...]]) -> None:
    """Raise for a repeated parameter that must be a single text."""
    for name in SPLIT:
        if len(query.get(name, ())) > 1:
            raise ApiError(f"req.query.{name}.split is not a function", 500)


def offset(request: Request) -> int:
    """Return the number of rows to skip; the database takes 64-bit numbers."""
    value = _number(request, "offset", 0)
    if value > FARTHEST:
        raise ApiError(f'value "{value}" is out of range for type bigint', 500)
    return value


def limit(request: Request, page: int) -> int:
    """Return the maximum number of rows."""
    value = _number(request, "limit", page)
    if value > MOST_ROWS:
        raise refusals.invalid(f"Limit exceeds max number {MOST_ROWS}.")
    return value


def _number(request: Request, name: str, default: int) -> int:
    """Return the number at the beginning of a query parameter, or the default if it is missing."""
    if name not in request.query:
        return default
    match = re.match(r"\s*([+-]?)(\d{1,30})", request.first(name), re.ASCII)
    if not match:
        raise ApiError('column "nan" does not exist', 500)
    value = int(match[2])
    if value and match[1] == "-":
        raise ApiError(f"{name.upper()} must not be negative", 500)
    return value
