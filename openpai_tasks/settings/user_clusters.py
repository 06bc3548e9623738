"""The user's clusters: those in ``clusters.yaml``, and the datacenters in ``~/.paddle/config``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from openpai_tasks.errors import ConfigError
from openpai_tasks.hints import command
from openpai_tasks.settings import credentials, paddle_config
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.paddle_config import Datacenter, PaddleConfig
from openpai_tasks.settings.registry import Cluster, Registry, registry_path

CHOSEN = ("storage", "workspace", "own_storages", "alias", "user", "verify")
"""Fields that users change; other changes are what a command learned."""


class UserClusters(Registry):
    """A registry that also knows the datacenters, unless it is a project's; only its own file is written."""

    def clusters(self) -> tuple[Cluster, ...]:
        own = super().clusters()
        return (*own, *(cluster for cluster, _ in self._datacenters(own)))

    def get(self, alias: str) -> Cluster:
        try:
            return super().get(alias)
        except ConfigError as err:
            raise ConfigError("; ".join([str(err), *self.problems])) from err

    def credentials(self, alias: str) -> Credentials:
        """Return the credentials: of a datacenter, the password in its file and the token in our store."""
        found = self._datacenter(alias)
        if found is None:
            return super().credentials(alias)
        cluster, datacenter = found
        return Credentials(datacenter.password, credentials.load(cluster.destination).token)

    def storable(self, cluster: Cluster, known: Credentials) -> Credentials:
        """Return what may be stored: the password of a datacenter stays in its own file only."""
        return dataclasses.replace(known, password="") if self._datacenter(cluster.alias) else known

    def change(self, alias: str, edit: Callable[[Cluster], Cluster]) -> Cluster:
        """Replace the cluster; of a datacenter, only return what a command has learned."""
        found = self._datacenter(alias)
        if found is None:
            return super().change(alias, edit)
        changed = edit(found[0])
        if any(getattr(changed, name) != getattr(found[0], name) for name in CHOSEN):
            raise ConfigError(self._read_only(*found))
        return changed

    def remove(self, alias: str) -> Cluster:
        found = self._datacenter(alias)
        if found is None:
            return super().remove(alias)
        raise ConfigError(f"cluster {alias!r} is in {paddle_config.path()}: remove it there")

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with ``~/.paddle/config``."""
        return self._config.problems

    @functools.cached_property
    def _config(self) -> PaddleConfig:
        return paddle_config.load() if self.path == registry_path() else PaddleConfig()

    def _datacenters(self, own: tuple[Cluster, ...]) -> list[tuple[Cluster, Datacenter]]:
        return list(self._config.clusters(cluster.alias for cluster in own))

    def _datacenter(self, alias: str) -> tuple[Cluster, Datacenter] | None:
        found = self._datacenters(super().clusters())
        return next((one for one in found if one[0].alias == alias), None)

    @staticmethod
    def _read_only(cluster: Cluster, datacenter: Datacenter) -> str:
        flags = f"--type {cluster.kind} --user {cluster.user} --datacenter {datacenter.name}"
        add = f"{command('cluster.add', cluster.alias, cluster.uri)} {flags}"
        return f"{paddle_config.path()} is never changed; `{add}` copies it to your own clusters"
