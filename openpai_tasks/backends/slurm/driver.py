"""The ``Driver`` of Slurm clusters: a client of OpenPAI's API behind a tunnel."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from openpai_tasks.backends.base import NOT_SHARED, Ask, Backend, Say, TokenStore
from openpai_tasks.backends.http.login_lock import login_lock
from openpai_tasks.backends.slurm.client import SlurmClient
from openpai_tasks.errors import ConfigError
from openpai_tasks.net.ssh_address import parse_ssh
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
    _refuse_project(cluster)
    tokens = dataclasses.replace(tokens, lock=functools.partial(login_lock, cluster, say))
    return SlurmClient(cluster, credentials, tokens, timeout, learn, say, hint=hint)


def candidates(address: str) -> tuple[str, ...]:
    try:
        return (parse_ssh(address).uri,)
    except ValueError as err:
        raise ConfigError(f"invalid address {address!r} of a login node: {err}") from err


def learn(cluster: Cluster, seconds: float) -> Cluster:
    from openpai_tasks.backends.slurm import sign_in

    return sign_in.learn(cluster, seconds)


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    from openpai_tasks.backends.slurm import sign_in

    _refuse_project(cluster)
    cluster = dataclasses.replace(cluster, uri=candidates(cluster.uri)[0])
    return sign_in.sign_in(cluster, known, say, timeout, typed)


def _refuse_project(cluster: Cluster) -> None:
    """Refuse to log in by ssh, and to run programs there, because a project's file says so."""
    if not cluster.is_own:
        raise ConfigError(
            f"cluster {cluster.alias!r} of this project is reached by ssh: refused; "
            "such clusters can only be in your own clusters.yaml"
        )
