"""The ``Driver`` of machines with ssh: our server there, with the login that it keeps for its owner."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any

from openpai_tasks.backends.base import Ask, Backend, Capabilities, Say
from openpai_tasks.backends.http import logins
from openpai_tasks.backends.http.retries import REPEATABLE
from openpai_tasks.backends.openpai.driver import complete, recognise
from openpai_tasks.backends.openpai.endpoints import OWN, Client
from openpai_tasks.errors import ApiError, ConfigError, Denied
from openpai_tasks.net.http1 import HttpAnswer, ProtocolError
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.protocol import routes
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.engines import ENGINES, find_engine
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.tunnel.tunnel import ENGINE, Tunnel

BROKEN = (ConnectionError, ProtocolError)
"""Errors if the tunnel or its server has ended; a slow tunnel is not started again."""


class SshClient(Client):
    """OpenPAI's API at the end of a tunnel, which is opened when it is needed, and again when it breaks."""

    @property
    def product(self) -> str:
        return "openpai-tasks"

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.dialect.capabilities, **dict.fromkeys(OWN, True))

    @property
    def login_pauses(self) -> tuple[float, ...]:
        return logins.NO_PAUSES

    @functools.cached_property
    def tunnel(self) -> Tunnel:
        return Tunnel(self.cluster)

    @property
    def _root(self) -> str:
        return "http://localhost"

    @functools.cached_property
    def _http(self) -> HttpClient:
        return HttpClient(unix=str(self.tunnel.socket))

    def _follow(self, method: str, url: str, **options: Any) -> HttpAnswer:
        begun = time.time()
        try:
            return super()._follow(method, url, **options)
        except (FileNotFoundError, ConnectionRefusedError):  # nothing was sent: there is no tunnel
            self.tunnel.restore(begun)
        except BROKEN:
            # The server is started again, also for a request that must not be sent twice: its caller finds
            # out whether it was received.
            self.tunnel.restore(begun)
            if method not in REPEATABLE:
                raise
        try:
            return super()._follow(method, url, **options)
        except BROKEN:
            self.tunnel.check_refused()
            raise


def connect(cluster: Cluster, *arguments: Any, **options: Any) -> Backend:
    _check_own(cluster)
    return SshClient(cluster, *arguments, **options)


def candidates(address: str) -> tuple[str, ...]:
    try:
        return (parse_ssh(address).uri,)
    except ValueError as err:
        raise ConfigError(f"invalid address {address!r}: {err}") from err


def check_options(options: Mapping[str, str]) -> None:
    if ENGINE in options:
        find_engine(options[ENGINE])


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    """Return the updated cluster and working credentials: the known ones, or those on the machine.

    Credentials that were ``typed`` are never replaced by others: they may be of another user.
    """
    _check_own(cluster)
    cluster = dataclasses.replace(cluster, uri=candidates(cluster.uri)[0])
    if typed or (known and cluster.user):
        try:
            return _complete(cluster, known, say, timeout)
        except Denied:
            if typed:
                raise
    tunnel = Tunnel(cluster)
    was_open = tunnel.ssh.is_open()
    try:
        found = tunnel.log_in()
        say(f"jobs on {cluster.alias} run {ENGINES[found.engine].label}")
        cluster = dataclasses.replace(cluster, user=found.user)
        return _complete(cluster, Credentials(found.password, found.token), say, timeout)
    except BaseException:
        if not was_open:  # nothing is left in the background by a command that failed
            tunnel.remove()
        raise


def learn(cluster: Cluster, seconds: float) -> Cluster:
    """Complete the record of a cluster with the description by its server."""
    client = SshClient(cluster, Credentials(), timeout=seconds)
    server = recognise(client, client.probe(routes.INFO))
    if server is None:
        raise ApiError(f"{cluster.uri} answers, but not as the embedded cluster does")
    return server.update(cluster)


def _complete(cluster: Cluster, known: Credentials, say: Say, timeout: float) -> tuple[Cluster, Credentials]:
    return complete(SshClient(learn(cluster, timeout), known, timeout=timeout, say=say), known)


def _check_own(cluster: Cluster) -> None:
    """Raise if only a project's file says to log in by ssh, and to run programs there."""
    if not cluster.is_own:
        raise ConfigError(
            f"cluster {cluster.alias!r} of this project is reached by ssh: refused; "
            "such clusters can only be in your own clusters.yaml"
        )
