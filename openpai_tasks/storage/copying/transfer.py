"""Copy one file: write it under a temporary name, verify it, then rename it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator

from openpai_tasks.errors import NoSuchPath, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import claiming, is_running, keep_claim, part_name
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.resume import ResumeNote, is_broken_off, is_local, is_resumed, open_note
from openpai_tasks.storage.parts import PART_NAME, is_part
from openpai_tasks.storage.retry import CorruptData, retrying, wait_before_retry
from openpai_tasks.storage.store import (
    Appends,
    ChecksBytes,
    Digest,
    Entry,
    Hasher,
    KeepsModes,
    ReadsChanges,
    ReadsVersions,
    SetsModes,
    Store,
    WritesWhole,
    base,
    is_closed,
    join,
    parent,
)
from openpai_tasks.text.plain import one_line

DAY, WEEK = 24 * 3600, 7 * 24 * 3600
GROWN = 60
"""Seconds after its start from which the time of a part shows that it has grown."""
LOOKED_AT = 1000
"""Names to check in a folder that only gets single files: as many as one request returns."""


def transfer(source: Store, entry: Entry, target: Store, path: str, watch: Watch) -> int:
    """Copy one file, with retries that look up the source again; return its final size in bytes."""
    known: list[Entry] = [entry]

    def once() -> int:
        opened = source.one_file() if isinstance(source, ReadsVersions) else source
        now = known.pop() if known and not entry.is_arrival else opened.stat(entry.path)
        if now is None:
            raise NoSuchPath(f"{entry.path}: it disappeared while it was copied")
        _try_once(opened, now, target, path, watch, failed)
        return now.size

    with _failed_parts(target) as failed:
        return retrying(once, watch.wait)


def _try_once(source: Store, entry: Entry, target: Store, path: str, watch: Watch, failed: list[str]) -> None:
    if is_closed(entry.mode) and isinstance(target, KeepsModes):
        target = target.closed
    sending = CopyAttempt(source, entry, target, watch)
    try:
        if isinstance(target, WritesWhole):
            sending.into_whole(target, path)
            return
        with (
            open_note(source, entry, target, path) as note,
            _part(target, path, failed, note, entry) as (part, is_old),
        ):
            try:
                sending.into_part(part, is_old, can_resume=note is not None, replaced=path)
            except BaseException:
                if note and not (is_old or sending.size):
                    note.forget()  # there is nothing to continue
                raise
    except BaseException:
        watch.moved(-sending.size)
        raise


def put(
    store: Store,
    path: str,
    begin: Callable[[], Iterable[bytes]],
    size: int | None = None,
    wait: Callable[[float], bool] = wait_before_retry,
) -> int:
    """Write a file, complete or not at all, and return its size; retry failures if that can help.

    ``begin`` yields the pieces, from the first one on, for each try.
    """
    with _failed_parts(store) as failed:
        return retrying(lambda: _put_once(store, path, begin(), size, failed), wait)


def _put_once(store: Store, path: str, pieces: Iterable[bytes], size: int | None, failed: list[str]) -> int:
    there = store.stat(path)
    if there is not None and there.is_special:
        raise PathError(f"{path} is neither a file nor a folder")
    transfer = Transfer(pieces, Watch())
    if isinstance(store, WritesWhole):
        store.write_whole(path, transfer, size)
        return transfer.size
    with _part(store, path, failed) as (part, _):
        if not (isinstance(store, ChecksBytes) and store.write_checked(part, transfer, size)):
            hasher = None if is_local(store) else store.hasher()
            transfer.hashers = (hasher,) if hasher else ()
            store.write(part, transfer, size)
            verify(store, part, transfer.size, hasher)
        if size is not None and transfer.size != size:
            raise CorruptData(f"{path}: got {transfer.size} of {size} bytes")
    return transfer.size


def is_stale(part: Entry) -> bool:
    """Whether the part is a leftover: its copy has ended and cannot be continued, or it is abandoned."""
    is_claimed, is_noted = is_running(part.name), is_resumed(part.name)
    if is_claimed or is_noted:
        return False
    idle, limit = idle_time(part)
    return (is_claimed is False and is_noted is None) or idle >= limit


def idle_time(part: Entry) -> tuple[float, float]:
    """Return for how many seconds the part has not changed, and after how many it counts as abandoned.

    The limit is a day. Some stores report only when a file was started, not when it grew: there, a week.
    """
    begun, now = _start_time(part.name), time.time()
    changed = part.mtime_ms / 1000
    has_grown = begun + GROWN < changed < now + DAY
    return now - (changed if has_grown else begun), (DAY if has_grown else WEEK)


def clear_stale(store: Store, folder: str) -> None:
    """Remove parts that killed copies left in the folder, as far as one listing shows them."""
    if isinstance(store, WritesWhole) and not store.leaves_parts:
        return
    with contextlib.suppress(PaiError):  # a user who may not list may still write
        for entry in itertools.islice(store.list(folder), LOOKED_AT):
            if is_part(entry):
                remove_stale(store, entry)


def remove_stale(store: Store, part: Entry) -> None:
    """Remove the part if no copy uses it."""
    with contextlib.suppress(PaiError):
        if is_stale(part):
            store.remove(part.path)


def _start_time(name: str) -> float:
    """Return when the part was started, from its name; infinity for other names."""
    named = PART_NAME.fullmatch(name)
    return int(named[1], 16) if named else float("inf")


@contextlib.contextmanager
def _failed_parts(store: Store) -> Iterator[list[str]]:
    """Collect the parts of failed tries, and remove them again once a try succeeds.

    A server may create a file after its connection broke, and so after the part was removed.
    """
    failed: list[str] = []
    with claiming():
        try:
            yield failed
        except BaseException as err:
            if failed and is_broken_off(err):
                keep_claim()
            raise
        for part in failed:
            _remove_part(store, part)


def _remove_part(store: Store, part: str) -> None:
    """Remove the part of a failed try; if that fails, too, the next copy does it."""
    try:
        store.remove(part)
    except NoSuchPath:
        pass
    except PaiError:
        keep_claim()


@contextlib.contextmanager
def _part(
    store: Store,
    path: str,
    failed: list[str],
    note: ResumeNote | None = None,
    entry: Entry | None = None,
) -> Iterator[tuple[str, bool]]:
    """Yield a temporary path in the same folder, and whether an earlier try has begun it.

    At the end, the file gets its name, and the time and mode of ``entry``. What fails is removed, unless a
    later try can continue it.
    """
    is_old = bool(note and note.part)
    part = note.part if note and is_old else join(parent(path), part_name())
    try:
        if note and not is_old:
            note.write(part)
        yield part, is_old
        if entry is not None:
            part = _with_fresh_name(store, part, note)
            store.set_mtime(part, entry.mtime_ms)
        _set_mode(store, part, path, entry)
        store.rename(part, path)
    except BaseException as err:
        if note is None or not note.part or not is_broken_off(err):
            _remove_part(store, part)
            failed.append(part)
            if note and note.part:
                note.forget()
        if isinstance(err, PaiError):  # users know the file, not the part
            names = (one_line(base(part)), one_line(base(path)))
            err.args = (str(err).replace(*names), *err.args[1:])
        raise
    if note:
        note.forget()


def _with_fresh_name(store: Store, part: str, note: ResumeNote | None) -> str:
    """Return the part, renamed if its name is old: with its source's time it would look stale."""
    if time.time() - _start_time(base(part)) < DAY / 2:
        return part
    renewed = join(parent(part), part_name())
    store.rename(part, renewed)
    if note:
        note.write(renewed)
    return renewed


def _set_mode(store: Store, part: str, path: str, entry: Entry | None = None) -> None:
    """Give the part the mode of the file it replaces; a new file gets the source's mode or the default."""
    if isinstance(store, SetsModes):
        there = store.stat(path)
        kept = there.mode if there is not None and not there.is_link else None
        store.set_mode(part, store.allowed(_mode(entry)) if kept is None else kept)
    elif entry is not None and entry.is_executable and isinstance(store, KeepsModes):
        store.make_executable(part)


def _mode(entry: Entry | None) -> int:
    if entry is not None and entry.mode is not None:
        return entry.mode
    return 0o777 if entry is not None and entry.is_executable else 0o666


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


class CopyAttempt:
    """One try to send one file; ``size`` is the number of bytes sent."""

    def __init__(self, source: Store, entry: Entry, target: Store, watch: Watch) -> None:
        self._source, self._entry, self._target, self._watch = source, entry, target, watch
        self._digest: Digest | None = None  # of the source, if it is not checked in transit
        self._at_source: Hasher | None = None
        self._transfer = Transfer((), watch)

    @property
    def size(self) -> int:
        return self._transfer.size

    def into_whole(self, target: WritesWhole, path: str) -> None:
        self._start(0)
        entry = self._entry
        target.write_whole(path, self._transfer, entry.size, entry.mtime_ms, self._check)

    def into_part(self, part: str, is_old: bool, can_resume: bool, replaced: str) -> None:
        """Write the part and verify it; continue a part of an earlier try.

        ``replaced`` is the path of the file that it will replace, if there is one.
        """
        target, size = self._target, self._entry.size
        begun = target.unfinished_size(part) if is_old and isinstance(target, Appends) else 0
        is_checked = self._start(begun if begun <= size else 0, replaced)
        is_resumed = self.size > 0
        sent = self._transfer
        if not is_resumed and isinstance(target, ChecksBytes) and target.write_checked(part, sent, size):
            return self._check()
        is_needed = target.knows_digests or not (is_checked or self._at_source)
        hasher = target.hasher() if is_needed and (is_resumed or not is_local(target)) else None
        if hasher:
            self._transfer.hashers += (hasher,)
        if can_resume and isinstance(target, Appends):
            self._resume(target, part)
        else:
            target.write(part, self._transfer, size)
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
        if not (is_local(source) or self._at_source):
            begun = 0  # nothing could verify the beginning
        pieces = source.read(entry.path, begun, most - begun) if checked is None else checked
        hashers = (self._at_source,) if self._at_source else ()
        self._transfer = Transfer(pieces, self._watch, hashers, begun)
        self._watch.moved(begun)
        return checked is not None

    def _changes(self, replaced: str, size: int) -> Iterator[bytes] | None:
        """Return the bytes of the source, if it can take those that have not changed from the target."""
        source, target = self._source, self._target
        if not (isinstance(source, ReadsChanges) and is_local(target)):
            return None
        there = target.stat(replaced)
        if there is None or there.is_folder or there.is_link or there.is_special:
            return None
        return source.read_changed(
            self._entry.path, size, lambda offset, length: b"".join(target.read(replaced, offset, length))
        )

    def _resume(self, target: Appends, part: str) -> None:
        """Append the missing bytes; hash those that are there if that is cheap, to verify the whole file."""
        begun, size = self.size, self._entry.size
        if not begun:
            self._target.write(part, (), 0)
        near, path = (self._source, self._entry.path) if is_local(self._source) else (self._target, part)
        for piece in near.read(path, 0, begun):
            self._watch.check()
            for hasher in self._transfer.hashers:
                hasher.update(piece)
        if begun < size:
            target.append(part, self._transfer, size - begun)

    def _check(self) -> None:
        """Raise CorruptData unless the source was read completely and has not changed."""
        entry = self._entry
        if self.size != entry.size:
            raise CorruptData(
                f"{entry.path}: got {self.size} of {entry.size} bytes; it changed or was truncated"
            )
        _check_unchanged(self._source, entry)
        if self._at_source and self._digest:
            _compare(self._at_source.digest(), self._digest, entry.path)


def verify(store: Store, part: str, size: int, hasher: Hasher | None) -> None:
    there = store.stat(part)
    if there is None or there.size != size:
        count = "nothing" if there is None else f"{there.size} bytes"
        raise CorruptData(f"{part}: {count} arrived of {size} bytes")
    if hasher is None:
        return
    theirs, ours = store.digest(part), hasher.digest()
    if theirs is not None and theirs.kind == ours.kind:  # otherwise, the size must suffice
        _compare(ours, theirs, part)


def _compare(ours: Digest, theirs: Digest, path: str) -> None:
    if ours != theirs:
        raise CorruptData(
            f"{path}: damaged in transit ({theirs.kind} {theirs.value} instead of {ours.value})"
        )


def _check_unchanged(source: Store, entry: Entry) -> None:
    now = source.stat(entry.path)
    is_same = now is not None and now.size == entry.size
    if now and entry.version and now.version:  # otherwise, only its time shows a change
        is_same = is_same and now.version == entry.version
    elif now:
        is_same = is_same and now.mtime_ms == entry.mtime_ms
    if not is_same:
        raise CorruptData(f"{entry.path}: it changed while it was copied")
