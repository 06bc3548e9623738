"""A cluster, spoken to over HTTP: one method per endpoint, whatever generation the server is of."""

from __future__ import annotations

from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.backends.openpai.logins import TokenStore
from openpai_tasks.backends.openpai.transport import Answer

__all__ = ["Answer", "Client", "TokenStore"]
