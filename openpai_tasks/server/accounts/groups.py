"""Groups, which grant all rights: admin or not, virtual clusters, storages.

As in OpenPAI, rights are in a group's ``extension.acls``, and each virtual cluster has a group of the same
name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from openpai_tasks.errors import Conflict
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import api_errors
from openpai_tasks.server.state.database import Database

DEFAULT_GROUP = "default"
ADMIN_GROUP = "admingroup"
BUILT_IN = (DEFAULT_GROUP, ADMIN_GROUP)


@dataclass(frozen=True)
class Group:
    name: str
    description: str
    external_name: str
    extension: dict[str, Any]

    @property
    def admin(self) -> bool:
        return self._acls.get("admin") is True

    @property
    def virtual_clusters(self) -> tuple[str, ...]:
        return self._listed("virtualClusters")

    @property
    def storages(self) -> tuple[str, ...]:
        return self._listed("storageConfigs")

    @property
    def _acls(self) -> dict[str, Any]:
        acls = self.extension.get("acls")
        return acls if isinstance(acls, dict) else {}

    def _listed(self, kind: str) -> tuple[str, ...]:
        names = self._acls.get(kind)
        return tuple(str(name) for name in names) if isinstance(names, list) else ()


class Groups:
    """The groups in the cluster's database."""

    def __init__(
        self, database: Database, virtual_clusters: Collection[str], storages: Sequence[str]
    ) -> None:
        """``virtual_clusters`` may change while the server runs."""
        self._database = database
        self._virtual_clusters = virtual_clusters
        self.storages = tuple(storages)
        self._create_missing()

    @property
    def virtual_clusters(self) -> tuple[str, ...]:
        return tuple(self._virtual_clusters)

    def all(self) -> dict[str, Group]:
        rows = self._database.rows("SELECT * FROM account_groups ORDER BY name")
        return {
            row["name"]: Group(
                row["name"], row["description"], row["external_name"], json.loads(row["extension"])
            )
            for row in rows
        }

    def existing_group(self, name: str, status: int = 404) -> Group:
        """Return the group; raise an error with this status if there is none."""
        group = self.all().get(name)
        if group is None:
            raise api_errors.no_group(name, status)
        return group

    def known(self, names: Iterable[str]) -> list[str]:
        """Return each of these groups once; raise if one does not exist."""
        existing, wanted = self.all(), list(dict.fromkeys(names))
        for name in wanted:
            if name not in existing:
                raise api_errors.no_group(name)
        return wanted

    def create(self, group: Group) -> None:
        with self._database.transaction():
            if group.name in self.all():
                raise Conflict(f"Group name {group.name} already exists.", 409, "ConflictGroupError")
            self._write(group)

    def change(self, group: Group) -> None:
        with self._database.transaction():
            self.known([group.name])
            self._write(group)

    def remove(self, name: str) -> None:
        """Remove the group itself; Accounts removes its memberships."""
        self.known([name])
        if name in BUILT_IN:
            raise api_errors.forbidden(f"Group {name} belongs to the cluster and cannot be removed.")
        self._database.write("DELETE FROM account_groups WHERE name = ?", (name,))

    def _create_missing(self) -> None:
        """Create the groups of a new cluster: one of admins, and one for each virtual cluster."""
        clusters = self.virtual_clusters
        groups = [Group(ADMIN_GROUP, "the admins of this cluster", "", self._acls(True, clusters))]
        for name in dict.fromkeys((DEFAULT_GROUP, *clusters)):
            groups.append(Group(name, f"the users of virtual cluster {name}", "", self._acls(False, [name])))
        with self._database.transaction():
            existing = self.all()
            for group in groups:
                if group.name not in existing:
                    self._write(group)

    def _acls(self, admin: bool, virtual_clusters: Iterable[str]) -> dict[str, Any]:
        return {
            "acls": {
                "admin": admin,
                "virtualClusters": list(virtual_clusters),
                "storageConfigs": list(self.storages),
            }
        }

    def _write(self, group: Group) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO account_groups VALUES (?, ?, ?, ?)",
            (group.name, group.description, group.external_name, json.dumps(group.extension)),
        )
