"""Describe a cluster, and give other clients the access to it."""

from __future__ import annotations

import time
from dataclasses import field

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Say
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials, token_claims


@dataclass(frozen=True)
class Description:
    """A cluster as it describes itself now."""

    alias: str
    uri: str
    user: str
    generation: str
    version: str
    launcher: str
    login: str
    virtual_clusters: tuple[str, ...]
    storages: tuple[str, ...]


@dataclass(frozen=True)
class Access:
    """What another client needs to use the cluster as this user, secrets included."""

    alias: str
    uri: str
    rest_server_uri: str
    user: str
    token: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


def describe(settings: Settings, alias: str | None, say: Say) -> Description:
    """Ask the cluster for its version, the account of the user, and what the user may use."""
    return describe_client(clusters.connect(settings, alias, say), settings.http_timeout, say)


def describe_client(client: Backend, timeout: float, say: Say) -> Description:
    """Describe the cluster that a client is connected to."""
    known = Credentials(token=client.authenticate())
    driver = kinds.driver(client.cluster.kind)
    cluster, _ = driver.sign_in(client.cluster, known, clusters.cannot_ask, say, timeout)
    described = driver.connect(cluster, known).describe()
    return Description(
        alias=cluster.alias,
        uri=cluster.uri,
        user=cluster.user,
        generation=cluster.generation,
        version=described.version,
        launcher=described.launcher,
        login=described.login,
        virtual_clusters=cluster.virtual_clusters,
        storages=clusters.storage_names(cluster),
    )


def access_info(settings: Settings, alias: str | None, say: Say) -> Access:
    """Return the address, the user and a valid token; the password only for the embedded cluster."""
    client = clusters.connect(settings, alias, say)
    cluster = client.cluster
    is_local = cluster.is_embedded
    known = embedded.login() if is_local else clusters.open_registry(settings).credentials(cluster.alias)
    token = client.token()
    end = token_claims(token).get("exp")
    if known.password and isinstance(end, (int, float)) and end < time.time():
        token = client.renew(token)
    password = known.password if is_local else None
    return Access(cluster.alias, cluster.uri, cluster.rest, cluster.user, token, password)
