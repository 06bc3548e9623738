"""Describe a cluster, give other clients access to it, and connect to one without saving it."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import field
from urllib.parse import urlsplit

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Say
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.clusters import embedded, environment
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.clusters.known import NewCluster, open_registry, trusted
from openpai_tasks.sdk.clusters.start_options import start_request
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials, token_claims
from openpai_tasks.settings.registry import Cluster, is_embedded


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


def connect_unsaved(new: NewCluster, timeout: float, say: Say) -> Backend:
    """Log in to a cluster with the given credentials, or those of the environment for its address."""
    driver = kinds.driver(new.kind)
    addresses = driver.candidates(new.address)
    alias = new.alias or str(urlsplit(addresses[0]).hostname)
    login, matching = environment.for_addresses(addresses, new.kind)
    known = new.credentials or login.credentials
    address = new.address if new.credentials or len(matching) == len(addresses) else matching[0]
    cluster = Cluster(alias, address, user=new.user, kind=new.kind, verify=trusted(new.ca))

    def no_answer(prompt: str) -> str:
        raise ConfigError(
            f"no password or token is given for {addresses[0]}{login.why_not and '; '}{login.why_not}"
        )

    found, credentials = driver.sign_in(cluster, known, no_answer, say, timeout, bool(new.credentials))
    return driver.connect(found, credentials, timeout=timeout, say=say)


def log_in(settings: Settings, alias: str, user: str, password: str, say: Say = lambda line: None) -> Backend:
    """Log in to a known cluster as another user; nothing of it is saved.

    Storages that this machine's user has added, and other choices for the cluster, are not theirs.
    """
    if not user or not password:
        raise ConfigError("enter a user name and a password")
    if is_embedded(alias):
        cluster = embedded.ensure(start_request(settings), say)
    else:
        cluster = open_registry(settings).get(alias)
    driver = kinds.driver(cluster.kind)
    typed = Credentials(password=password)

    def no_answer(prompt: str) -> str:
        raise ConfigError(f"cluster {alias!r} asks for more than a password; use its own portal")

    theirs = dataclasses.replace(cluster, user=user, own_storages=(), storage="", workspace="")
    found, credentials = driver.sign_in(theirs, typed, no_answer, say, settings.http_timeout, typed=True)
    return driver.connect(found, credentials, timeout=settings.http_timeout, say=say)
