"""What tells a folder of this machine under all its names, those that mounts give it too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from openpai_tasks.storage.store import join

MOUNTS = "/proc/self/mountinfo"
ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A folder of a file system, ``root``, and the place where it is seen."""

    device: str
    root: str
    place: str


def numbers(path: str, above: bool) -> set[str]:
    """The number of the folder, by a path without links; ``above``: also those of all folders it is in."""
    folders = _holding(path) if above else iter([path])
    return {number for folder in folders if (number := _number(folder))}


def number_of(facts: os.stat_result) -> str:
    """That of the folder in its file system, and of this one."""
    return f"{facts.st_dev}:{facts.st_ino}"


def _holding(path: str) -> Iterator[str]:
    """The folder and all above it, also where one of them is mounted here from another place."""
    yield from _upwards(path)
    mounts = _mounts()
    for mount in mounts:
        if mount.root != "/" and _is_below(path, mount.place):
            for other in mounts:
                yield from _upwards(_seen_by(other, mount))


def _seen_by(other: Mount, mount: Mount) -> str:
    """Where the other mount shows what this one shows, if it does."""
    if other.device != mount.device or not _is_below(mount.root, other.root):
        return "/"
    place = join(other.place, mount.root[len(other.root.rstrip("/")) :].lstrip("/")).rstrip("/")
    return place if place and _number(place) == _number(mount.place) else "/"


def _number(path: str) -> str:
    try:
        return number_of(os.stat(path))
    except OSError:  # it is not there
        return ""


def _mounts() -> list[Mount]:
    """Nothing where the system does not tell."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            return [Mount(*map(_plain, line.split(" ")[2:5])) for line in lines]
    except OSError:
        return []


def _plain(text: str) -> str:
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _upwards(path: str) -> Iterator[str]:
    """The path and all above it, up to the root."""
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield path
