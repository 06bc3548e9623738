"""Patterns such as ``data/*/part-?.csv``, looked up in any store."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import base, parent

MAGIC = re.compile(r"[*?\[]")


def sources(place: Location) -> list[Location]:
    """What is meant by a source: the file with exactly this name, else what the pattern fits."""
    if place.store.stat(place.path) is not None:
        return [place]
    if MAGIC.search(place.path):
        found = sorted(matches(place), key=lambda match: match.path)
        if found:
            return found
        raise NotFound(f"{place.url}: nothing fits this pattern", 404)
    raise NotFound(f"{place.url}: no such file or folder", 404)


def target(place: Location) -> Location:
    """What is meant by a target: a pattern stands for the one thing it fits, or else for its own letters."""
    if not MAGIC.search(place.path) or place.store.stat(place.path) is not None:
        return place
    found = list(matches(place))
    if len(found) > 1:
        raise PathError(f"{place.url}: the target fits {len(found)} names; it must be one")
    return found[0] if found else place


def matches(place: Location) -> Iterator[Location]:
    """Everything the pattern fits; as in a shell, ``*`` finds no hidden names."""
    names = place.path.strip("/").split("/")
    plain = next((number for number, name in enumerate(names) if MAGIC.search(name)), len(names))
    start = place
    for _ in names[plain:]:
        start = Location(start.store, parent(start.path), start.url.rstrip("/").rpartition("/")[0])
    yield from _below(start, names[plain:])


def _below(folder: Location, names: list[str]) -> Iterator[Location]:
    if not names:
        yield folder
        return
    name, rest = names[0], names[1:]
    if not MAGIC.search(name):
        inner = folder.join(name)
        if inner.store.stat(inner.path) is not None:
            yield from _below(inner, rest)
        return
    entry = folder.store.stat(folder.path)
    if entry is None or not entry.is_folder:
        return
    for entry in folder.store.list(folder.path):
        if fits(entry.name, name) and (not rest or entry.is_folder):
            yield from _below(folder.join(base(entry.path)), rest)


def fits(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)
