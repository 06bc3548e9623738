"""Storages that are mounted on this machine: NFS, Samba and whatever else the mount map names."""

from __future__ import annotations

import os
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.local import LocalStore, users_part
from openpai_tasks.storage.store import Place

SETTING = "storage.mounts"


def open_store(place: Place) -> LocalStore:
    """The folder that the storage is mounted at, if the mount map knows it."""
    root = _folder(place)
    if root is None:
        raise ConfigError(
            f"storage {place.name!r} of {place.cluster!r} is a share of type {place.kind!r}: mount it "
            f"and tell where with `config.set {SETTING}={place.cluster}/{place.name}=FOLDER`"
        )
    if not root.is_dir():
        raise ConfigError(f"{SETTING}: {root} is no folder, so storage {place.name!r} is not mounted there")
    part = users_part(root, place)
    try:
        part.mkdir(exist_ok=True)
    except OSError as err:
        raise ConfigError(f"cannot make your folder {part}: {err.strerror}") from err
    return LocalStore(str(part), place.read_only)


def is_mounted(place: Place) -> bool:
    """Whether the mount map knows it."""
    return _folder(place) is not None


def mount_map(rows: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """``WHAT=FOLDER`` of the settings, in two."""
    pairs = []
    for row in rows:
        what, equals, folder = row.rpartition("=")
        if not equals or not what or not os.path.isabs(os.path.expanduser(folder)):
            raise ConfigError(f"{SETTING}: {row!r} must be WHAT=FOLDER, with an absolute folder")
        pairs.append((what, os.path.expanduser(folder)))
    return tuple(pairs)


def address(place: Place) -> str:
    """Where the share is, as one writes it for ``mount``."""
    data = place.data
    if place.kind == "nfs":
        host = data.get("server") or data.get("address", "")
        return f"{host}:{data.get('path') or data.get('rootPath') or '/'}"
    if place.kind == "samba":
        return str(data.get("address", "")).rstrip("/") + str(data.get("rootPath", ""))
    if place.kind == "azurefile":
        host = data.get("dataStore") or f"{data.get('accountName', '')}.file.core.windows.net"
        return f"//{host}/{data.get('shareName') or data.get('fileShare', '')}"
    return ""


def _folder(place: Place) -> Path | None:
    """By the storage's own name, else by the longest address that leads to it."""
    known = dict(place.mounts)
    own = known.get(f"{place.cluster}/{place.name}")
    if own is not None:
        return Path(own)
    wanted = address(place)
    for what in sorted(known, key=len, reverse=True):
        below = wanted.removeprefix(what)
        if wanted.startswith(what) and (not below or below.startswith("/") or what.endswith("/")):
            return Path(known[what], below.strip("/"))
    return None
