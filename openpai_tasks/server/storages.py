"""The storages of the cluster, and what of them is mounted in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import StorageMount
from openpai_tasks.protocol.document.scripts import MOUNTS

FOLDER = "folder"


@dataclass(frozen=True)
class Storage:
    """A folder that jobs can mount; each user sees a separate part of it unless it is shared."""

    name: str
    path: Path
    share: bool = False
    default: bool = True


@dataclass(frozen=True)
class Mount:
    """A storage in a task: what is mounted, and at which path of the document."""

    path: str
    kind: str
    address: str  # for a folder, its absolute path on the machine of the server
    is_private: bool = False  # the folder belongs to one user, and is made when it is needed
    name: str = ""  # of the storage


def user_mounts(
    wanted: Iterable[StorageMount] | None, storages: Mapping[str, Storage], user: str
) -> Iterator[Mount]:
    """Yield the mounts of a user's task; None means no storages, empty the default ones."""
    if wanted is None or user in ("", ".", "..") or "/" in user:
        return
    named = [(mount.name, mount.path) for mount in wanted]
    for name, path in named or [(name, MOUNTS + name) for name in storages]:
        if storage := storages.get(name):
            folder = storage.path.absolute() / ("" if storage.share else user)
            yield Mount(path, FOLDER, str(folder), not storage.share, name)
