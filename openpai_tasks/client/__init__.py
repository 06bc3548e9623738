"""A cluster, spoken to over HTTP: one method per endpoint, whatever generation the server is of."""

from __future__ import annotations

from openpai_tasks.client.endpoints import Client
from openpai_tasks.client.logins import TokenStore
from openpai_tasks.client.transport import Answer

__all__ = ["Answer", "Client", "TokenStore"]
