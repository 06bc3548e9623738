"""HDFS as a store: PyHDFS asks, a lean HTTP client moves the bytes."""

from __future__ import annotations

import contextlib
import getpass
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import pyhdfs

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.storage.store import Digest, Entry, Hasher, base, check_name, join
from openpai_tasks.storage.webhdfs_digest import BlockHasher, Shape
from openpai_tasks.storage.webhdfs_http import Reply
from openpai_tasks.storage.webhdfs_names import (
    FOREIGN,
    BelowFile,
    NameNodes,
    Patience,
    is_past_end,
    is_unknown_operation,
    is_without_data_node,
    patiently,
    told,
)
from openpai_tasks.storage.webhdfs_ranges import PART, in_order, sampled
from openpai_tasks.storage.webhdfs_wire import V1, Body, DataNodeGone, Wire

WIDE = 4 * PART  # what is larger may be read in several ranges at once
FAST = 100e6  # bytes a second by one connection: others would only share the same wire and processors
AVOIDED = 60.0  # seconds without a data node that failed
BROKEN_OFF = (0.0, 0.1, 0.2, 0.4)  # seconds
NOBODY = ("", 0.0)
CRCS = {1: "CRC32", 2: "CRC32C"}

Result = TypeVar("Result")


class WebHdfs:
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
        patience: Patience | None = None,
        fast: float = FAST,
    ) -> None:
        user = user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self.hosts, self.root = tuple(hosts), root.rstrip("/")
        self._prefix, self._patience = prefix, patience or Patience()
        self._wire = Wire(prefix, timeout, verify)
        self._names = NameNodes(self.hosts, user, scheme, self._wire, timeout)
        self._fast = fast
        self._is_wide = threading.Lock()  # one at a time, so that memory has a bound
        self._shape: Shape | None = None
        self._avoid = NOBODY

    def close(self) -> None:
        self._wire.close()

    def address(self, path: str) -> str:
        return f"hdfs://{','.join(sorted(self.hosts))}{self._prefix.removesuffix(V1)}{self._real(path)}"

    def stat(self, path: str) -> Entry | None:
        real = self._real(path)
        try:
            status = patiently(lambda _: self._names.get_file_status(real), path, self._patience)
        except (NotFound, BelowFile):
            return None
        return _entry(status, base(path), path)

    def list(self, path: str) -> Iterator[Entry]:
        for status in self._statuses(path):
            name = status["pathSuffix"]
            if not name and status["type"] != "DIRECTORY":
                raise PathError(f"{path}: a file, not a folder")
            yield _entry(status, check_name(name, path), join(path, name))

    def make_folder(self, path: str) -> None:
        real = self._new(path)
        patiently(lambda _: self._names.mkdirs(real), path, self._patience)

    def remove(self, path: str, recursive: bool = False) -> None:
        real, flag = self._real(path), "true" if recursive else "false"

        def act(number: int) -> bool:
            return bool(self._names.delete(real, recursive=flag)) or number > 0  # its answer was lost

        if not patiently(act, path, self._patience):
            raise NotFound(f"{path}: no such file or folder on HDFS", 404)

    def rename(self, source: str, target: str) -> None:
        real, new = self._real(source), self._new(target)

        def act(number: int) -> None:
            try:
                self._names.replace(real, new)
            except pyhdfs.HdfsFileNotFoundException:
                if number == 0 or not self._names.exists(new):  # else it went well, and its answer was lost
                    raise

        patiently(act, source, self._patience)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if length is not None and length <= 0:
            return
        reply = self._open(path, offset, length)
        if reply is None:
            return
        pieces, size = self._narrow(path, offset, length, reply), reply.length or 0
        if size >= WIDE:
            moved, rate = yield from sampled(pieces, PART)
            if rate < self._fast and self._is_wide.acquire(blocking=False):
                try:
                    pieces.close()
                    yield from in_order(
                        lambda at, count: self._narrow(path, at, count), offset + moved, offset + size
                    )
                finally:
                    self._is_wide.release()
                return
        yield from pieces

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        real = self._new(path)
        body = _Once(pieces)
        content: Any = Body(body, size)

        def act(_: int) -> None:
            try:
                self._elsewhere(lambda but: self._names.create(real, content, overwrite="true", **but))
            except FOREIGN as err:
                if not body.began:
                    raise
                self._clear(real)
                raise told(err, path) from err  # it comes only once: whoever has it must begin again

        patiently(act, path, self._patience)

    def digest(self, path: str) -> Digest | None:
        real = self._real(path)

        def act(_: int) -> Any:
            return self._elsewhere(lambda but: self._names.get_file_checksum(real, **but))

        found = patiently(act, path, self._patience)
        algorithm, value = str(found.algorithm), str(found.bytes)
        return Digest(algorithm, value[24:56] if Shape.of(algorithm) else value)

    def hasher(self, kind: str | None = None) -> Hasher | None:
        shape = Shape.of(kind) if kind else self._written_now()
        return BlockHasher(shape) if shape else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        real = self._real(path)
        patiently(lambda _: self._names.set_times(real, modificationtime=mtime_ms), path, self._patience)

    def make_executable(self, path: str) -> None:
        real = self._real(path)
        mode = int(
            str(patiently(lambda _: self._names.get_file_status(real), path, self._patience).permission), 8
        )
        text = f"{mode | (mode & 0o444) >> 2:o}"
        patiently(lambda _: self._names.set_permission(real, permission=text), path, self._patience)

    def _real(self, path: str) -> str:
        names = path.split("/")
        if "." in names or ".." in names or not path.startswith("/") or "\0" in path:
            raise PathError(f"{path!r} cannot be a path on HDFS")
        return (self.root + path).rstrip("/") or "/"

    def _new(self, path: str) -> str:
        if ":" in path:
            raise PathError(f"{path}: HDFS allows no ':' in a name; choose another one")
        return self._real(path)

    def _statuses(self, path: str) -> Iterator[dict[str, Any]]:
        """A folder's entries in batches, so that a large one neither waits nor fills the memory."""
        real, after, left = self._real(path), "", 1

        def batch(_: int) -> tuple[list[dict[str, Any]], int]:
            try:
                return self._names.list_batch(real, after)
            except FOREIGN as err:
                if not is_unknown_operation(err):
                    raise
                return self._names.list_all(real), 0

        while left:
            found, left = patiently(batch, path, self._patience)
            yield from found
            left = left if found else 0
            after = found[-1]["pathSuffix"] if found else ""

    def _open(self, path: str, offset: int, length: int | None) -> Reply | None:
        """The answer of a data node; None when there is nothing from the offset on."""
        real = self._real(path)
        limit = {} if length is None else {"length": length}

        def act(_: int) -> Any:
            try:
                return self._elsewhere(lambda but: self._names.open(real, offset=offset, **limit, **but))
            except FOREIGN as err:
                if is_past_end(err):
                    return None
                raise

        reply: Reply | None = patiently(act, path, self._patience)
        return reply

    def _narrow(
        self, path: str, offset: int, length: int | None, reply: Reply | None = None
    ) -> Generator[bytes, None, None]:
        """The bytes by one connection after another: where one is cut, the next goes on."""
        pauses, left, moves = self._patience.pauses(), length, True
        while moves and (left is None or left > 0):
            reply = reply or self._open(path, offset, left)
            if reply is None:
                return
            moves = False
            try:
                for piece in reply.pieces():
                    moves, pauses = True, self._patience.pauses()  # patience begins anew
                    offset, left = offset + len(piece), None if left is None else left - len(piece)
                    yield piece
            except FOREIGN as err:
                moves, pause = True, next(pauses)
                if pause is None:
                    raise told(err, path) from err
                time.sleep(pause)
            else:
                if left is None:
                    return
            reply = None

    def _clear(self, real: str) -> None:
        """What a data node has of an upload that broke off may appear a little later."""
        for pause in BROKEN_OFF:
            time.sleep(pause)
            with contextlib.suppress(*FOREIGN):
                if self._names.delete(real):
                    return

    def _elsewhere(self, act: Callable[[dict[str, str]], Result]) -> Result:
        """With another data node than the one that failed last, if there is another."""
        host, until = self._avoid
        try:
            return act({"excludedatanodes": host} if time.monotonic() < until else {})
        except DataNodeGone as err:
            self._avoid = err.host, time.monotonic() + AVOIDED
            raise
        except pyhdfs.HdfsHttpException as err:
            if time.monotonic() > until or not is_without_data_node(err):
                raise
            self._avoid = NOBODY
            return act({})

    def _written_now(self) -> Shape | None:
        """What decides the fingerprint of a new file; None where an older HDFS does not tell."""
        if self._shape is None:
            with contextlib.suppress(PathError):
                found = patiently(lambda _: self._names.server_defaults(), "/", self._patience)
                crc = CRCS.get(found["checksumType"])
                self._shape = Shape(found["blockSize"], found["bytesPerChecksum"], crc) if crc else None
        return self._shape


class _Once:
    """Pieces that may come only once; ``began`` tells that they did."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self.began = pieces, False

    def __iter__(self) -> Iterator[bytes]:
        self.began = not isinstance(self._pieces, (list, tuple))
        return iter(self._pieces)


def _entry(status: Any, name: str, path: str) -> Entry:
    is_folder = status["type"] == "DIRECTORY"
    can_run = bool(int(status["permission"], 8) & 0o100) and not is_folder
    size, is_link = 0 if is_folder else status["length"], status["type"] == "SYMLINK"
    return Entry(name, path, is_folder, size, status["modificationTime"], is_link, can_run)
