"""The fsspec file system ``pai://`` with the clusters and settings of this user."""

from __future__ import annotations

from typing import Any

from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.value_types import one_of
from openpai_tasks.storage.fsspec.filesystem import ClusterFileSystem
from openpai_tasks.storage.location import PAI, Book, Location


class PaiFileSystem(ClusterFileSystem):
    """The file system ``pai://CLUSTER/STORAGE/PATH``, over all clusters that `cluster.list` shows.

    With ``cluster``, or ``cluster_alias``, paths on other clusters are refused.
    """

    def __init__(self, cluster: str | None = None, cluster_alias: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._only = one_of(cluster=cluster, cluster_alias=cluster_alias)

    def make_book(self) -> Book:
        return ClusterStorages(Settings.load())

    def _locate(self, path: str) -> Location:
        name = self._strip_protocol(path)
        if self._only and name.partition("/")[0] != self._only:
            raise ValueError(f"{PAI}{name} is not on the cluster {self._only!r} of this file system")
        return super()._locate(path)
