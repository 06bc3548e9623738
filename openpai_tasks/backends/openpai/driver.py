"""The ``Driver`` of OpenPAI for the table of kinds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from openpai_tasks.backends.base import NOT_SHARED, Backend, Say, TokenStore
from openpai_tasks.backends.openpai.discovery import candidates, learn
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.backends.openpai.login_lock import login_lock
from openpai_tasks.backends.openpai.sign_in import sign_in
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster

__all__ = ["candidates", "connect", "learn", "sign_in"]


def connect(
    cluster: Cluster,
    credentials: Credentials,
    tokens: TokenStore = NOT_SHARED,
    timeout: float = 60.0,
    learn: Callable[[Cluster], Cluster] | None = None,
    say: Say = lambda line: None,
    hint: str = "",
) -> Backend:
    """Return a client whose logins wait for logins of other commands."""
    tokens = dataclasses.replace(tokens, lock=functools.partial(login_lock, cluster, say))
    return Client(cluster, credentials, tokens, timeout, learn, say, hint=hint)
