"""Storages that are local folders: added by the user, of the embedded cluster, or mounted shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import make_private
from openpai_tasks.storage.kinds import UserStorage
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import StorageSpec
from openpai_tasks.text.hints import command


def open_store(spec: StorageSpec) -> LocalStore:
    """Open a folder that the user or the embedded cluster names."""
    if not spec.is_own:
        raise ConfigError(
            f"cluster {spec.cluster!r} claims that its storage {spec.name!r} is a folder of this machine: "
            "refused; to use that folder, add it yourself: "
            f"`{command('storage.add')} NAME --type local --path FOLDER`"
        )
    if not os.path.isabs(str(spec.data.get("path", ""))):
        raise ConfigError(f"{spec.title} does not say which folder it is")
    root = Path(spec.users_folder(spec.data["path"]))
    if not spec.share:
        make_private(root)
    elif not root.is_dir():
        raise ConfigError(f"{spec.title} is the folder {root}, which is missing")
    return LocalStore(str(root), spec.read_only)


def make_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    if not storage.path.startswith("/"):
        raise ConfigError(f"--path must be an absolute folder of this machine, got {storage.path!r}")
    return {"path": storage.path}


def open_nfs(spec: StorageSpec) -> LocalStore:
    return mounted.open_mounted(spec, nfs_server(spec))


def nfs_server(spec: StorageSpec) -> str:
    """Return the address of the export, as ``mount`` accepts it."""
    host = spec.data.get("server") or spec.data.get("address", "")
    return f"{host}:{spec.data.get('path') or spec.data.get('rootPath') or '/'}"


def make_nfs_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    return {"server": storage.address, "path": storage.path}


def open_other(spec: StorageSpec) -> LocalStore:
    """Open a share of a type that clusters do not describe; only its mount is known."""
    return mounted.open_mounted(spec, "")
