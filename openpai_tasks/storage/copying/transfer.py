"""Copy one file: write it under a temporary name, verify it, then rename it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator

from openpai_tasks.errors import NoSuchPath, PaiError, PathError
from openpai_tasks.plain_text import one_line
from openpai_tasks.storage.copying.claims import held, is_running, keep, part_name
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.resume import ResumeNote, is_broken_off, is_near, is_resumed, note_of
from openpai_tasks.storage.copying.sending import Sending, Transfer, verify
from openpai_tasks.storage.parts import PART_NAME, is_part
from openpai_tasks.storage.retry import Damaged, paused, retrying
from openpai_tasks.storage.store import (
    ChecksBytes,
    Entry,
    KeepsModes,
    ReadsVersions,
    SetsModes,
    Store,
    WritesWhole,
    base,
    is_closed,
    join,
    parent,
)

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
        _once(opened, now, target, path, watch, failed)
        return now.size

    with _failed_parts(target) as failed:
        return retrying(once, watch.wait)


def _once(source: Store, entry: Entry, target: Store, path: str, watch: Watch, failed: list[str]) -> None:
    if is_closed(entry.mode) and isinstance(target, KeepsModes):
        target = target.closed
    sending = Sending(source, entry, target, watch)
    try:
        if isinstance(target, WritesWhole):
            sending.into_whole(target, path)
            return
        with (
            note_of(source, entry, target, path) as note,
            _part(target, path, failed, note, entry) as (part, is_old),
        ):
            try:
                sending.into_part(part, is_old, can_go_on=note is not None, replaced=path)
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
    wait: Callable[[float], bool] = paused,
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
    if isinstance(store, WritesWhole):
        passing = Transfer(pieces, Watch())
        store.write_whole(path, passing, size)
        return passing.size
    passing = Transfer(pieces, Watch())
    with _part(store, path, failed) as (part, _):
        if not (isinstance(store, ChecksBytes) and store.write_checked(part, passing, size)):
            hasher = None if is_near(store) else store.hasher()
            passing.hashers = (hasher,) if hasher else ()
            store.write(part, passing, size)
            verify(store, part, passing.size, hasher)
        if size is not None and passing.size != size:
            raise Damaged(f"{path}: got {passing.size} of {size} bytes")
    return passing.size


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
    begun, now = _begun(part.name), time.time()
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


def _begun(name: str) -> float:
    """Return when the part was started, from its name; infinity for other names."""
    named = PART_NAME.fullmatch(name)
    return int(named[1], 16) if named else float("inf")


@contextlib.contextmanager
def _failed_parts(store: Store) -> Iterator[list[str]]:
    """Collect the parts of failed tries, and remove them again once a try succeeds.

    A server may create a file after its connection broke, and so after the part was removed.
    """
    failed: list[str] = []
    with held():
        try:
            yield failed
        except BaseException as err:
            if failed and is_broken_off(err):
                keep()
            raise
    for part in failed:
        with contextlib.suppress(PaiError):
            store.remove(part)


@contextlib.contextmanager
def _part(
    store: Store,
    path: str,
    failed: list[str],
    note: ResumeNote | None = None,
    entry: Entry | None = None,
) -> Iterator[tuple[str, bool]]:
    """Yield a temporary path in the same folder, and whether an earlier try has begun it.

    The file gets the time and the mode of ``entry`` and its own name at the end; what fails is removed,
    unless a later try can continue it.
    """
    is_old = bool(note and note.part)
    part = note.part if note and is_old else join(parent(path), part_name())
    try:
        if note and not is_old:
            note.write(part)
        yield part, is_old
        if entry is not None:
            part = _renewed(store, part, note)
            store.set_mtime(part, entry.mtime_ms)
        _set_mode(store, part, path, entry)
        store.rename(part, path)
    except BaseException as err:
        if note is None or not note.part or not is_broken_off(err):
            with contextlib.suppress(PaiError):
                store.remove(part)
            failed.append(part)
            if note and note.part:
                note.forget()
        if isinstance(err, PaiError):  # users know the file, not the part
            names = (one_line(base(part)), one_line(base(path)))
            err.args = (str(err).replace(*names), *err.args[1:])
        raise
    if note:
        note.forget()


def _renewed(store: Store, part: str, note: ResumeNote | None) -> str:
    """Return the part, renamed if its name is old: with its source's time it would look stale."""
    if time.time() - _begun(base(part)) < DAY / 2:
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
    if entry is None:
        return 0o666
    usual = 0o777 if entry.is_executable else 0o666
    return usual if entry.mode is None else entry.mode
