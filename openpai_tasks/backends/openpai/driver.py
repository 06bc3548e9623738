"""The ``Driver`` of OpenPAI: find the server, identify the user, log in, and read what the user may use."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from openpai_tasks.backends.base import Ask, Say
from openpai_tasks.backends.http import addresses
from openpai_tasks.backends.openpai.discovery import FoundServer, candidates, discover
from openpai_tasks.backends.openpai.discovery import learn as learn
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.errors import ApiError, ConfigError, Denied, NotFound
from openpai_tasks.protocol.fields import text, texts
from openpai_tasks.settings.credentials import Credentials, token_claims
from openpai_tasks.settings.registry import Cluster

connect = Client
REFUSALS = {
    "IncorrectPasswordError": "the password of user {user!r} is wrong",
    "NoUserError": "there is no user {user!r}",
}


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    """Find the server, log in, and return the updated cluster and the credentials that worked.

    Credentials that were not ``typed`` for this login are not sent to a server that has moved.
    """
    server = discover(cluster.alias, cluster.uri, cluster.verify, timeout)
    if known and not typed:
        addresses.check_known(cluster, candidates(cluster.uri), server.uri)
    user, known = identify(cluster, known, server, ask)
    addresses.warn_unencrypted(server.uri, say)
    cluster = dataclasses.replace(
        cluster,
        uri=server.uri,
        prefix=server.prefix,
        user=user,
        generation=server.generation,
        info=server.info,
    )
    return complete(Client(cluster, known, timeout=timeout, say=say), known)


def complete(client: Client, known: Credentials) -> tuple[Cluster, Credentials]:
    """Log in, and add what the user may use to the record of the cluster."""
    record = _log_in(client, known)
    known = dataclasses.replace(known, token=client.token())
    parts, storages = _virtual_clusters(client, record), _storages(client)
    return dataclasses.replace(client.cluster, virtual_clusters=parts, storages=storages), known


def identify(cluster: Cluster, known: Credentials, server: FoundServer, ask: Ask) -> tuple[str, Credentials]:
    """Return the user's name, given or read from the token, and the credentials, asked for if missing."""
    claimed = token_claims(known.token)
    name = text(claimed.get("username"))
    if "/" in name or not name.isprintable():
        raise ConfigError(f"the token names the user {name!r}, which is not a valid name")
    if cluster.user and name and name != cluster.user:
        raise ConfigError(f"the token belongs to user {name!r}, not to {cluster.user!r}")
    if server.wants_token and not known.token:
        raise ConfigError(
            f"{server.uri} signs users in with OIDC (AAD), not a password: copy a token from its web portal"
            " and give it with --token-file or OPENPAI_TOKEN"
        )
    user = cluster.user or name
    if not user:
        raise ConfigError(f"no user name for {server.uri}: give it with --user")
    if not known:
        checked = f" (checked with {cluster.verify})" if isinstance(cluster.verify, str) else ""
        known = Credentials(password=ask(f"password of {user} at {server.uri}{checked}: "))
    return user, dataclasses.replace(known, application=bool(claimed.get("application")))


def _log_in(client: Client, known: Credentials) -> dict[str, Any]:
    """Log in and return the record of the user, which only the user may read."""
    try:
        if not known.token:
            client.login(client.user, known.password)
        return client.user_info(client.user)
    except ApiError as err:
        reason = REFUSALS.get(err.code, "").format(user=client.user)
        if err.status == 401:
            reason = f"it does not accept the token of user {client.user!r} (expired or revoked?)"
        if not reason:
            raise
        raise Denied(f"cannot log in to {client.cluster.uri}: {reason}", err.status, err.code) from err


def _virtual_clusters(client: Client, record: dict[str, Any]) -> tuple[str, ...]:
    """Return the virtual clusters granted to the user, or all of them if the server does not say."""
    granted = record.get("virtualCluster")
    if isinstance(granted, str):
        granted = [name.strip() for name in granted.split(",")]
    return tuple(filter(None, texts(granted))) or tuple(client.virtual_clusters())


def _storages(client: Client) -> tuple[dict[str, Any], ...]:
    """Return names and types only, as details contain account keys; servers without storages have HDFS."""
    with contextlib.suppress(NotFound):
        if client.dialect.storages:
            return tuple(map(_short, client.storage_rows()))
    webhdfs = f"{client.cluster.uri}/webhdfs/api/v1"
    return ({"name": "hdfs", "type": "hdfs", "default": True, "data": {"webhdfs": webhdfs}},)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a storage that ``clusters.yaml`` keeps."""
    texts_of = {key: text(row.get(key)) for key in ("name", "type", "volumeName")}
    flags = {key: row[key] for key in ("share", "default") if isinstance(row.get(key), bool)}
    return {key: value for key, value in texts_of.items() if value} | flags
