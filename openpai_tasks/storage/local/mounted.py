"""Shares that are mounted on this machine, as the setting storage.mounts lists them."""

from __future__ import annotations

import os
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.local.identity import real_path
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import Mounts, StorageSpec, is_below
from openpai_tasks.text.hints import command

SETTING = "storage.mounts"


def open_mounted(spec: StorageSpec, address: str) -> LocalStore:
    """Open the folder where the share with this address is mounted; its symlinks must not lead outside."""
    store = open_if_mounted(spec, address)
    if store is None:
        raise ConfigError(
            f"{spec.title} is a share of type {spec.kind!r}: mount it, then say where with `{hint(spec)}`"
        )
    return store


def open_if_mounted(spec: StorageSpec, address: str) -> LocalStore | None:
    """Open the share in the same way; None if the mount map has neither the storage nor its address."""
    found = _find(spec, address)
    if found is None:
        return None
    mount, root = found
    if not root.is_dir():
        raise ConfigError(f"{spec.title} is not mounted: {root}, where {SETTING} expects it, is not a folder")
    _check_inside(mount, root, spec)
    folder = Path(spec.users_folder(str(root)))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as err:
        raise ConfigError(f"cannot create your folder {folder}: {err.strerror}") from err
    store = LocalStore(str(folder), spec.read_only)
    _check_inside(mount, Path(store.root), spec)
    return store


def hint(spec: StorageSpec) -> str:
    """Return the command that sets where the share is mounted."""
    return command("config.set", f"{SETTING}={spec.cluster}/{spec.name}=FOLDER")


def mount_map(rows: tuple[str, ...]) -> Mounts:
    """Parse the rows ``WHAT=FOLDER`` of the settings."""
    pairs = []
    for row in rows:
        what, equals, folder = row.rpartition("=")
        if not equals or not what or not os.path.isabs(os.path.expanduser(folder)):
            raise ConfigError(f"{SETTING}: {row!r} must be WHAT=FOLDER, with an absolute folder")
        pairs.append((what, os.path.expanduser(folder)))
    return tuple(pairs)


def _find(spec: StorageSpec, address: str) -> tuple[Path, Path] | None:
    """Return the mount and the share's folder in it: by the storage's name, else by the longest address."""
    known = dict(spec.mounts)
    named = known.get(f"{spec.cluster}/{spec.name}")
    if named is not None:
        return Path(named), Path(named)
    for what in sorted(known, key=len, reverse=True):
        below = address.removeprefix(what)
        if address.startswith(what) and (not below or below.startswith("/") or what.endswith("/")):
            return Path(known[what]), Path(known[what], *_names(below, spec))
    return None


def _names(below: str, spec: StorageSpec) -> list[str]:
    """Return the names in a path from a cluster; raise if they could point outside the mount."""
    names = [name for name in below.split("/") if name not in ("", ".")]
    if any(name == ".." or "\\" in name or not name.isprintable() for name in names):
        raise PathError(
            f"{spec.title} names {below!r} below its mount: refused, as '..', backslashes and control "
            "characters could lead elsewhere"
        )
    return names


def _check_inside(mount: Path, folder: Path, spec: StorageSpec) -> None:
    if not is_below(real_path(str(folder)), real_path(str(mount))):
        raise PathError(
            f"{spec.title}: {folder} is a link that leads out of {mount}, where it is mounted; refused"
        )
