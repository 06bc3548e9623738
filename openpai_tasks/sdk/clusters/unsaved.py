"""Connect to a cluster by its address, without saving it."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Say
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.clusters import embedded, environment
from openpai_tasks.sdk.clusters.known import NewCluster, open_registry, trusted
from openpai_tasks.sdk.clusters.start_options import start_request
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster, is_embedded


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
