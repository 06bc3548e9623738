"""The ``Driver`` of PaddleCloud for the table of kinds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from openpai_tasks.backends.base import NOT_SHARED, Ask, Say, TokenStore
from openpai_tasks.backends.http.login_lock import login_lock
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import INVALID_ALIAS, Cluster


def connect(
    cluster: Cluster,
    credentials: Credentials,
    tokens: TokenStore = NOT_SHARED,
    timeout: float = 60.0,
    learn: Callable[[Cluster], Cluster] | None = None,
    say: Say = lambda line: None,
    hint: str = "",
) -> PaddleBackend:
    """Return a client whose logins wait for logins of other commands."""
    tokens = dataclasses.replace(tokens, lock=functools.partial(login_lock, cluster, say))
    return PaddleBackend(cluster, credentials, tokens, timeout, learn, say, hint=hint)


def check_options(options: Mapping[str, str]) -> None:
    """Raise for an option of `cluster.add` that cannot be right."""
    name = options.get("datacenter", "")
    if INVALID_ALIAS.fullmatch(name):
        raise ConfigError(f"invalid datacenter {name!r}: it is a folder's name")


def candidates(address: str) -> tuple[str, ...]:
    from openpai_tasks.backends.paddlecloud import sign_in

    return sign_in.candidates(address)


def learn(cluster: Cluster, seconds: float) -> Cluster:
    from openpai_tasks.backends.paddlecloud import sign_in

    return sign_in.learn(cluster, seconds)


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    from openpai_tasks.backends.paddlecloud import sign_in

    return sign_in.sign_in(cluster, known, ask, say, timeout, typed)
