"""The parts of the cluster that handlers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openpai_tasks.errors import TooManyRequests
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback.guesses import Guesses
from openpai_tasks.server.accounts.owner import Owner
from openpai_tasks.server.accounts.tokens import Tokens
from openpai_tasks.server.accounts.users import Accounts, Identity
from openpai_tasks.server.api import bodies
from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.api.rates import Rate, RateLimited
from openpai_tasks.server.engines.base import Engine
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.server.state.state import State
from openpai_tasks.server.state.usage_history import UsageHistory
from openpai_tasks.server.storages import Storage
from openpai_tasks.settings.engines import REFUSE_GPUS


@dataclass(frozen=True)
class Context:
    profile: Profile
    rates: Mapping[str, Rate]
    accounts: Accounts
    tokens: Tokens
    owner: Owner
    state: State
    engine: Engine
    virtual_clusters: Mapping[str, ResourceAmount]
    storages: dict[str, Storage]
    guesses: Guesses
    removal: JobRemoval
    history: UsageHistory
    describe: Callable[[], dict[str, Any]]  # the OpenAPI description of this server
    body_limit: int = bodies.LIMIT
    enforce: str = REFUSE_GPUS

    def check_password(self, caller: str, user: str, password: str) -> bool:
        """Return whether the password is right; raise after too many wrong guesses.

        A caller is the user whose process calls, since all callers have the same address.
        """
        try:
            self.guesses.begin(caller, user)
        except TooManyRequests as err:
            raise RateLimited({"retry-after": f"{err.retry_after:.0f}"}) from err
        is_right = self.accounts.accepts(user, password)
        if is_right:
            self.guesses.note_right(caller, user)
        return is_right

    def set_password(self, user: str, password: str, caller: Identity) -> None:
        """Change a password and revoke all sessions except the caller's; write the owner's to its file."""
        self.accounts.set_password(user, password, keep=caller.token_id)
        if user == self.owner.name:
            self.owner.save_password(password)
