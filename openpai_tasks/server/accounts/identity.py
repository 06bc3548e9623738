"""The user who makes a call."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from openpai_tasks.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from openpai_tasks.server.accounts.users import User


@dataclass(frozen=True)
class Identity:
    user: str
    admin: bool
    application: bool
    token_id: str
    issued: int  # seconds, as in the token
    expires: int | None
    account: User = field(repr=False)
