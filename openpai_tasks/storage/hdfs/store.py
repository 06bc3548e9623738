"""HDFS as a store: WebHDFS, and Hadoop's native protocol for the bytes of files where that is possible."""

from __future__ import annotations

import contextlib
import copy
import getpass
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from openpai_tasks.errors import NoSuchPath, NotFound, PaiError, PathError
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.hdfs.digest import CRC_NAMES, BlockHasher, Shape
from openpai_tasks.storage.hdfs.native.files import FileLayout, NativeClient
from openpai_tasks.storage.hdfs.native.rpc import Status
from openpai_tasks.storage.hdfs.web.client import V1, WebHdfsClient
from openpai_tasks.storage.hdfs.web.data_nodes import FAST, DataNodes
from openpai_tasks.storage.hdfs.web.errors import HDFS_ERRORS, ParentIsFile, RemoteError
from openpai_tasks.storage.hdfs.web.name_nodes import RETRIES, NameNodes
from openpai_tasks.storage.store import (
    Appends,
    ChecksBytes,
    Digest,
    Entry,
    Hasher,
    KeepsModes,
    KnowsPlaces,
    ReadsRanges,
    base,
    check_name,
    is_closed,
    join,
    parent,
    require_utf8,
)

RECOVERY = 20.0  # seconds for a data node to report what it has of a file


class HdfsStore(Appends, ChecksBytes, ReadsRanges, KeepsModes, KnowsPlaces):
    """The files below ``root`` of an HDFS; threads share its connections."""

    kind = "hdfs"
    knows_digests = True

    def __init__(
        self,
        hosts: Iterable[str],
        user: str = "",
        *,
        scheme: str = "http",
        prefix: str = V1,
        root: str = "/",
        verify: bool | str = True,
        timeout: float = 60,
        retries: RetryPolicy = RETRIES,
        fast: float = FAST,
    ) -> None:
        user = user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self.user, self._scheme = user, scheme
        self.hosts, self.root = tuple(hosts), root.rstrip("/")
        self._prefix = prefix
        self._client = WebHdfsClient(timeout, verify)
        self._names = NameNodes(self.hosts, user, scheme, prefix, self._client, retries)
        self._http = DataNodes(self._names, self._client, fast)
        self._layout: FileLayout | None = None
        self._native = NativeClient(user, timeout)
        self._is_closed = False  # whether new files and folders are private

    def close(self) -> None:
        self._native.close()
        self._client.close()

    def address(self, path: str) -> str:
        return f"hdfs://{','.join(sorted(self.hosts))}{self._prefix.removesuffix(V1)}{self._real(path)}"

    @cached_property
    def closed(self) -> HdfsStore:
        store = copy.copy(self)
        store._is_closed = True
        return store

    def identities(self, path: str, above: bool = False) -> set[str]:
        """Identify the folder by its number and its HDFS; if that has no name, by its modification time."""
        found, real = set[str](), self._real(path)
        while True:
            if status := self._status(real, path):
                found |= {f"{self._pool}:{status.id}"} if self._pool else set()
                found |= {f"{status.id}@{status.mtime_ms}"} if status.mtime_ms else set()
            if not above or real == "/":
                return found
            real = parent(real)

    @cached_property
    def _pool(self) -> str:
        """The block pool of this HDFS; empty behind a gateway, which does not report it."""
        if self._prefix != V1:
            return ""
        return next(filter(None, map(self._client.block_pool, self._names.servers)), "")

    def urls(self, path: str) -> tuple[str, ...]:
        """Return the WebHDFS URLs of the file, one for each name node, not escaped."""
        hosts = self._names.found_hosts()
        return tuple(f"{self._scheme}://{host}{self._prefix}{self._real(path)}" for host in hosts)

    def stat(self, path: str) -> Entry | None:
        real = self._real(path)
        status = self._native.ask(lambda names: names.status(real)) or self._status(real, path)
        return _entry(status, base(path), path) if status else None

    def _status(self, real: str, path: str) -> Status | None:
        try:
            return self._names.retry(lambda _: self._names.file_status(real), path)
        except (NotFound, ParentIsFile):
            return None

    def list(self, path: str) -> Iterator[Entry]:
        for status in self._statuses(path):
            if not status.name and not status.is_folder:
                raise PathError(f"{path}: a file, not a folder")
            yield _entry(status, check_name(status.name, path), join(path, status.name))

    def make_folder(self, path: str) -> None:
        real = self._new(path)
        how = {"permission": "700"} if self._is_closed else {}
        self._names.retry(lambda _: self._names.make_folder(real, **how), path)

    def remove(self, path: str, recursive: bool = False) -> None:
        real = self._real(path)

        def attempt(number: int) -> bool:
            return self._names.delete(real, recursive) or number > 0  # an earlier answer was lost

        if not self._names.retry(attempt, path):
            raise NoSuchPath(f"{path}: no such file or folder on HDFS")

    def rename(self, source: str, target: str) -> None:
        real, new = self._real(source), self._new(target)
        was_direct = self._native.is_open
        if self._native.ask(lambda names: names.rename(real, new)):
            return

        def attempt(number: int) -> None:
            try:
                self._names.rename(real, new)
            except RemoteError as err:
                may_be_done = err.kind == "FileNotFoundException" and (number > 0 or was_direct)
                if not (may_be_done and self._status(new, target)):  # otherwise, the answer was lost
                    raise

        self._names.retry(attempt, source)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._http.read(self._real(path), path, offset, length)

    def read_range(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """Yield a part of a file from the data nodes directly, or where that fails by WebHDFS."""
        done = 0
        with contextlib.suppress(PaiError):
            for piece in self._read_directly(path, offset, length) or ():
                done += len(piece)
                yield piece
        if done < length:
            yield from self.read(path, offset + done, length - done)

    def read_checked(self, path: str, size: int) -> Iterator[bytes] | None:
        return self._read_directly(path, 0, size)

    def _read_directly(self, path: str, offset: int, length: int) -> Iterator[bytes] | None:
        real = self._real(path)
        if not (self._new_layout() and self._opened(real, is_new=False)):
            return None
        return self._native.read(real, path, offset, length)

    def write_checked(self, path: str, pieces: Iterable[bytes], size: int | None) -> bool:
        real, layout = self._new(path), self._new_layout()
        if not (layout and self._opened(real, is_new=True)):
            return False
        return self._native.write(real, path, pieces, size, layout, 0o600 if self._is_closed else 0o644)

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._http.write(self._new(path), path, pieces, size, 0o600 if self._is_closed else None)

    def unfinished_size(self, path: str) -> int:
        """Close a file that a dead writer left open, as the name node would wait a minute."""
        real, end = self._real(path), time.monotonic() + RECOVERY
        is_direct = bool(self._new_layout()) and self._opened(real, is_new=True)

        def is_open(_: int) -> bool:
            if is_direct and (closed := self._native.ask(lambda names: names.recover(real))) is not None:
                return not closed
            return self._names.is_open(real)

        try:
            while self._names.retry(is_open, path) and time.monotonic() < end:
                time.sleep(0.1)
        except NotFound:
            return 0
        entry = self.stat(path)
        return entry.size if entry else 0

    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        self._http.append(self._real(path), path, pieces, size)

    def digest(self, path: str) -> Digest | None:
        real = self._real(path)

        def attempt(_: int) -> Any:
            return self._http.avoiding_failed_node(lambda but: self._names.checksum(real, **but))

        algorithm, value = self._names.retry(attempt, path)
        return Digest(algorithm, value[24:56] if Shape.parse(algorithm) else value)

    def hasher(self, kind: str | None = None) -> Hasher | None:
        layout = None if kind else self._new_layout()
        shape = Shape.parse(kind) if kind else layout and layout.shape
        return BlockHasher(shape) if shape else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time; HDFS has none before 1970, so older files get the earliest one."""
        real, mtime_ms = self._real(path), max(mtime_ms, 0)
        if self._native.ask(lambda names: names.set_mtime(real, mtime_ms)):
            return
        self._names.retry(lambda _: self._names.set_mtime(real, mtime_ms), path)

    def make_executable(self, path: str) -> None:
        real = self._real(path)
        mode = self._names.retry(lambda _: self._names.file_status(real), path).mode
        self._names.retry(lambda _: self._names.set_mode(real, mode | (mode & 0o444) >> 2), path)

    def _real(self, path: str) -> str:
        names = path.split("/")
        if "." in names or ".." in names or not path.startswith("/") or "\0" in path:
            raise PathError(f"{path!r} cannot be a path on HDFS")
        require_utf8(path, "HDFS")
        return (self.root + path).rstrip("/") or "/"

    def _new(self, path: str) -> str:
        if ":" in path:
            raise PathError(f"{path}: HDFS allows no ':' in a name; choose another one")
        return self._real(path)

    def _statuses(self, path: str) -> Iterator[Status]:
        """Yield a folder's entries in batches, so that a large folder neither delays nor fills the memory."""
        real, after, left = self._real(path), "", 1

        def batch(_: int) -> tuple[Sequence[Status], int]:
            try:
                return self._names.list_batch(real, after)
            except RemoteError as err:
                if not err.is_unknown_operation:
                    raise
                return self._names.list_all(real), 0

        while left:
            found, left = self._names.retry(batch, path)
            yield from found
            before, after = after, found[-1].name if found else ""
            left = left if after != before else 0

    def _new_layout(self) -> FileLayout | None:
        """Return the layout of new files; None if an older HDFS does not report it."""
        if self._layout is None:
            with contextlib.suppress(PathError):
                found = self._names.retry(lambda _: self._names.server_defaults(), "/")
                if crc := CRC_NAMES.get(found["checksumType"]):
                    shape = Shape(found["blockSize"], found["bytesPerChecksum"], crc)
                    self._layout = FileLayout(shape, found["replication"], bool(found["encryptDataTransfer"]))
        return self._layout

    def _opened(self, real: str, is_new: bool) -> bool:
        """Whether data nodes can be reached directly: not with https or behind a gateway."""
        if self._scheme != "http" or self._prefix != V1 or self._layout is None or self._layout.is_encrypted:
            return False
        try:
            return self._native.open(lambda: self._names.rpc_address(real, is_new))
        except HDFS_ERRORS:
            return False  # the other way reports the reason


def _entry(status: Status, name: str, path: str) -> Entry:
    """Make an entry; of the mode, only privacy matters, as the rest are defaults of HDFS."""
    can_run = bool(status.mode & 0o100) and not status.is_folder
    closed = status.mode & 0o777 if is_closed(status.mode) else None
    size, number = (0, status.id) if status.is_folder else (status.size, "")
    times = status.mtime_ms, status.is_link, can_run
    return Entry(name, path, status.is_folder, size, *times, mode=closed, id=number)
