"""The fsspec file system ``pai://`` with the clusters and settings of this user."""

from __future__ import annotations

from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.fsspec.filesystem import ClusterFileSystem
from openpai_tasks.storage.location import Book


class PaiFileSystem(ClusterFileSystem):
    """The file system ``pai://CLUSTER/STORAGE/PATH``, over all clusters that `cluster.list` shows."""

    def make_book(self) -> Book:
        return ClusterStorages(Settings.load())
