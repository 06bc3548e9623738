"""Decide whether a file already exists at the target."""

from __future__ import annotations

from openpai_tasks.storage.store import PIECE, Entry, Store, fingerprint


def is_same(source: Store, entry: Entry, target: Store, there: Entry, checksum: bool) -> bool:
    """Whether the target has the same file: by size and time, or by content."""
    if not _can_be(entry, there):
        return False
    if not checksum:
        return _is_same_time(source, entry, target, there)
    digest = there.digest or target.digest(there.path)
    if digest is None:
        return False
    if source.knows_digests:
        other = entry.digest or source.digest(entry.path)
        if other is not None and other.kind == digest.kind:
            return other == digest
    hasher = target.hasher(digest.kind)
    return hasher is not None and fingerprint(hasher, source.read(entry.path)) == digest


def looks_same(entry: Entry, there: Entry) -> bool:
    """Whether two entries have the same size and time; makes no request."""
    has_time = not (entry.is_link or entry.is_arrival or there.is_arrival)
    return has_time and _can_be(entry, there) and _have_one_time(entry, there)


def _can_be(entry: Entry, there: Entry) -> bool:
    return not (there.is_folder or there.is_link) and there.size == entry.size


def _have_one_time(entry: Entry, there: Entry) -> bool:
    if there.mtime_ms == 0 and entry.mtime_ms < 0:
        return True  # the store has no times before 1970
    if entry.is_whole_second or there.is_whole_second:
        return there.mtime_ms // 1000 == entry.mtime_ms // 1000
    return there.mtime_ms == entry.mtime_ms


def _is_same_time(source: Store, entry: Entry, target: Store, there: Entry) -> bool:
    """Compare the files' own times; if a listing lacks them, compare its digest."""
    if entry.is_arrival or there.is_arrival:
        if _has_same_digest(source, entry, target, there):
            return True
        own = source.stat(entry.path) if entry.is_arrival else entry
        now = target.stat(there.path) if there.is_arrival else there
        return own is not None and now is not None and (own.size, own.mtime_ms) == (now.size, now.mtime_ms)
    return _have_one_time(entry, there)


def _has_same_digest(source: Store, entry: Entry, target: Store, there: Entry) -> bool:
    """Whether a digest in a listing proves that the files are equal; a small file is read to compare."""
    if entry.digest and there.digest:
        return entry.digest == there.digest
    digest, store, path = (
        (entry.digest, target, there.path) if entry.digest else (there.digest, source, entry.path)
    )
    if digest is None or entry.size > PIECE or store.knows_digests:
        return False
    hasher = (source if entry.digest else target).hasher(digest.kind)
    return hasher is not None and fingerprint(hasher, store.read(path)) == digest
