"""The connection to an OpenPAI cluster: its generation, and how users log in."""

from __future__ import annotations

import functools
from typing import Any

from openpai_tasks.backends.http import logins
from openpai_tasks.backends.http.connection import ServerConnection
from openpai_tasks.backends.openpai.dialects import ApiDialect, dialect_of
from openpai_tasks.protocol import routes


class OpenPaiConnection(ServerConnection):
    """A connection that knows the generation of the server."""

    label = "OpenPAI"

    @property
    def login_pauses(self) -> tuple[float, ...]:
        return logins.NO_PAUSES if self.polls_cheaply else logins.PAUSES

    @functools.cached_property
    def dialect(self) -> ApiDialect:
        """The rules of the cluster's generation; if it is unknown, ask the cluster once."""
        if not self.cluster.generation and self._learn:
            self.cluster = self._learn(self.cluster)
        return dialect_of(self.cluster.generation)

    def _base(self) -> str:
        _ = self.dialect  # learning about an unknown cluster may change its base URL
        return super()._base()

    def _log_in(self, user: str, password: str) -> dict[str, Any]:
        return self._object(
            "POST", routes.LOGIN_V1, auth=False, data={"username": user, "password": password}
        )
