"""One file from store to store: under another name first, verified, and only then under its own."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from openpai_tasks.errors import NotFound, PaiError, PathError
from openpai_tasks.storage.progress import Watch
from openpai_tasks.storage.retry import Damaged, retrying
from openpai_tasks.storage.store import (
    Digest,
    Entry,
    Hasher,
    KeepsModes,
    SetsModes,
    Store,
    fingerprint,
    join,
    parent,
)

PART = ".pai-part-"
"""What the name of a file that is still being written begins with; when it was begun follows, then chance."""
PART_NAME = re.compile(re.escape(PART) + r"([0-9a-f]{8})[0-9a-f]{8}")
DAY = 24 * 3600


@dataclass
class Passing:
    """Pieces on their way: counted, hashed and told of."""

    pieces: Iterable[bytes]
    watch: Watch
    hashers: tuple[Hasher, ...] = ()
    size: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.watch.check()
            for hasher in self.hashers:
                hasher.update(piece)
            self.size += len(piece)
            self.watch.moved(len(piece))
            yield piece


def transfer(source: Store, entry: Entry, target: Store, path: str, watch: Watch) -> int:
    """Copy one file, with other tries where they can help; the source is looked at anew for each.

    How many bytes it has in the end.
    """
    known: list[Entry] = [entry]

    def once() -> int:
        now = known.pop() if known else source.stat(entry.path)
        if now is None:
            raise NotFound(f"{entry.path}: gone while it was copied", 404)
        _once(source, now, target, path, watch)
        return now.size

    return retrying(once, watch.wait)


def _once(source: Store, entry: Entry, target: Store, path: str, watch: Watch) -> None:
    told = source.digest(entry.path) if source.knows_digests else None
    at_source = source.hasher(told.kind) if told else None
    at_target = target.hasher() if target.knows_digests or at_source is None else None
    hashers = tuple(hasher for hasher in (at_source, at_target) if hasher)
    most = max(entry.size, 1)  # what claims to be empty may not be (/proc)
    passing = Passing(source.read(entry.path, 0, most), watch, hashers)
    with _part(target, path) as part:
        try:
            target.write(part, passing, entry.size)
            if passing.size != entry.size:
                raise Damaged(
                    f"{entry.path}: {passing.size} bytes came of {entry.size}; it changed, or was cut"
                )
            _refuse_changed(source, entry)
            if at_source and told:
                _compare(at_source.digest(), told, entry.path)
            _verify(target, part, passing.size, at_target)
            target.set_mtime(part, entry.mtime_ms)
            _set_mode(target, part, path, entry)
        except BaseException:
            watch.moved(-passing.size)
            raise


def put(store: Store, path: str, pieces: Iterable[bytes], size: int | None = None) -> int:
    """Write a file from pieces that come only once, complete or not at all; how many bytes it has."""
    there = store.stat(path)
    if there is not None and there.is_special:
        raise PathError(f"{path} is neither a file nor a folder")
    hasher = store.hasher()
    passing = Passing(pieces, Watch(), (hasher,) if hasher else ())
    with _part(store, path) as part:
        store.write(part, passing, size)
        _verify(store, part, passing.size, hasher)
        _set_mode(store, part, path)
    return passing.size


def is_part(entry: Entry) -> bool:
    """Whether it is a file that is being written, or was when its copy was killed."""
    return not (entry.is_folder or entry.is_link) and PART_NAME.fullmatch(entry.name) is not None


def is_stale(part: Entry) -> bool:
    """Whether it was begun long ago, by its name: its time may be the source's already."""
    named = PART_NAME.fullmatch(part.name)
    return named is not None and time.time() - int(named[1], 16) > DAY


def part_name() -> str:
    return f"{PART}{int(time.time()):08x}{secrets.token_hex(4)}"


@contextlib.contextmanager
def _part(store: Store, path: str) -> Iterator[str]:
    """Another name in the same folder; the file gets its own at the end, or is removed."""
    part = join(parent(path), part_name())
    try:
        yield part
        store.rename(part, path)
    except BaseException:
        with contextlib.suppress(PaiError):
            store.remove(part)
        raise


def _verify(store: Store, part: str, size: int, hasher: Hasher | None) -> None:
    there = store.stat(part)
    if there is None or there.size != size:
        count = "nothing" if there is None else f"{there.size} bytes"
        raise Damaged(f"{part}: {count} arrived of {size} bytes")
    if hasher is None:
        return
    told, ours = store.digest(part), hasher.digest()
    if told is not None and told.kind == ours.kind:  # another kind cannot be compared: the length has to do
        _compare(ours, told, part)


def _compare(ours: Digest, told: Digest, path: str) -> None:
    if ours != told:
        raise Damaged(f"{path}: damaged on the way ({told.kind} {told.value} instead of {ours.value})")


def _refuse_changed(source: Store, entry: Entry) -> None:
    now = source.stat(entry.path)
    if now is None or (now.size, now.mtime_ms) != (entry.size, entry.mtime_ms):
        raise Damaged(f"{entry.path}: it changed while it was copied")


def _set_mode(store: Store, part: str, path: str, entry: Entry | None = None) -> None:
    """The mode of the file that is replaced; a new one gets the source's, or the usual one."""
    if isinstance(store, SetsModes):
        there = store.stat(path)
        kept = there.mode if there is not None and not there.is_link else None
        store.set_mode(part, store.allowed(_mode(entry)) if kept is None else kept)
    elif entry is not None and entry.is_executable and isinstance(store, KeepsModes):
        store.make_executable(part)


def _mode(entry: Entry | None) -> int:
    if entry is None:
        return 0o666
    usual = 0o777 if entry.is_executable else 0o666
    return usual if entry.mode is None else entry.mode


def is_same(source: Store, entry: Entry, target: Store, there: Entry, checksum: bool) -> bool:
    """Whether the file is there already: by size and time, or by its content."""
    if there.is_folder or there.is_link or there.size != entry.size:
        return False
    if not checksum:
        return there.mtime_ms == entry.mtime_ms
    told = target.digest(there.path)
    if told is None:
        return False
    if source.knows_digests:
        other = source.digest(entry.path)
        if other is not None and other.kind == told.kind:
            return other == told
    hasher = target.hasher(told.kind)
    return hasher is not None and fingerprint(hasher, source.read(entry.path)) == told
