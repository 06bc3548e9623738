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
from openpai_tasks.sdk.clusters.known import NewCluster, check_ca, open_registry
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
    addresses = kinds.driver(new.kind).candidates(new.address)
    alias = new.alias or str(urlsplit(addresses[0]).hostname)
    login, matching = environment.for_addresses(addresses, new.kind)
    known = new.credentials or login.credentials
    address = new.address if new.credentials or len(matching) == len(addresses) else matching[0]
    cluster = Cluster(alias, address, user=new.user, kind=new.kind, verify=check_ca(new.ca))
    problem = f"no password or token is given for {addresses[0]}{login.why_not and '; '}{login.why_not}"
    return _sign_in(cluster, known, problem, timeout, say, typed=bool(new.credentials))


def log_in(settings: Settings, alias: str, user: str, password: str, say: Say = lambda line: None) -> Backend:
    """Log in to a known cluster as another user; nothing of it is saved.

    Storages that this machine's user has added, and other choices for the cluster, are not theirs.
    """
    if not user or not password:
        raise ConfigError("enter a user name and a password")
    if is_embedded(alias):
        cluster = embedded.ensure_running(start_request(settings), say)
    else:
        cluster = open_registry(settings).get(alias)
    theirs = dataclasses.replace(cluster, user=user, own_storages=(), storage="", workspace="")
    problem = f"cluster {alias!r} asks for more than a password; use its own portal"
    return _sign_in(theirs, Credentials(password=password), problem, settings.http_timeout, say, typed=True)


def _sign_in(
    cluster: Cluster, known: Credentials, problem: str, timeout: float, say: Say, typed: bool
) -> Backend:
    """Log in and return a client; ``problem`` is the error if the user would have to be asked."""

    def no_answer(prompt: str) -> str:
        raise ConfigError(problem)

    driver = kinds.driver(cluster.kind)
    found, credentials = driver.sign_in(cluster, known, no_answer, say, timeout, typed)
    return driver.connect(found, credentials, timeout=timeout, say=say)
