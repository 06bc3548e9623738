"""Resolve local paths, and recognise the same folder under different names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from openpai_tasks.storage.store import is_below, join

MOUNTS = "/proc/self/mountinfo"
ESCAPED = re.compile(r"\\([0-7]{3})")


class MountPoint(NamedTuple):
    """The folder ``root`` of a file system, and the path where it is mounted."""

    device: str
    root: str
    path: str


def identities(path: str, above: bool) -> set[str]:
    """Return the identity of the folder at a path without symlinks; ``above``: also of all folders above."""
    folders = _parents(path) if above else iter([path])
    return {number for folder in folders if (number := _identity(folder))}


def identity_of(facts: os.stat_result) -> str:
    """Return the number of the file system and of the folder in it."""
    return f"{facts.st_dev}:{facts.st_ino}"


def _parents(path: str) -> Iterator[str]:
    """Yield the folder and all folders above it, also where one of them is mounted a second time."""
    yield from _upwards(path)
    mounts = set(_mounts())
    for mount in mounts:
        if mount.root != "/" and is_below(path, mount.path):
            for other in mounts:
                yield from _upwards(_seen_by(other, mount))


def _seen_by(other: MountPoint, mount: MountPoint) -> str:
    """Return the path where the other mount shows the same folder, or ``/``."""
    if other.device != mount.device or not is_below(mount.root, other.root):
        return "/"
    place = join(other.path, mount.root[len(other.root.rstrip("/")) :].lstrip("/")).rstrip("/")
    return place if place and _identity(place) == _identity(mount.path) else "/"


def _identity(path: str) -> str:
    try:
        return identity_of(os.stat(path))
    except OSError:  # it does not exist
        return ""


def _mounts() -> list[MountPoint]:
    """Return the mounts of this machine; empty if unknown."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            return [MountPoint(*map(_plain, line.split(" ")[2:5])) for line in lines]
    except OSError:
        return []


def _plain(text: str) -> str:
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _upwards(path: str) -> Iterator[str]:
    """Yield the path and all folders above it, up to the root."""
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield path


def real_path(path: str) -> str:
    """Like ``os.path.realpath``, but with three system calls on Linux, however deep the path is."""
    found, missing = path, []
    while not os.path.lexists(found) and found != os.path.dirname(found):
        found, name = os.path.split(found)
        missing += [name] if name else []
    if {os.curdir, os.pardir} & {*missing}:
        return os.path.realpath(path)
    real = _resolve(found)
    return join(real, "/".join(reversed(missing))) if missing else real


def _resolve(path: str) -> str:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (AttributeError, OSError):  # another system, or a dangling symlink
        return os.path.realpath(path)
    try:
        real = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:  # no /proc, or the path is too long
        return os.path.realpath(path)
    finally:
        os.close(handle)
    return real if real.startswith("/") and os.path.lexists(real) else os.path.realpath(path)
