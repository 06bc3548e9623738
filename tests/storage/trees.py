"""Trees of files in any store, as plain dicts: a name to its bytes, a name with a slash to None."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.local import store as local_store
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import parent

Tree = Mapping[str, bytes | None]


def plant(root: Location, tree: Tree) -> None:
    paths = {f"{root.path.rstrip('/')}/{name.rstrip('/')}": content for name, content in tree.items()}
    folders = {path if content is None else parent(path) for path, content in paths.items()}
    for folder in folders:
        if not any(other.startswith(f"{folder.rstrip('/')}/") for other in folders - {folder}):
            root.store.make_folder(folder)  # and its parents
    for path, content in paths.items():
        if content is not None:
            root.store.write(path, [content], len(content))


def seen(root: Location) -> dict[str, bytes | None]:
    """The files and the empty folders; other folders appear through their content."""
    found = list(walk(root, parts=True))
    full = {item.name.rpartition("/")[0] for item in found}
    tree: dict[str, bytes | None] = {}
    for item in found:
        if not item.entry.is_folder:
            tree[item.name] = b"".join(root.store.read(item.entry.path))
        elif item.name not in full:
            tree[item.name + "/"] = None
    return tree


def at(root: Location, text: str) -> Location:
    """The location that a user gets who types ``text`` in that folder."""
    names = [name for name in text.split("/") if name not in ("", ".")]
    place = root.join(*names) if names else root
    return Location(
        place.store, place.path, place.url, text.endswith("/"), text == "." or text.endswith("/.")
    )


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    local_store.umask.cache_clear()  # it is read at most once a second
    try:
        yield
    finally:
        os.umask(before)
        local_store.umask.cache_clear()
