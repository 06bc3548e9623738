"""Credentials in the environment: ``OPENPAI_TOKEN`` and ``OPENPAI_PASSWORD`` are for one address.

That is ``OPENPAI_URI`` where it is set, else the cluster of the user's own ``clusters.yaml`` that the user's
own settings select: never an address that only a project names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Ask
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net import ssh_address, web_address
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.settings import credentials
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster

ADDRESS = "OPENPAI_URI"


@dataclass(frozen=True)
class EnvironmentLogin:
    """The credentials in the environment for a cluster, or why they are not used."""

    credentials: Credentials = field(default_factory=Credentials)
    why_not: str = ""


def for_cluster(settings: Settings, cluster: Cluster) -> EnvironmentLogin:
    """Return the credentials in the environment for a known cluster."""
    found = credentials.from_environment()
    if not found or cluster.uri.startswith(ssh_address.SSH):  # the login is on the login node
        return EnvironmentLogin()
    named, rest = _required_address(cluster.kind), web_address.normal(cluster.rest)
    selected, why_not = settings.own("cluster-alias"), ""
    if named and rest not in (named, named + PREFIX):
        why_not = f"is for {named}, not for {rest.removesuffix(PREFIX)}"
    elif named and not cluster.is_own and isinstance(cluster.verify, str):
        why_not = f"is not sent to a server that only the CA file of this project trusts ({cluster.verify})"
    elif not named and not (cluster.is_own and cluster.alias == selected):
        where = f"{ADDRESS}={rest.removesuffix(PREFIX)}"
        why_not = f"is for the cluster that your own settings select ({selected}); set {where} to use it here"
    if why_not:
        return EnvironmentLogin(why_not=f"{_variables(found)} {why_not}")
    return EnvironmentLogin(found)


def for_addresses(typed: Sequence[str], kind: str = DEFAULT_KIND) -> tuple[EnvironmentLogin, tuple[str, ...]]:
    """Return the credentials for an address that the user typed, and which of its readings they are for."""
    if typed[0].startswith(ssh_address.SSH):
        return EnvironmentLogin(), tuple(typed)
    found, named = credentials.from_environment(), _required_address(kind)
    matching = tuple(address for address in typed if web_address.normal(address) == named)
    if not found or not named or matching:
        return EnvironmentLogin(found), matching or tuple(typed)
    return EnvironmentLogin(why_not=f"{_variables(found)} is for {named}, not for {typed[0]}"), tuple(typed)


def _required_address(kind: str) -> str:
    """Return the address in ``OPENPAI_URI``; without a scheme, it is https."""
    text = os.environ.get(ADDRESS, "").strip()
    try:
        return web_address.normal(kinds.driver(kind).candidates(text)[0]) if text else ""
    except ConfigError as err:
        raise ConfigError(f"{ADDRESS}: {err}") from err


def _variables(found: Credentials) -> str:
    return "OPENPAI_TOKEN" if found.token else "OPENPAI_PASSWORD"


def with_reason(ask: Ask, why_not: str) -> Ask:
    """Return a prompt whose error adds why the credentials of the environment are not used."""

    def asked(prompt: str) -> str:
        try:
            return ask(prompt)
        except ConfigError as err:
            raise ConfigError(f"{err}; {why_not}" if why_not else str(err)) from err

    return asked
