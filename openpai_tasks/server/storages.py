"""The storages of the cluster, and what of them is mounted in a task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, StorageMount
from openpai_tasks.protocol.document import references
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.protocol.legacy.conversion import CODE_LINK, EXPORT_CODE

FOLDER = "folder"
ROOT = r"""PAI_MOUNT_ROOT["')\]}\-, +]*"""
"""The variable as a shell or Python puts it before a path."""


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


def is_named(path: str, text: str) -> bool:
    """Whether the text has the path without the root of the mounts, and not as a part of another path."""
    if re.search(rf"{ROOT}\$", text):  # the commands add the root to a path in a variable
        return False
    found = re.finditer(rf"(?<![\w.~}}-]){re.escape(path)}(?![\w.-])", text)
    return any(not re.search(f"{ROOT}$", text[max(0, one.start() - 40) : one.start()]) for one in found)


def code_link(document: JobDocument, role: str) -> str:
    """Return ``CODE_LINK`` if the role's commands look for its ``codeDir`` there, else nothing."""
    has_code = EXPORT_CODE in references.commands(document.data, role)
    return CODE_LINK if has_code and is_named(CODE_LINK, document.entrypoint(role)) else ""
