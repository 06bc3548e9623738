"""OpenPAI clusters of any generation, over HTTP."""

from __future__ import annotations

from openpai_tasks.backends.base import TokenStore
from openpai_tasks.backends.openpai.endpoints import Client

__all__ = ["Client", "TokenStore"]
