"""The storages of a cluster, in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from openpai_tasks import sdk
from openpai_tasks.api.connection import say, settings_here
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.location import SELECTED, Location, locate

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.files.operations import FileInfo
    from openpai_tasks.storage.copying.copy import Copied

LocalPath = str | os.PathLike[str]


class RemoteStorage:
    """The files on one storage of a cluster; copies follow the rules of `storage.copy`.

    >>> from openpai_tasks import Cluster
    >>> storage = Cluster("local").storage
    >>> with open("numbers.txt", "w") as file:
    ...     _ = file.write("1 2 3")
    >>> storage.upload("numbers.txt", "data/").files
    1
    >>> [(file.name, file.size) for file in storage.list("data")]
    [('numbers.txt', 5)]
    >>> storage.delete("data", recursive=True)
    """

    def __init__(self, backend: Backend, name: str = "") -> None:
        self._backend, self._name = backend, name or SELECTED
        self._book = sdk.files.ClusterStorages(settings_here(), say, backend)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url('')!r})"

    def list(self, path: str = "") -> list[FileInfo]:
        """List a folder, or describe a file."""
        return list(sdk.files.list_files([self._at(path)]))

    def upload(self, local: LocalPath, remote: str = "") -> Copied:
        """Copy a file or folder from this machine; run it again to continue."""
        return self._copy(locate(os.fspath(local), self._book), self._at(remote))

    def download(self, remote: str, local: LocalPath = ".") -> Copied:
        """Copy a file or folder to this machine; run it again to continue."""
        return self._copy(self._at(remote), locate(os.fspath(local), self._book))

    def delete(self, path: str, recursive: bool = False) -> None:
        """Remove a file or an empty folder; with ``recursive``, also a folder with its contents."""
        removals = sdk.files.plan_removals([self._url(path)], self._book, recursive)
        sdk.files.check_guesses(removals)
        sdk.files.remove(removals)

    def _copy(self, source: Location, target: Location) -> Copied:
        rules = sdk.files.copy_rules(workers=8)
        copied = sdk.files.copy([source], target, rules, Watch())
        sdk.files.check_copied(copied)
        return copied

    def _at(self, path: str) -> Location:
        return locate(self._url(path), self._book)

    def _url(self, path: str) -> str:
        return f"pai://{self._backend.cluster.alias}/{self._name}/{path.lstrip('/')}"
