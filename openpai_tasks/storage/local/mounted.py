"""Storages that are mounted on this machine: NFS, Samba and whatever else the mount map names."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.copying.plan import is_below
from openpai_tasks.storage.local.real import real_path
from openpai_tasks.storage.local.store import LocalStore, users_part
from openpai_tasks.storage.store import Place

SETTING = "storage.mounts"


def open_store(place: Place) -> LocalStore:
    """The folder that the storage is mounted at, if the mount map knows it.

    What holds the share may be another's, with links in it: whatever they lead to outside of it is refused.
    """
    found = _found(place)
    if found is None:
        raise ConfigError(
            f"storage {place.name!r} of {place.cluster!r} is a share of type {place.kind!r}: mount it "
            f"and tell where with `{hint(place)}`"
        )
    mount, root = found
    if not root.is_dir():
        raise ConfigError(f"{SETTING}: {root} is no folder, so storage {place.name!r} is not mounted there")
    _refuse_outside(mount, root, place)
    part = users_part(root, place)
    try:
        part.mkdir(exist_ok=True)
    except OSError as err:
        raise ConfigError(f"cannot make your folder {part}: {err.strerror}") from err
    store = LocalStore(str(part), place.read_only)
    _refuse_outside(mount, Path(store.root), place)
    return store


def hint(place: Place) -> str:
    """The command that tells where the share is mounted."""
    return f"config.set {shlex.quote(f'{SETTING}={place.cluster}/{place.name}=FOLDER')}"


def is_mounted(place: Place) -> bool:
    """Whether the mount map knows it."""
    return _found(place) is not None


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
        share = str(data.get("address", "")).rstrip("/") + str(data.get("rootPath", ""))
        return share.replace("\\", "/")
    if place.kind == "azurefile":
        host = data.get("dataStore") or f"{data.get('accountName', '')}.file.core.windows.net"
        return f"//{host}/{data.get('shareName') or data.get('fileShare', '')}"
    return ""


def _found(place: Place) -> tuple[Path, Path] | None:
    """The mount and the share's folder in it: by the storage's name, else by the longest address."""
    known = dict(place.mounts)
    own = known.get(f"{place.cluster}/{place.name}")
    if own is not None:
        return Path(own), Path(own)
    wanted = address(place)
    for what in sorted(known, key=len, reverse=True):
        below = wanted.removeprefix(what)
        if wanted.startswith(what) and (not below or below.startswith("/") or what.endswith("/")):
            return Path(known[what]), Path(known[what], *_names(below, place))
    return None


def _names(below: str, place: Place) -> list[str]:
    """The names of a path that a cluster tells, if they cannot lead out of the mount."""
    names = [name for name in below.split("/") if name not in ("", ".")]
    if any(name == ".." or "\\" in name or not name.isprintable() for name in names):
        raise PathError(
            f"storage {place.name!r} of {place.cluster!r} names {below!r} below its mount: refused, as '..', "
            "backslashes and control characters could lead elsewhere"
        )
    return names


def _refuse_outside(mount: Path, folder: Path, place: Place) -> None:
    if not is_below(real_path(str(folder)), real_path(str(mount))):
        raise PathError(
            f"storage {place.name!r} of {place.cluster!r}: {folder} is a link that leads out of {mount}, "
            "where it is mounted; refused"
        )
