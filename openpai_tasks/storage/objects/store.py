"""Files and folders on an object store, which only has keys.

A folder is a common prefix of keys, or an empty object whose key ends with a slash, which keeps empty
folders. A file appears as a whole when its last request succeeds, so it is written under its final name at
once.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol, TypeAlias

from openpai_tasks.errors import Denied, NoSuchPath, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.hosts import by_numbers
from openpai_tasks.storage.objects.md5 import MD5, PARTS, Md5, Md5OfParts
from openpai_tasks.storage.objects.upload import Budget, ObjectUpload, UploadTarget, send
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

    things: list[ObjectEntry]
    rest: str | None = None


Note: TypeAlias = Callable[[ObjectEntry], None]
"""Gets what an answer says about its object."""
Keys: TypeAlias = list[str]
ObjectEntries: TypeAlias = list[ObjectEntry]


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
        return OpenedObject(self._bucket, self._root, self._read_only, self._budget)

    def address(self, path: str) -> str:
        return f"{self._bucket.identity}/{self._key(path)}".rstrip("/")

    def marks(self, path: str, above: bool = False) -> set[str]:
        return by_numbers(self.address(path), above) if self._bucket.is_known_by_host else set()

    def stat(self, path: str) -> Entry | None:
        key = self._key(path)
        if path != "/":
            thing = retrying(lambda: self._bucket.head(key))
            if thing is not None:
                return _entry(thing, base(path), path)
        try:
            there = path == "/" or self._any_below(path)
            if path == "/":
                self._page(path, flat=True, limit=1)  # raises if the bucket does not exist
        except NotFound:
            return None
        return Entry(base(path), path, True) if there else None

    def list(self, path: str) -> Iterator[Entry]:
        prefix, rest, found = self._below(path), None, path == "/"
        folders: set[str] = set()  # some services list one twice: as an object and as a prefix
        while True:
            page = self._page(path, rest=rest)
            for thing in page.things:
                found = True
                if thing.key == prefix:
                    continue
                name = check_name(thing.key.removeprefix(prefix).removesuffix("/"), path)
                if thing.is_folder and name in folders:
                    continue
                if thing.is_folder:
                    folders.add(name)
                yield _entry(thing, name, join(path, name))
            rest = page.rest
            if rest is None:
                break
        if not found:
            self._refuse_no_folder(path)

    def make_folder(self, path: str) -> None:
        self._refuse_change(path)
        missing: Keys = []
        self._key(path)  # raises if the path is invalid
        if not self._bucket.keeps_folders:
            return
        while path != "/" and not self._is_folder(path):
            missing.append(self._below(path))
            path = parent(path)
        for key in reversed(missing):
            self._put_folder(key)

    def remove(self, path: str, recursive: bool = False) -> None:
        self._refuse_change(path)
        entry = self.stat(path)
        if entry is None:
            raise NoSuchPath(f"{path}: no such file or folder in {self._bucket.address}")
        if not entry.is_folder:
            return self._delete([self._key(path)])
        if not recursive and next(self.list(path), None) is not None:
            raise PathError(f"{path}: the folder is not empty")
        folders = [self._key(path), self._below(path)] if path != "/" else []
        for page in self._pages(path):
            self._delete([thing.key for thing in page if not thing.is_folder])
            folders += [thing.key for thing in page if thing.is_folder]
        for key in sorted({key for key in folders if key}, key=len, reverse=True):
            self._delete([key])

    def rename(self, source: str, target: str) -> None:
        self._refuse_change(target)
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
        self._refuse_change(path)
        send(self._bucket, self._budget, ObjectUpload(self._key(path), mtime_ms, size, check), pieces)

    def digest(self, path: str) -> Digest | None:
        thing = retrying(lambda: self._bucket.head(self._key(path)))
        if thing is None:
            raise NoSuchPath(f"{path}: no such file in {self._bucket.address}")
        return thing.digest

    def hasher(self, kind: str | None = None) -> Hasher | None:
        if kind in (None, MD5):
            return Md5()
        parts = PARTS.fullmatch(kind or "")
        return Md5OfParts(int(parts[1])) if parts else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._refuse_change(path)
        retrying(lambda: self._bucket.set_mtime(self._key(path), mtime_ms))

    def _key(self, path: str) -> str:
        names = path.split("/")[1:]
        if not path.startswith("/") or "." in names or ".." in names or "\0" in path:
            raise PathError(f"{path!r} cannot be a path in {self._bucket.address}")
        require_utf8(path, "a store of objects")
        return self._root + "/".join(name for name in names if name)

    def _below(self, path: str) -> str:
        """Return the prefix of the keys in the folder."""
        return self._key(path).rstrip("/") + "/" if self._key(path) else ""

    def _page(
        self, path: str, flat: bool = False, rest: str | None = None, limit: int = AT_ONCE
    ) -> ObjectPage:
        prefix = self._below(path)
        return retrying(lambda: self._bucket.page(prefix, flat, rest, limit))

    def _pages(self, path: str) -> Iterator[ObjectEntries]:
        """Yield everything below the folder, without the folder's own object."""
        rest, prefix = None, self._below(path)
        while True:
            page = self._page(path, flat=True, rest=rest)
            yield [thing for thing in page.things if thing.key != prefix]
            rest = page.rest
            if rest is None:
                return

    def _any_below(self, path: str) -> bool:
        return bool(self._page(path, flat=True, limit=1).things)

    def _is_folder(self, path: str) -> bool:
        """Whether it is a folder; raise if it is a file."""
        if self._any_below(path):
            return True
        thing = retrying(lambda: self._bucket.head(self._key(path)))
        if thing is not None and not thing.is_folder:
            raise PathError(f"{path}: a file is there, not a folder")
        return thing is not None

    def _refuse_no_folder(self, path: str) -> None:
        thing = retrying(lambda: self._bucket.head(self._key(path)))
        if thing is None:
            raise NoSuchPath(f"{path}: no such folder in {self._bucket.address}")
        if not thing.is_folder:
            raise PathError(f"{path}: a file, not a folder")

    def _refuse_change(self, path: str) -> None:
        if self._read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)

    def _put_folder(self, key: str) -> None:
        retrying(lambda: self._bucket.put_folder(key))

    def _delete(self, keys: Keys) -> None:
        if keys:
            retrying(lambda: self._bucket.delete(keys))


class OpenedObject(ObjectStore):
    """The store for a single file, which one request both describes and reads."""

    def __init__(self, bucket: Bucket, root: str, read_only: bool, budget: Budget) -> None:
        super().__init__(bucket, root, read_only, budget)
        self._thing: ObjectEntry | None = None
        self._pieces: Iterator[bytes] | None = None  # of the whole file, not read yet

    def stat(self, path: str) -> Entry | None:
        if self._thing is None:
            try:
                self._open(path)
            except NotFound:
                return None
        return _entry(self._thing, base(path), path) if self._thing else super().stat(path)

    def digest(self, path: str) -> Digest | None:
        return self._thing.digest if self._thing else super().digest(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, None
        if pieces is not None and self._thing and not offset and length in (None, self._thing.size):
            return pieces
        return self._bucket.get(self._key(path), offset, length, self._note) if length != 0 else iter(())

    def _open(self, path: str) -> None:
        """Begin to read, which describes the file."""
        pieces = self._bucket.get(self._key(path), 0, None, self._note)
        first = next(pieces, b"")
        self._pieces = itertools.chain([first] if first else [], pieces)

    def _note(self, thing: ObjectEntry) -> None:
        self._thing = thing


def resumed(
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


def _entry(thing: ObjectEntry, name: str, path: str) -> Entry:
    if thing.is_folder:
        return Entry(name, path, True)
    is_arrival, mtime_ms = thing.mtime_ms is None, thing.mtime_ms
    return Entry(
        name,
        path,
        False,
        thing.size,
        thing.arrived_ms if mtime_ms is None else mtime_ms,
        version=thing.version,
        digest=thing.digest,
        is_arrival=is_arrival,
    )
