"""The ``Driver`` of PaddleCloud: find the server, log in, and check the name of the datacenter."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from openpai_tasks.backends.base import Ask, Say
from openpai_tasks.backends.http import addresses
from openpai_tasks.backends.http.connection import ProbeAnswer
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.backends.paddlecloud.client import STORAGE, USER
from openpai_tasks.backends.paddlecloud.config_file import GENERATION, datacenter_of
from openpai_tasks.errors import ApiError, ConfigError, Denied, NotFound, PathError, Unreachable
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import CERTIFICATE, INVALID_ALIAS, KEY, LOCAL, Cluster, is_embedded

PROBE_SECONDS = 10.0
PASTED = re.compile(r"/api(-token-auth|/v1)(/.*)?$")
"""Paths that users copy with the address."""
_PATH = re.compile(r"/pfs/([^/]+)/((?:home|public)(?:/.*)?)", re.DOTALL)


def connect(
    cluster: Cluster, credentials: Credentials, say: Say = lambda line: None, **options: Any
) -> PaddleBackend:
    """Return a client of the cluster for its user; nothing is sent yet."""
    check_certificate(cluster, say)
    return PaddleBackend(cluster, credentials, say=say, **options)


def check_certificate(cluster: Cluster, say: Say) -> None:
    """Raise if the certificate that the user presents cannot be used; warn if the key is not private."""
    named, certificate = cluster.options.keys() & {CERTIFICATE, KEY}, cluster.certificate
    if named and certificate is None:
        why = "its address is not https" if cluster.is_own else "a project cannot name it"
        say(f"warning: cluster {cluster.alias!r}: {CERTIFICATE} is not used: {why}")
    if certificate is None:
        return
    import ssl

    try:
        certificate.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except OSError as err:
        raise ConfigError(f"cluster {cluster.alias!r}: {CERTIFICATE}, {KEY}: {err}") from err
    if certificate.is_exposed:
        fix = f"chmod go-rwx {shlex.quote(certificate.key)}"
        say(f"warning: other users can read the private key {certificate.key}; `{fix}` prevents that")


def check_options(options: Mapping[str, str]) -> None:
    """Raise for an option of `cluster.add` that cannot be right."""
    name = options.get("datacenter", "")
    if INVALID_ALIAS.fullmatch(name):
        raise ConfigError(f"invalid datacenter {name!r}: expected the name of a folder")
    for file in (CERTIFICATE, KEY):
        path = options.get(file, "")
        if not os.path.isabs(path or "/"):
            whole = os.path.abspath(os.path.expanduser(path))
            raise ConfigError(f"invalid {file} {path!r}: expected a whole path such as {whole}")


def find_path(path: str, clusters: Iterable[Cluster], embedded_user: Callable[[], str] | None) -> str:
    """Return ``/pfs/DATACENTER/PATH`` as ``ALIAS/STORAGE/PATH``; "" for paths of another form.

    The embedded cluster is a datacenter too; its storage ``home`` has the user's files.
    """
    found = _PATH.fullmatch(path)
    if not found:
        return ""
    datacenter, rest = found.groups()
    known = [(datacenter_of(one), one.alias) for one in clusters]
    for aliases in (dict(reversed(known)), {alias: alias for _, alias in known}):
        if datacenter in aliases:
            return f"{aliases[datacenter]}/{STORAGE}/{rest}"
    if embedded_user is None or not is_embedded(datacenter):
        names = ", ".join(name for name, _ in known) or "none"
        raise ConfigError(f"{path}: no datacenter {datacenter!r} (known: {names})")
    own = f"home/{embedded_user()}"
    if rest != own and not rest.startswith(f"{own}/"):
        raise PathError(f"{path}: only files below /pfs/{LOCAL}/{own} are yours")
    return f"{LOCAL}/home{rest.removeprefix(own)}"


def candidates(address: str) -> tuple[str, ...]:
    """Return the addresses to try, best first; without a scheme, https and then http."""
    return addresses.candidates(address, PASTED)


def learn(cluster: Cluster, seconds: float = PROBE_SECONDS) -> Cluster:
    """Complete the record of a cluster; raise if the server has moved."""
    found = _discover(cluster, seconds)
    addresses.check_same(cluster, found.uri)
    return found


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    """Find the server, log in, and return the updated cluster and the credentials that worked."""
    found = _discover(cluster, timeout)
    if known and not typed:
        addresses.check_known(cluster, candidates(cluster.uri), found.uri)
    if not found.user:
        raise ConfigError(f"no user name for {found.uri}: give it with --user")
    check_certificate(found, say)
    addresses.warn_unencrypted(found.uri, say)
    if not known and not _is_certificate_enough(found, timeout):
        known = Credentials(password=ask(f"password of {found.user} at {found.uri}: "))
    client = PaddleBackend(found, known, timeout=timeout, say=say)
    _log_in(client, known)
    _check_datacenter(client)
    signed_in = dataclasses.replace(
        found,
        virtual_clusters=(client.namespace,),
        storages=({"name": STORAGE, "type": STORAGE, "default": True},),
    )
    return signed_in, dataclasses.replace(known, token=client.token())


def _discover(cluster: Cluster, seconds: float) -> Cluster:
    """Find the server at the address; never fall back to http for an untrusted certificate."""
    uris = candidates(cluster.uri)
    if cluster.options.get(CERTIFICATE):
        uris = tuple(uri for uri in uris if uri.startswith("https:")) or uris
    return addresses.first_answer(
        uris, lambda uri: _ask(dataclasses.replace(cluster, uri=uri, prefix=""), seconds)
    )


def _ask(cluster: Cluster, seconds: float) -> Cluster:
    client = PaddleBackend(cluster, Credentials(), timeout=min(seconds, PROBE_SECONDS))
    answer = client.probe(USER)
    is_known_user = cluster.certificate is not None and answer.status == 200
    if not _is_paddle_cloud(answer) and not (is_known_user and isinstance(answer.body, dict)):
        words = f"answers, but not as a PaddleCloud server does (HTTP {answer.status} for {USER})"
        raise Unreachable(f"{cluster.uri} {words}")
    uri = addresses.without_path(answer.url, USER) or cluster.uri
    return dataclasses.replace(cluster, uri=uri, generation=GENERATION)


def _is_paddle_cloud(answer: ProbeAnswer) -> bool:
    """Whether the server asks for a login as Django does, on a path that only PaddleCloud has."""
    return answer.status in (401, 403) and isinstance(answer.body, dict) and "detail" in answer.body


def _is_certificate_enough(cluster: Cluster, timeout: float) -> bool:
    """Whether the server knows the user by the certificate, without a password."""
    client = PaddleBackend(cluster, Credentials(), timeout=timeout)
    return cluster.certificate is not None and client.probe(USER).status != 401


def _log_in(client: PaddleBackend, known: Credentials) -> None:
    where = f"cannot log in to {client.cluster.uri}"
    try:
        if known.password and not known.token:
            client.login(client.user, known.password)
        user = client.token_user()
    except ApiError as err:
        reason = {
            400: f"the password of user {client.user!r} is wrong, or there is no such user",
            401: f"it does not accept the token of user {client.user!r}",
        }.get(err.status if known else 0)
        if reason is None:
            raise
        raise Denied(f"{where}: {reason}", err.status) from err
    if user and user != client.user:
        raise ConfigError(f"{where}: the token belongs to user {user!r}, not to {client.user!r}")


def _check_datacenter(client: PaddleBackend) -> None:
    """Raise unless the server knows the datacenter, whose name is a part of every path."""
    try:
        client.files(client.home)
    except NotFound:
        return  # nothing was uploaded yet
    except Denied:
        raise
    except ApiError as err:
        hint = "give the name of the datacenter with --datacenter"
        raise ConfigError(f"{client.cluster.uri} has no {client.home}: {hint} ({err})") from err
