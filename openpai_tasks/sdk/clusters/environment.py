"""Credentials of the environment: ``OPENPAI_TOKEN`` and ``OPENPAI_PASSWORD`` count for one address.

That is ``OPENPAI_URI`` where it is set, else the cluster of the user's own ``clusters.yaml`` that the user's
own settings select: never an address that only a project names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from openpai_tasks.backends import kinds
from openpai_tasks.errors import ConfigError
from openpai_tasks.net import web_address
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.settings import credentials
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster

ADDRESS = "OPENPAI_URI"


@dataclass(frozen=True)
class Lent:
    """What the environment gives for a cluster, or why what is set there is not used."""

    credentials: Credentials = field(default_factory=Credentials)
    why_not: str = ""


def for_cluster(settings: Settings, cluster: Cluster) -> Lent:
    """What counts for a known cluster."""
    found = credentials.from_environment()
    if not found:
        return Lent()
    named, rest = _named(cluster.kind), web_address.normal(cluster.rest)
    selected = settings.own("cluster-alias")
    if named and rest not in (named, named + PREFIX):
        return Lent(why_not=f"{_variables(found)} counts for {named}, not for {rest.removesuffix(PREFIX)}")
    if named and not cluster.is_own and isinstance(cluster.verify, str):
        why = f"is not sent to a server that only the CA file of this project vouches for, {cluster.verify}"
        return Lent(why_not=f"{_variables(found)} {why}")
    if not named and not (cluster.is_own and cluster.alias == selected):
        where = f"{ADDRESS}={rest.removesuffix(PREFIX)}"
        why = f"counts for the cluster that your own settings select ({selected}); set {where} to use it here"
        return Lent(why_not=f"{_variables(found)} {why}")
    return Lent(found)


def for_addresses(typed: Sequence[str], kind: str = DEFAULT_KIND) -> tuple[Lent, tuple[str, ...]]:
    """What counts for an address that the user typed, and which of its readings it counts for."""
    found, named = credentials.from_environment(), _named(kind)
    meant = tuple(address for address in typed if web_address.normal(address) == named)
    if not found or not named or meant:
        return Lent(found), meant or tuple(typed)
    return Lent(why_not=f"{_variables(found)} counts for {named}, not for {typed[0]}"), tuple(typed)


def _named(kind: str) -> str:
    """The address in ``OPENPAI_URI``; without a scheme it is the encrypted one."""
    text = os.environ.get(ADDRESS, "").strip()
    try:
        return web_address.normal(kinds.driver(kind).candidates(text)[0]) if text else ""
    except ConfigError as err:
        raise ConfigError(f"{ADDRESS}: {err}") from err


def _variables(found: Credentials) -> str:
    return "OPENPAI_TOKEN" if found.token else "OPENPAI_PASSWORD"
