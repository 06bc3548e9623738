"""The user's clusters, those in ``clusters.yaml`` and in files of other programs, and choices for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import ForeignCluster
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import credentials, layers
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.registry import (
    ANY,
    LOCAL,
    Cluster,
    Registry,
    is_embedded,
    registry_path,
    storage_destination,
)
from openpai_tasks.text.hints import command

CHOSEN = ("storage", "workspace", "own_storages", "alias", "user", "verify")
"""Fields that users change; other changes are what a command learned."""
CHOOSING = ("job.sub", "job.submit", "notebook.run", "notebook.serve", "container.start")
"""Commands that take ANY in place of an alias."""


def open_registry(settings: Settings) -> UserClusters:
    """Return the clusters that the settings select: the user's own, or the project's."""
    return UserClusters(registry_path(settings.clusters_in_local))


class UserClusters(Registry):
    """A registry that also knows foreign clusters, unless it is a project's; only its own file is written."""

    def clusters(self) -> tuple[Cluster, ...]:
        own = super().clusters()
        return (*own, *(foreign.cluster for foreign in self._foreign(own)))

    def get(self, alias: str) -> Cluster:
        try:
            return super().get(alias)
        except ConfigError as err:
            if len(named := [one for one in self.clusters() if _other_name(one) == alias]) == 1:
                return named[0]
            if alias == ANY:
                known = command("cluster.list")
                raise ConfigError(
                    f"{ANY!r} chooses a cluster only for a new job ({', '.join(CHOOSING)}): "
                    f"name the cluster, as `{known}` lists them"
                ) from None
            raise ConfigError("; ".join([str(err), *self.problems])) from err

    def credentials(self, alias: str) -> Credentials:
        """Return the credentials: of a foreign cluster, its file's password and the token in our store."""
        found = self._find_foreign(alias)
        if found is None:
            return super().credentials(alias)
        return Credentials(found.password, credentials.load(found.cluster.destination).token)

    def storable(self, cluster: Cluster, known: Credentials) -> Credentials:
        """Return what may be stored: the password of a foreign cluster stays in its own file only."""
        return dataclasses.replace(known, password="") if self._find_foreign(cluster.alias) else known

    def change(self, alias: str, edit: Callable[[Cluster], Cluster]) -> Cluster:
        """Replace the cluster; of a foreign one, only return what a command has learned."""
        found = self._find_foreign(alias)
        if found is None:
            return super().change(alias, edit)
        before, changed = found.cluster, edit(found.cluster)
        if any(getattr(changed, name) != getattr(before, name) for name in CHOSEN):
            raise ConfigError(_read_only(found))
        return changed

    def remove(self, alias: str) -> Cluster:
        found = self._find_foreign(alias)
        if found is None:
            return super().remove(alias)
        raise ConfigError(f"cluster {alias!r} is in {found.path}: remove it there")

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with files of other programs."""
        return kinds.foreign_clusters().problems if self._includes_foreign else ()

    @property
    def _includes_foreign(self) -> bool:
        return self.path == registry_path()

    def _foreign(self, own: tuple[Cluster, ...]) -> tuple[ForeignCluster, ...]:
        """Return the foreign clusters, with aliases that the user's own do not have."""
        taken = [cluster.alias for cluster in own]
        return kinds.foreign_clusters(taken).clusters if self._includes_foreign else ()

    def _find_foreign(self, alias: str) -> ForeignCluster | None:
        found = self._foreign(super().clusters())
        return next((one for one in found if one.cluster.alias == alias), None)


def _other_name(cluster: Cluster) -> str:
    """Return the name that the server has for itself, such as that of a datacenter."""
    kind = kinds.KINDS.get(cluster.kind)
    return cluster.options.get(kind.other_name, "") if kind else ""


def _read_only(found: ForeignCluster) -> str:
    record = found.cluster
    flags = ["--type", record.kind, "--user", record.user]
    flags += [word for name, value in record.options.items() for word in ("--option", f"{name}={value}")]
    add = command("cluster.add", record.alias, record.uri, *flags)
    return f"{found.path} is never changed; `{add}` copies it to your own clusters"


# The user's choices for the embedded cluster, which is not in ``clusters.yaml``, are beside its data


def choices_path() -> Path:
    return home() / LOCAL / "choices.yaml"


def with_choices(cluster: Cluster) -> Cluster:
    """Return the embedded cluster with the choices that were made for it."""
    chosen = layers.read_defaults(choices_path())
    rows = chosen.get("own_storages")
    own = tuple(dict(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    storage, workspace = (str(chosen.get(key) or "") for key in ("storage_name", "workspace"))
    return dataclasses.replace(cluster, storage=storage, workspace=workspace, own_storages=own)


def change_choices(settings: Settings, alias: str, edit: Callable[[Cluster], Cluster]) -> Cluster:
    """Change the storage, the workspace or the user's own storages; delete secrets of removed storages."""
    if not is_embedded(alias):
        return open_registry(settings).change(alias, edit)
    import yaml

    with locked(choices_path()):
        before = with_choices(Cluster(LOCAL, ""))
        after = edit(before)
        own = list(after.own_storages)
        chosen = {"storage_name": after.storage, "workspace": after.workspace, "own_storages": own}
        record = {key: value for key, value in chosen.items() if value}
        write_private(choices_path(), yaml.safe_dump(record, sort_keys=False, allow_unicode=True))
    kept = {storage_destination(after, record) for record in after.own_storages}
    for record in before.own_storages:
        if (gone := storage_destination(before, record)) not in kept:
            credentials.forget(gone)
    return after
