"""The ``Driver`` of OpenPAI for the table of kinds; what most commands do not use is loaded when it is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from openpai_tasks.backends.base import NOT_SHARED, Ask, Backend, Say, TokenStore
from openpai_tasks.backends.http.login_lock import login_lock
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster


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


def candidates(address: str) -> tuple[str, ...]:
    from openpai_tasks.backends.openpai import discovery

    return discovery.candidates(address)


def learn(cluster: Cluster, seconds: float) -> Cluster:
    from openpai_tasks.backends.openpai import discovery

    return discovery.learn(cluster, seconds)


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    from openpai_tasks.backends.openpai import sign_in

    return sign_in.sign_in(cluster, known, ask, say, timeout, typed)
