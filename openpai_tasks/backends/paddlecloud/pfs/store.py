"""Files of a PaddleCloud datacenter: ``/home/<user>/…``, and ``/public/…``, which is read-only.

The original server cannot rename: there, a rename transfers the file.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator

from openpai_tasks.backends.paddlecloud.pfs import upload
from openpai_tasks.backends.paddlecloud.pfs.connection import PfsConnection, PfsEntry
from openpai_tasks.backends.paddlecloud.pfs.upload import PfsUpload, Result, in_parallel, send
from openpai_tasks.errors import ConfigError, Denied, NoSuchPath, PathError
from openpai_tasks.net import addresses
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.storage.hosts import resolved_addresses
from openpai_tasks.storage.objects.md5 import hasher_of, kind_of_parts
from openpai_tasks.storage.retry import CorruptData, retrying
from openpai_tasks.storage.store import (
    ChecksBytes,
    Digest,
    Entry,
    Hasher,
    KnowsPlaces,
    ReadsChanges,
    StorageSpec,
    WritesWhole,
    base,
    check_name,
    join,
)

SLOTS = 8  # chunks that all files together have in transit, besides one for each file
HOME, PUBLIC = "/home", "/public"

OldBytes = Callable[[int, int], bytes]


class PfsStore(KnowsPlaces, WritesWhole, ChecksBytes, ReadsChanges):
    """The files of one datacenter that one user sees."""

    kind = "pfs"
    knows_digests = True
    leaves_parts = True

    def __init__(self, connection: PfsConnection, user: str, read_only: bool = False) -> None:
        self._connection, self._own, self._read_only = connection, f"{HOME}/{user}", read_only
        self._slots = threading.Semaphore(SLOTS)

    def use_chunks(self, size: int) -> None:
        """Transfer and compare files in chunks of this size, from now on."""
        self._connection.chunk = size

    def address(self, path: str) -> str:
        return self._connection.address(path)

    def identities(self, path: str, above: bool = False) -> set[str]:
        return resolved_addresses(self.address(path), above)

    def stat(self, path: str) -> Entry | None:
        if path in ("/", HOME):
            return Entry(base(path), path, True)
        found = retrying(lambda: self._connection.stat(path))
        return _entry(found, base(path), path) if found else None

    def list(self, path: str) -> Iterator[Entry]:
        if path in ("/", HOME):
            names = (HOME, PUBLIC) if path == "/" else (self._own,)
            yield from (one for one in map(self.stat, names) if one is not None)
            return
        for found in retrying(lambda: self._connection.list(path)):
            if found.path == path and not found.is_folder:
                raise PathError(f"{path}: a file, not a folder")
            name = check_name(found.path.removeprefix(f"{path}/"), path)
            yield _entry(found, name, join(path, name))

    def make_folder(self, path: str) -> None:
        there = self.stat(path)
        if there is None:
            self._check_writable(path)
            retrying(lambda: self._connection.make_folder(path))
        elif not there.is_folder:
            raise PathError(f"{path}: a file is there, not a folder")

    def remove(self, path: str, recursive: bool = False) -> None:
        self._check_writable(path)
        if path == self._own:
            raise Denied(f"{path}: the home folder itself cannot be removed", 403)
        there = self.stat(path)
        if there is None:
            raise NoSuchPath(f"{path}: no such file or folder")
        if there.is_folder and not recursive and next(self.list(path), None) is not None:
            raise PathError(f"{path}: the folder is not empty")
        retrying(lambda: self._connection.remove(path, there.is_folder))

    def rename(self, source: str, target: str) -> None:
        self._check_writable(source)
        self._check_writable(target)
        there = self._file(source)
        if source == target:
            return
        if self._connection.can_replace:
            upload.rename(self._connection, source, target)
        else:
            self.write_whole(target, self.read_checked(source, there.size), there.size, there.mtime_ms)
            self.remove(source)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        end = self._file(path).size
        end = end if length is None else min(end, offset + length)
        return self._pieces(path, offset, end, self._read)

    def read_checked(self, path: str, size: int) -> Iterator[bytes]:
        return self._pieces(path, 0, size, functools.partial(self._read_changed, old=None))

    def read_changed(self, path: str, size: int, old: OldBytes) -> Iterator[bytes]:
        return self._pieces(path, 0, size, functools.partial(self._read_changed, old=old))

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self.write_whole(path, pieces, size)

    def write_checked(self, path: str, pieces: Iterable[bytes], size: int | None) -> bool:
        self.write_whole(path, pieces, size)
        return True

    def write_whole(
        self,
        path: str,
        pieces: Iterable[bytes],
        size: int | None = None,
        mtime_ms: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._check_writable(path)
        send(self._connection, self._slots, PfsUpload(path, size, mtime_ms, check), pieces)

    def digest(self, path: str) -> Digest | None:
        """Return the MD5 of the MD5s of all chunks, which the server computes."""

        def ask(offset: int) -> bytes:
            return bytes.fromhex(self._md5(path, offset))

        sums = list(self._ahead(ask, range(0, self._file(path).size, self._connection.chunk)))
        value = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest()
        return Digest(kind_of_parts(self._connection.chunk), f"{value}-{len(sums)}")

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return hasher_of(kind or kind_of_parts(self._connection.chunk))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time, if the server can; the size must stay, or some servers would clear the file."""
        self._check_writable(path)
        size = self._file(path).size
        retrying(lambda: self._connection.resize(path, size, mtime_ms))

    def _pieces(
        self, path: str, offset: int, end: int, read: Callable[[str, int, int], bytes]
    ) -> Iterator[bytes]:
        def take(begin: int) -> bytes:
            return read(path, begin, min(self._connection.chunk, end - begin))

        return self._ahead(take, range(offset, end, self._connection.chunk))

    def _read(self, path: str, offset: int, size: int) -> bytes:
        return retrying(lambda: self._connection.read(path, offset, size))[0]

    def _read_changed(self, path: str, offset: int, size: int, old: OldBytes | None) -> bytes:
        """Return a chunk that has the server's MD5; take it from the old copy if that has it."""
        for _ in range(2):
            theirs = ""
            if old and (known := old(offset, size)):
                theirs = self._md5(path, offset)
                if _md5(known) == theirs:
                    return known
            data, md5 = retrying(lambda: self._connection.read(path, offset, size))
            if _md5(data) == (md5 or theirs or self._md5(path, offset)):
                return data
        raise CorruptData(f"{path}: it was damaged in transit, or changed while it was read")

    def _md5(self, path: str, offset: int) -> str:
        return retrying(lambda: self._connection.sum(path, offset)).md5

    def _ahead(self, work: Callable[[int], Result], offsets: range) -> Iterator[Result]:
        return in_parallel(work, offsets, self._slots) if len(offsets) > 1 else map(work, offsets)

    def _file(self, path: str) -> Entry:
        there = self.stat(path)
        if there is None:
            raise NoSuchPath(f"{path}: no such file")
        if there.is_folder:
            raise PathError(f"{path}: a folder, not a file")
        return there

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)
        if not f"{path}/".startswith(f"{self._own}/"):
            raise Denied(f"{path}: only files below {self._own} can be changed", 403)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _entry(found: PfsEntry, name: str, path: str) -> Entry:
    return Entry(name, path, found.is_folder, found.size, 0 if found.is_folder else found.mtime_ms)


def open_store(spec: StorageSpec) -> PfsStore:
    """Open the files of a datacenter, as its cluster describes them."""
    data, endpoint = spec.data, server(spec)
    try:
        addresses.parse_url(endpoint)
    except ValueError as err:
        raise ConfigError(f"{spec.title} names an invalid endpoint {endpoint!r}: {err}") from err
    user = str(data.get("user") or spec.user)
    if not user:
        raise ConfigError(f"{spec.title} has no user name")
    datacenter = check_name(str(data.get("datacenter") or spec.cluster), spec.title)
    token = str(data.get("token") or "")
    own = spec.certificate if endpoint == spec.cluster_uri.rstrip("/") else None
    certificate = ClientCertificate(*own) if own else None
    connection = PfsConnection(endpoint, datacenter, token, spec.renew, spec.verify, certificate)
    return PfsStore(connection, check_name(user, spec.title), spec.read_only)


def server(spec: StorageSpec) -> str:
    return str(spec.data.get("endpoint") or "").rstrip("/")
