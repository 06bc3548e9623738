"""What copies that were killed left behind, removed by those that come after."""

from __future__ import annotations

import contextlib
import itertools

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying.transfer import is_part, is_stale
from openpai_tasks.storage.store import Entry, Store, WritesWhole

LOOKED_AT = 1000
"""So many names of a folder are looked at when only single files go there: what one request brings."""


def clear_stale(store: Store, folder: str) -> None:
    """Remove old parts from the folder, as far as one look shows them."""
    if isinstance(store, WritesWhole):  # which has none
        return
    with contextlib.suppress(PaiError):  # who may not look may still write
        for entry in itertools.islice(store.list(folder), LOOKED_AT):
            if is_part(entry):
                remove_stale(store, entry)


def remove_stale(store: Store, part: Entry) -> None:
    """Remove the part if nobody is at it any more."""
    with contextlib.suppress(PaiError):
        if is_stale(part):
            store.remove(part.path)
