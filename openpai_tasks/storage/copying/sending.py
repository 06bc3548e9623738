"""Send the bytes of one file, and verify that they arrived unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.resume import is_near
from openpai_tasks.storage.retry import Damaged
from openpai_tasks.storage.store import (
    Appends,
    ChecksBytes,
    Digest,
    Entry,
    Hasher,
    ReadsChanges,
    SetsModes,
    Store,
    WritesWhole,
)


@dataclass()
class Transfer:
    """Pieces being sent: counted, hashed and reported to the watch."""

    pieces: Iterable[bytes]
    watch: Watch
    hashers: tuple[Hasher, ...] = ()
    size: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.watch.check()
            for hasher in self.hashers:
                hasher.update(piece)
            self.size += len(piece)
            self.watch.moved(len(piece))
            yield piece


class Sending:
    """One try to send one file; ``size`` is the number of bytes sent."""

    def __init__(self, source: Store, entry: Entry, target: Store, watch: Watch) -> None:
        self._source, self._entry, self._target, self._watch = source, entry, target, watch
        self._digest: Digest | None = None  # of the source, if it is not checked in transit
        self._at_source: Hasher | None = None
        self._passing = Transfer((), watch)

    @property
    def size(self) -> int:
        return self._passing.size

    def into_whole(self, target: WritesWhole, path: str) -> None:
        self._start(0)
        entry = self._entry
        target.write_whole(path, self._passing, entry.size, entry.mtime_ms, self._check)

    def into_part(self, part: str, is_old: bool, can_go_on: bool, replaced: str) -> None:
        """Write the part and verify it; continue a part of an earlier try.

        ``replaced`` is the path of the file that it will replace, if there is one.
        """
        target, size = self._target, self._entry.size
        begun = target.broken_off(part) if is_old and isinstance(target, Appends) else 0
        is_checked = self._start(begun if begun <= size else 0, replaced)
        if (
            not self.size
            and isinstance(target, ChecksBytes)
            and target.write_checked(part, self._passing, size)
        ):
            return self._check()
        is_resumed = self.size > 0
        is_needed = target.knows_digests or not (is_checked or self._at_source)
        hasher = target.hasher() if is_needed and (is_resumed or not is_near(target)) else None
        if hasher:
            self._passing.hashers += (hasher,)
        if can_go_on and isinstance(target, Appends):
            self._go_on(target, part)
        else:
            target.write(part, self._passing, size)
        self._check()
        verify(target, part, self.size, hasher)

    def _start(self, begun: int, replaced: str = "") -> bool:
        """Open the source at the end of the target's part; return whether the transfer verifies the bytes."""
        source, entry = self._source, self._entry
        # A file system: files that claim to be empty may have content (/proc).
        may_lie = isinstance(source, SetsModes)
        most = max(entry.size, 1) if may_lie else entry.size
        checked = self._changes(replaced, most) if replaced and not begun else None
        if not begun and checked is None and isinstance(source, ChecksBytes):
            checked = source.read_checked(entry.path, most)
        if checked is None and source.knows_digests:
            self._digest = entry.digest or source.digest(entry.path)
            self._at_source = source.hasher(self._digest.kind) if self._digest else None
        if not (is_near(source) or self._at_source):
            begun = 0  # nothing could verify the beginning
        pieces = source.read(entry.path, begun, most - begun) if checked is None else checked
        hashers = (self._at_source,) if self._at_source else ()
        self._passing = Transfer(pieces, self._watch, hashers, begun)
        self._watch.moved(begun)
        return checked is not None

    def _changes(self, replaced: str, size: int) -> Iterator[bytes] | None:
        """Return the bytes of the source, if it can take those that have not changed from the target."""
        source, target = self._source, self._target
        if not (isinstance(source, ReadsChanges) and is_near(target)):
            return None
        there = target.stat(replaced)
        if there is None or there.is_folder or there.is_link or there.is_special:
            return None
        return source.read_changed(
            self._entry.path, size, lambda offset, length: b"".join(target.read(replaced, offset, length))
        )

    def _go_on(self, target: Appends, part: str) -> None:
        """Append the missing bytes; hash those that are there if that is cheap, to verify the whole file."""
        begun, size = self.size, self._entry.size
        if not begun:
            self._target.write(part, (), 0)
        near, path = (self._source, self._entry.path) if is_near(self._source) else (self._target, part)
        for piece in near.read(path, 0, begun):
            self._watch.check()
            for hasher in self._passing.hashers:
                hasher.update(piece)
        if begun < size:
            target.append(part, self._passing, size - begun)

    def _check(self) -> None:
        """Raise Damaged unless the source was read completely and has not changed."""
        entry = self._entry
        if self.size != entry.size:
            raise Damaged(f"{entry.path}: got {self.size} of {entry.size} bytes; it changed or was truncated")
        _refuse_changed(self._source, entry)
        if self._at_source and self._digest:
            _compare(self._at_source.digest(), self._digest, entry.path)


def verify(store: Store, part: str, size: int, hasher: Hasher | None) -> None:
    there = store.stat(part)
    if there is None or there.size != size:
        count = "nothing" if there is None else f"{there.size} bytes"
        raise Damaged(f"{part}: {count} arrived of {size} bytes")
    if hasher is None:
        return
    theirs, ours = store.digest(part), hasher.digest()
    if (
        theirs is not None and theirs.kind == ours.kind
    ):  # other kinds cannot be compared: the size must suffice
        _compare(ours, theirs, part)


def _compare(ours: Digest, theirs: Digest, path: str) -> None:
    if ours != theirs:
        raise Damaged(f"{path}: damaged in transit ({theirs.kind} {theirs.value} instead of {ours.value})")


def _refuse_changed(source: Store, entry: Entry) -> None:
    now = source.stat(entry.path)
    has_versions = bool(entry.version and now and now.version)  # otherwise, only its time shows a change
    if (
        now is None
        or now.size != entry.size
        or (now.version != entry.version if has_versions else now.mtime_ms != entry.mtime_ms)
    ):
        raise Damaged(f"{entry.path}: it changed while it was copied")
