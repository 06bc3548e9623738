"""Files and folders on an object store, which only has keys.

A folder is a common prefix of keys, or an empty object whose key ends with a slash, which keeps empty
folders. A file appears as a whole when its last request succeeds, so it is written under its final name at
once.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from openpai_tasks.errors import Denied, NoSuchPath, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.hosts import resolved_addresses
from openpai_tasks.storage.objects.md5 import MD5, hasher_of
from openpai_tasks.storage.objects.upload import Budget, UploadTarget, send
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import (
    Digest,
    Entry,
    Hasher,
    KnowsPlaces,
    ReadsVersions,
    WritesWhole,
    base,
    check_name,
    join,
    parent,
    require_utf8,
)

AT_ONCE = 1000  # keys per request


@dataclass(frozen=True)
class ObjectEntry:
    """An object, or (``is_folder``) a common prefix of several keys."""

    key: str
    is_folder: bool = False
    size: int = 0
    arrived_ms: int = 0
    mtime_ms: int | None = None  # the file's own time, if the listing has it
    version: str = ""
    digest: Digest | None = None


@dataclass(frozen=True)
class ObjectPage:
    """A part of a listing, and the token for the rest."""

    entries: list[ObjectEntry]
    rest: str | None = None


Note: TypeAlias = Callable[[ObjectEntry], None]
"""Gets what an answer says about its object."""


def ignore(_: ObjectEntry) -> None:
    """Ignore what an answer says."""


class Bucket(UploadTarget, Protocol):
    """The requests that an object service must support; errors are ours and name the key."""

    kind: str
    address: str  # for messages
    is_known_by_host: bool  # whether the server's IP address and the path identify an object
    identity: str  # the same for the same place, however it was written
    keeps_folders: bool  # False if the service turns an object whose key ends with a slash into a file

    def head(self, key: str) -> ObjectEntry | None: ...

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> ObjectPage:
        """List what begins with the prefix: up to the next slash, or everything if ``flat``."""

    def get(self, key: str, offset: int, length: int | None, note: Note = ...) -> Iterator[bytes]:
        """Yield the bytes, all of one version; each answer is noted before its first byte."""

    def copy(self, source: str, target: str) -> None: ...

    def set_mtime(self, key: str, mtime_ms: int) -> None: ...

    def close(self) -> None: ...


class ObjectStore(KnowsPlaces, ReadsVersions, WritesWhole):
    """The files below ``root`` of a bucket; threads share its connections."""

    knows_digests = True

    def __init__(
        self, bucket: Bucket, root: str = "", read_only: bool = False, budget: Budget | None = None
    ) -> None:
        self.kind = bucket.kind
        self._bucket, self._root = bucket, root.strip("/") + "/" if root.strip("/") else ""
        self._read_only = read_only
        self._budget = budget or Budget()

    def close(self) -> None:
        self._bucket.close()

    def one_file(self) -> ObjectStore:
        return SingleFileStore(self._bucket, self._root, self._read_only, self._budget)

    def address(self, path: str) -> str:
        return f"{self._bucket.identity}/{self._key(path)}".rstrip("/")

    def identities(self, path: str, above: bool = False) -> set[str]:
        return resolved_addresses(self.address(path), above) if self._bucket.is_known_by_host else set()

    def stat(self, path: str) -> Entry | None:
        if path != "/" and (item := self._head(path)) is not None:
            return _entry(item, base(path), path)
        try:
            has_entries = self._has_entries(path)  # raises if the bucket does not exist
        except NotFound:
            return None
        return Entry(base(path), path, True) if has_entries or path == "/" else None

    def list(self, path: str) -> Iterator[Entry]:
        prefix, found = self._prefix(path), path == "/"
        folders: set[str] = set()  # some services list one twice: as an object and as a prefix
        for item in self._items(path, flat=False):
            found = True
            if item.key == prefix:
                continue
            name = check_name(item.key.removeprefix(prefix).removesuffix("/"), path)
            if item.is_folder and name in folders:
                continue
            if item.is_folder:
                folders.add(name)
            yield _entry(item, name, join(path, name))
        if not found:
            self._check_folder(path)

    def make_folder(self, path: str) -> None:
        self._check_writable(path)
        self._key(path)  # raises if the path is invalid
        if not self._bucket.keeps_folders:
            return
        missing = []
        while path != "/" and not self._is_folder(path):
            missing.append(self._prefix(path))
            path = parent(path)
        for key in reversed(missing):
            retrying(partial(self._bucket.put_folder, key))

    def remove(self, path: str, recursive: bool = False) -> None:
        self._check_writable(path)
        entry = self.stat(path)
        if entry is None:
            raise NoSuchPath(f"{path}: no such file or folder in {self._bucket.address}")
        if not entry.is_folder:
            return self._delete([self._key(path)])
        if not recursive and next(self.list(path), None) is not None:
            raise PathError(f"{path}: the folder is not empty")
        folders = {self._key(path), self._prefix(path)} if path != "/" else set()
        items = self._items(path, flat=True)
        while page := [*itertools.islice(items, AT_ONCE)]:
            folders |= {item.key for item in page if item.is_folder}
            self._delete([item.key for item in page if item.key not in folders])
        for key in sorted(filter(None, folders), key=len, reverse=True):
            self._delete([key])

    def rename(self, source: str, target: str) -> None:
        self._check_writable(target)
        if source != target:
            retrying(lambda: self._bucket.copy(self._key(source), self._key(target)))
            self._delete([self._key(source)])

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if length is None or length > 0:
            yield from self._bucket.get(self._key(path), offset, length)

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self.write_whole(path, pieces, size)

    def write_whole(
        self,
        path: str,
        pieces: Iterable[bytes],
        size: int | None = None,
        mtime_ms: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._check_writable(path)
        send(self._bucket, self._budget, self._key(path), pieces, size, mtime_ms, check)

    def digest(self, path: str) -> Digest | None:
        item = self._head(path)
        if item is None:
            raise NoSuchPath(f"{path}: no such file in {self._bucket.address}")
        return item.digest

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return hasher_of(kind or MD5)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._check_writable(path)
        retrying(lambda: self._bucket.set_mtime(self._key(path), mtime_ms))

    def _key(self, path: str) -> str:
        names = path.split("/")[1:]
        if not path.startswith("/") or "." in names or ".." in names or "\0" in path:
            raise PathError(f"{path!r} cannot be a path in {self._bucket.address}")
        require_utf8(path, "a store of objects")
        return self._root + "/".join(name for name in names if name)

    def _prefix(self, path: str) -> str:
        """Return the prefix of the keys in the folder."""
        return self._key(path).rstrip("/") + "/" if self._key(path) else ""

    def _head(self, path: str) -> ObjectEntry | None:
        key = self._key(path)
        return retrying(lambda: self._bucket.head(key))

    def _items(self, path: str, flat: bool) -> Iterator[ObjectEntry]:
        """Yield what is in the folder, or everything below if ``flat``; also the folder's own object."""
        rest, prefix = None, self._prefix(path)
        while True:
            page = retrying(partial(self._bucket.page, prefix, flat, rest, AT_ONCE))
            yield from page.entries
            rest = page.rest
            if rest is None:
                return

    def _has_entries(self, path: str) -> bool:
        prefix = self._prefix(path)
        return bool(retrying(lambda: self._bucket.page(prefix, True, None, 1)).entries)

    def _is_folder(self, path: str) -> bool:
        """Whether it is a folder; raise if it is a file."""
        if self._has_entries(path):
            return True
        item = self._head(path)
        if item is not None and not item.is_folder:
            raise PathError(f"{path}: a file is there, not a folder")
        return item is not None

    def _check_folder(self, path: str) -> None:
        item = self._head(path)
        if item is None:
            raise NoSuchPath(f"{path}: no such folder in {self._bucket.address}")
        if not item.is_folder:
            raise PathError(f"{path}: a file, not a folder")

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            retrying(lambda: self._bucket.delete(keys))


class SingleFileStore(ObjectStore):
    """The store for a single file, which one request both describes and reads."""

    def __init__(self, bucket: Bucket, root: str, read_only: bool, budget: Budget) -> None:
        super().__init__(bucket, root, read_only, budget)
        self._item: ObjectEntry | None = None
        self._pieces: Iterator[bytes] | None = None  # of the whole file, not read yet

    def stat(self, path: str) -> Entry | None:
        if self._item is None:
            try:
                self._open(path)
            except NotFound:
                return None
        return _entry(self._item, base(path), path) if self._item else super().stat(path)

    def digest(self, path: str) -> Digest | None:
        return self._item.digest if self._item else super().digest(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, None
        if pieces is not None and self._item and not offset and length in (None, self._item.size):
            return pieces
        return self._bucket.get(self._key(path), offset, length, self._note) if length != 0 else iter(())

    def _open(self, path: str) -> None:
        """Begin to read, which describes the file."""
        pieces = self._bucket.get(self._key(path), 0, None, self._note)
        first = next(pieces, b"")
        self._pieces = itertools.chain([first] if first else [], pieces)

    def _note(self, item: ObjectEntry) -> None:
        self._item = item


def read_resuming(
    opened: Callable[[int, int | None], Generator[bytes, None, None]], offset: int, length: int | None
) -> Iterator[bytes]:
    """Yield the bytes of an object; if a request breaks, the next one continues."""
    moved = 0

    def first() -> tuple[bytes, Generator[bytes, None, None]]:
        pieces = opened(offset + moved, None if length is None else length - moved)
        return next(pieces, b""), pieces

    while length is None or moved < length:
        piece, pieces = retrying(first)
        with contextlib.closing(pieces), contextlib.suppress(PaiError):  # the next request reports the reason
            while piece:
                moved += len(piece)
                yield piece
                piece = next(pieces, b"")
            return


def _entry(item: ObjectEntry, name: str, path: str) -> Entry:
    if item.is_folder:
        return Entry(name, path, True)
    is_arrival = item.mtime_ms is None
    mtime_ms = item.arrived_ms if item.mtime_ms is None else item.mtime_ms
    facts: dict[str, Any] = {"version": item.version, "digest": item.digest, "is_arrival": is_arrival}
    return Entry(name, path, False, item.size, mtime_ms, **facts)
