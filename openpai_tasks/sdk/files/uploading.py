"""Write files that arrive in a stream, such as those of a browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.store import parent


def upload(place: Location, pieces: Iterable[bytes], size: int | None = None, replace: bool = False) -> int:
    """Write a file, complete or not at all, and its missing folders; return its size.

    An existing file stays as it is unless it may be replaced.
    """
    if place.is_root:
        raise PathError(f"{place.url} is a folder, not a file")
    with naming(place):
        there = place.store.stat(place.path)
        if there is not None and there.is_folder and not there.is_link:
            raise PathError(f"{place.url} is a folder, not a file")
        if there is not None and not replace:
            raise ConfigError(f"{place.url} exists already")
        place.store.make_folder(parent(place.path))
        return put(place.store, place.path, _Once(pieces), size)


class _Once:
    """A source for the first try only: a stream cannot be read again."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._left = [pieces]

    def __call__(self) -> Iterable[bytes]:
        if not self._left:
            raise PathError(
                "the storage broke off while it was written: nothing is kept, send the file again"
            )
        return self._left.pop()


def find_existing(folder: Location, paths: Sequence[Sequence[str]]) -> list[str]:
    """Return those of the paths below the folder that exist; each folder is listed once."""
    wanted: dict[str, dict[str, str]] = {}
    for names in paths:
        place = folder.join(*names)
        wanted.setdefault(parent(place.path), {})[place.name] = "/".join(names)
    found: list[str] = []
    with naming(folder):
        for above, names_there in wanted.items():
            there = folder.store.stat(above)
            if there is not None and there.is_folder:
                listed = {entry.name for entry in folder.store.list(above)}
                found += [path for name, path in names_there.items() if name in listed]
    return found
