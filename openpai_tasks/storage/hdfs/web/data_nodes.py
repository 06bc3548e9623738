"""Read and write files over WebHDFS, trying one data node after another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TypeVar

from openpai_tasks.net.http1 import HttpAnswer, ProtocolError
from openpai_tasks.storage.hdfs.ranges import PART, measure_rate, read_parallel
from openpai_tasks.storage.hdfs.web.client import WebHdfsClient, make_body
from openpai_tasks.storage.hdfs.web.errors import (
    HDFS_ERRORS,
    NO_DATA_NODE,
    PAST_END,
    STILL_OPEN,
    DataNodeError,
    RemoteError,
    make_error,
)
from openpai_tasks.storage.hdfs.web.name_nodes import NameNodes
from openpai_tasks.storage.retry import CorruptData, wait_before_retry

WIDE = 4 * PART  # larger files may be read in several ranges at once
# Bytes per second on one connection: more connections would only share the same network and processors.
FAST = 100e6
AVOIDED = 60.0  # seconds for which a failed data node is avoided
BROKEN_OFF = (0.0, 0.1, 0.2, 0.4)  # seconds
NOBODY = ("", 0.0)

Result = TypeVar("Result")


class DataNodes:
    """Reads and writes files by their paths on HDFS (``real``); errors name the path that the caller gave."""

    def __init__(self, names: NameNodes, client: WebHdfsClient, fast: float = FAST) -> None:
        self._names, self._client, self._fast = names, client, fast
        self._is_wide = threading.Lock()  # one at a time, to limit the memory used
        self._avoid = NOBODY

    def read(self, real: str, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        if length is not None and length <= 0:
            return
        reply = self._open(real, path, offset, length)
        if reply is None:
            return
        pieces, size = self._read_range(real, path, offset, length, reply), reply.length or 0
        if size >= WIDE:
            moved, rate = yield from measure_rate(pieces, PART)
            if rate < self._fast and self._is_wide.acquire(blocking=False):
                try:
                    pieces.close()
                    fetch = partial(self._read_range, real, path)
                    yield from read_parallel(fetch, offset + moved, offset + size)
                finally:
                    self._is_wide.release()
                return
        yield from pieces

    def write(
        self, real: str, path: str, pieces: Iterable[bytes], size: int | None, mode: int | None = None
    ) -> None:
        body = _SinglePass(pieces)
        how = {"overwrite": "true"} if mode is None else {"overwrite": "true", "permission": f"{mode:o}"}

        def attempt(_: int) -> None:
            try:
                self.avoiding_failed_node(
                    lambda but: self._upload("PUT", real, "CREATE", body, size, how | but)
                )
            except HDFS_ERRORS as err:
                if not body.began:
                    raise
                self._clear(real)
                raise make_error(err, path) from err  # the pieces come only once: the caller must start again

        self._names.retry(attempt, path)

    def append(self, real: str, path: str, pieces: Iterable[bytes], size: int) -> None:
        body = _SinglePass(pieces)

        def attempt(_: int) -> None:
            try:
                self.avoiding_failed_node(lambda but: self._upload("POST", real, "APPEND", body, size, but))
            except HDFS_ERRORS as err:
                if isinstance(err, RemoteError) and err.matches(STILL_OPEN):
                    raise CorruptData(f"{path}: still open for another writer") from err
                if body.began:
                    raise make_error(err, path) from err
                raise

        self._names.retry(attempt, path)

    def _upload(
        self, method: str, real: str, op: str, body: _SinglePass, size: int | None, options: dict[str, str]
    ) -> None:
        there = self._names.data_node(method, real, op, **options)
        self._client.follow(method, there, 201 if op == "CREATE" else 200, make_body(body, size))

    def _open(self, real: str, path: str, offset: int, length: int | None) -> HttpAnswer | None:
        """Return the answer of a data node; None if the file ends at the offset."""
        span = {"offset": str(offset)} if length is None else {"offset": str(offset), "length": str(length)}

        def ask(but: dict[str, str]) -> HttpAnswer:
            there = self._names.data_node("GET", real, "OPEN", **span, **but)
            return self._client.follow("GET", there, streams=True)

        def attempt(_: int) -> HttpAnswer | None:
            try:
                return self.avoiding_failed_node(ask)
            except RemoteError as err:
                if err.matches(PAST_END):
                    return None
                raise

        return self._names.retry(attempt, path)

    def _read_range(
        self, real: str, path: str, offset: int, length: int | None, reply: HttpAnswer | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the bytes; after a broken connection, the next one continues."""
        failures, left, moves = 0, length, True
        while moves and (left is None or left > 0):
            reply = reply or self._open(real, path, offset, left)
            if reply is None:
                return
            moves = False
            try:
                for piece in reply.pieces():
                    moves, failures = True, 0  # progress resets the retries
                    offset, left = offset + len(piece), None if left is None else left - len(piece)
                    yield piece
            except ProtocolError as err:
                moves, pause = True, self._names.retries.pause(failures)
                if pause is None or wait_before_retry(pause):
                    ours = make_error(err, path)
                    ours.is_given_up = True
                    raise ours from err
                failures += 1
            else:
                if left is None:
                    return
            reply = None

    def _clear(self, real: str) -> None:
        """Delete what an interrupted upload left; it may appear a little later."""
        for pause in BROKEN_OFF:
            time.sleep(pause)
            with contextlib.suppress(*HDFS_ERRORS):
                if self._names.delete(real):
                    return

    def avoiding_failed_node(self, attempt: Callable[[dict[str, str]], Result]) -> Result:
        """Call ``attempt`` without the data node that failed last, if there is another one."""
        host, until = self._avoid
        try:
            return attempt({"excludedatanodes": host} if time.monotonic() < until else {})
        except DataNodeError as err:
            self._avoid = err.host, time.monotonic() + AVOIDED
            raise
        except RemoteError as err:
            if time.monotonic() > until or not err.matches(NO_DATA_NODE):
                raise
            self._avoid = NOBODY
            return attempt({})


class _SinglePass:
    """Pieces that may be readable only once; ``began`` is set when such reading has started."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self.began = pieces, False

    def __iter__(self) -> Iterator[bytes]:
        self.began = not isinstance(self._pieces, (list, tuple))
        return iter(self._pieces)
