"""Whether a copy's source and target are one place, for stores that cannot tell by themselves.

A server may serve a folder that is also mounted here, or have two names. Then a file that is written at the
target for a moment appears in the source, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.plan import CopyItem
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import KnowsPlaces, Store, join, parent


def can_tell(source: Store, target: Store) -> bool:
    """Whether the stores know without a test which of their folders are the same."""
    return source.kind == target.kind and isinstance(source, KnowsPlaces)


def is_one_of(target: Store, folder: str, source: Store, places: Iterable[str]) -> bool:
    """Test whether the target's folder is one of these folders of the source."""
    name = part_name()
    mark = join(folder, name)
    try:
        target.write(mark, (), 0)
    except PaiError:  # nothing can be written there, so the copy does no harm either
        return False
    try:
        return any(_has(source, join(place, name)) for place in places)
    finally:
        with contextlib.suppress(PaiError):
            retrying(partial(target.remove, mark))


def _has(store: Store, path: str) -> bool:
    with contextlib.suppress(PaiError):  # folders above the source may belong to others
        return store.stat(path) is not None
    return False


def refuse_hidden_loss(item: CopyItem) -> None:
    """Refuse to delete in a folder that the source is in, under another name."""
    source, target = item.source, item.target
    if can_tell(source.store, target.store) or target.store.stat(target.path) is None:
        return
    above = [source.path]
    while above[-1] != "/":
        above.append(parent(above[-1]))
    if is_one_of(target.store, target.path, source.store, above):
        raise PathError(f"{source.url} is in {target.url}: deleting there would remove the source")
