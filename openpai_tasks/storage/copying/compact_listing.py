"""A compact form of a folder's entries, as there may be a million of them."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from openpai_tasks.storage.store import Digest, Entry, join

END = b"\0"  # terminates a name, which cannot contain it
FACTS = struct.Struct("<qqB")  # size, time, flags; the kind and value of a digest may follow
FOLDER, LINK, SPECIAL, ARRIVAL, WHOLE_SECOND = 1, 2, 4, 8, 16
TEXT = ("utf-8", "surrogatepass")  # names that are not valid text survive the round trip


class CompactListing:
    """The entries of a folder by name, with only the fields that decide whether a file is copied."""

    def __init__(self, folder: str, entries: Iterable[Entry] = ()) -> None:
        self._folder = folder
        self._rows = sorted(map(_row, entries))
        self._is_taken = bytearray(len(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Entry]:
        return map(self._entry, self._rows)

    def pop(self, name: str) -> Entry | None:
        """Return the entry with this name; ``drop_popped`` frees its memory."""
        key, found = name.encode(*TEXT) + END, None
        at = bisect_left(self._rows, key)
        while at < len(self._rows) and self._rows[at].startswith(key):  # a bucket may list it twice
            self._is_taken[at], found = 1, self._entry(self._rows[at])
            at += 1
        return found

    def drop_popped(self) -> None:
        """Keep only the entries that were not popped."""
        self._rows = [row for row, is_taken in zip(self._rows, self._is_taken, strict=True) if not is_taken]
        self._is_taken = bytearray(len(self._rows))

    def _entry(self, row: bytes) -> Entry:
        encoded, _, facts = row.partition(END)
        size, mtime_ms, flags = FACTS.unpack_from(facts)
        name = encoded.decode(*TEXT)
        return Entry(
            name,
            join(self._folder, name),
            flags & FOLDER > 0,
            size,
            mtime_ms,
            flags & LINK > 0,
            is_special=flags & SPECIAL > 0,
            digest=_digest(facts) if len(facts) > FACTS.size else None,
            is_arrival=flags & ARRIVAL > 0,
            is_whole_second=flags & WHOLE_SECOND > 0,
        )


def _row(entry: Entry) -> bytes:
    flags = FOLDER * entry.is_folder | LINK * entry.is_link | SPECIAL * entry.is_special
    flags |= ARRIVAL * entry.is_arrival | WHOLE_SECOND * entry.is_whole_second
    digest = f"{entry.digest.kind} {entry.digest.value}".encode() if entry.digest else b""
    return entry.name.encode(*TEXT) + END + FACTS.pack(entry.size, entry.mtime_ms, flags) + digest


def _digest(facts: bytes) -> Digest:
    return Digest(*facts[FACTS.size :].decode().split(" ", 1))
