"""The user who makes a call."""

from __future__ import annotations

from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Identity:
    user: str
    admin: bool
    application: bool
    token_id: str
    issued: int  # seconds, as in the token
    expires: int | None
