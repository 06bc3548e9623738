"""Expand patterns such as ``data/*/part-?.csv`` in any store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from openpai_tasks.errors import NoSuchPath, PathError
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import PART, is_part
from openpai_tasks.storage.store import Entry, base, parent
from openpai_tasks.text import wildcards

MAGIC = re.compile(r"[*?\[]")


def sources(place: Location) -> list[Location]:
    """Return the sources of a path: the file with exactly this name, or else the matches of the pattern."""
    if place.store.stat(place.path) is not None:
        return [place]
    if MAGIC.search(place.path):
        found = sorted(matches(place), key=lambda match: match.path)
        if found:
            return found
        raise NoSuchPath(f"{place.url}: nothing matches this pattern")
    raise NoSuchPath(f"{place.url}: no such file or folder")


def target(place: Location) -> Location:
    """Return the target of a path: the only match of a pattern, or else the plain name."""
    if not MAGIC.search(place.path) or place.store.stat(place.path) is not None:
        return place
    found = list(matches(place)) or list(matches(place, any_kind=True))  # the caller reports a file there
    if len(found) > 1:
        raise PathError(f"{place.url}: the target matches {len(found)} names; it must match one")
    return found[0] if found else place


def matches(place: Location, any_kind: bool = False) -> Iterator[Location]:
    """Yield all matches of the pattern.

    As in a shell, ``*`` skips hidden names, and ``*/`` finds only folders. Unfinished files are found only by
    a pattern that begins like their names.
    """
    start, names = place, list[str]()
    while MAGIC.search(start.path) and start.store.stat(start.path) is None:
        names.insert(0, start.name)
        start = Location(start.store, parent(start.path), start.url.rstrip("/").rpartition("/")[0])
    folders = (place.is_folder or place.is_content) and not any_kind
    for match in _expand(start, names, folders):
        yield replace(match, is_folder=place.is_folder, is_content=place.is_content)


def _expand(folder: Location, names: list[str], folders: bool) -> Iterator[Location]:
    if not names:
        yield folder
        return
    name, rest = names[0], names[1:]
    for entry in _list_matching(folder, name):
        if entry.is_folder or not (rest or folders):
            yield from _expand(folder.join(base(entry.path)), rest, folders)


def _list_matching(folder: Location, name: str) -> Iterator[Entry]:
    """Yield the entries of the folder that have this name or match it."""
    if not MAGIC.search(name):
        inner = folder.store.stat(folder.join(name).path)
        yield from [inner] if inner is not None else []
        return
    entry = folder.store.stat(folder.path)
    if entry is not None and entry.is_folder:
        for found in folder.store.list(folder.path):
            if fits(found.name, name) and (name.startswith(PART) or not is_part(found)):
                yield found


def fits(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and wildcards.matches(name, pattern)
