"""Files over Hadoop's native protocol, if the data nodes can be reached; WebHDFS is the fallback.

Each chunk of a block is sent with its CRC, which the receiver checks. Files that were read or written this
way need no further checksum request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TypeVar

from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.http1 import error_text
from openpai_tasks.storage.hdfs.digest import Shape
from openpai_tasks.storage.hdfs.native.blocks import BlockError, DataNodes, PieceReader
from openpai_tasks.storage.hdfs.native.rpc import Block, NameNode, RpcError
from openpai_tasks.storage.hdfs.ranges import read_ahead
from openpai_tasks.storage.hdfs.web.errors import RemoteError, make_error
from openpai_tasks.storage.protobuf import InvalidMessage

WIDE = 8 << 20  # bytes; to fetch less by another thread does not pay
BARRED = 60.0  # seconds after a failure in which WebHDFS does it all
RENEWAL = 20.0  # seconds; after 60 s of silence, a writer may lose the file
FIRST_PAUSE, LONGEST_PAUSE, CLOSING = 0.001, 0.4, 60.0  # seconds, for a data node to report its block
FAILED = (OSError, RpcError, InvalidMessage, BlockError)
ELSEWHERE = ("StandbyException", "RetriableException", "AccessControlException")
"""Refusals that another name node, or an authenticated client, may not get."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class FileLayout:
    """The layout of new files."""

    shape: Shape
    replication: int
    is_encrypted: bool = False  # in transit: only Java clients can encrypt


class NativeClient:
    """Access to the name node and the data nodes; after a failure, it is not used for a while.

    ``real`` is a file's path on HDFS; errors name the path that the caller gave.
    """

    def __init__(self, user: str, timeout: float) -> None:
        self._user, self._timeout = user, timeout
        self._lock = threading.Lock()
        self._names: NameNode | None = None
        self._nodes: DataNodes | None = None
        self._lost = self._barred = 0.0  # when the name node or the data nodes may be tried again

    @property
    def is_open(self) -> bool:
        return self._names is not None

    def open(self, find: Callable[[], tuple[str, int] | None]) -> bool:
        """Whether the name node can be used; ``find`` returns its address."""
        with self._lock:
            if self._names is None and time.monotonic() >= self._lost:
                address = find()
                if address is None:
                    self._lost = float("inf")
                else:
                    self._names = NameNode(*address, self._user, self._timeout)
                    self._nodes = DataNodes(self._names.client, self._timeout)
            return self._names is not None

    def close(self) -> None:
        with self._lock:
            names, nodes, self._names, self._nodes = self._names, self._nodes, None, None
        if names and nodes:
            names.close()
            nodes.close()

    def ask(self, question: Callable[[NameNode], Result]) -> Result | None:
        """Return the name node's answer; None if it fails, as WebHDFS will report the reason."""
        names = self._names
        if names is None:
            return None
        try:
            return question(names)
        except FAILED as err:
            if not isinstance(err, RpcError) or err.kind in ELSEWHERE:
                self._lost = time.monotonic() + BARRED
                self.close()
            return None

    def read(self, real: str, path: str, offset: int, length: int) -> Iterator[bytes] | None:
        """Return the verified bytes; None if that is not possible."""
        nodes = self._nodes
        if nodes is None or time.monotonic() < self._barred:
            return None
        blocks = self.ask(lambda names: names.blocks(real, offset, length))
        if blocks is None:
            return None
        pieces = self._blocks(nodes, path, blocks, offset, length)
        return read_ahead(pieces) if length >= WIDE else pieces

    def write(
        self, real: str, path: str, pieces: Iterable[bytes], size: int | None, layout: FileLayout, mode: int
    ) -> bool:
        """Write a new file, every byte verified; return False, with no piece read, if that is impossible."""
        names, nodes = self._names, self._nodes
        if names is None or nodes is None or time.monotonic() < self._barred:
            return False
        feed = PieceReader(_renewing_lease(pieces, names))
        try:
            writing = _FileWriter(names, nodes, real, layout, mode)
            is_empty = size == 0 or (size is None and feed.is_empty)
            writing.run(feed, is_empty, is_large=size is None or size >= WIDE)
        except PaiError:  # from the source of the pieces; some of ours are also OSErrors
            raise
        except FAILED as err:
            self._disable_for_a_while(err)
            if feed.began:
                raise _make_error(err, path) from err
            return False
        return True

    def _blocks(
        self, nodes: DataNodes, path: str, blocks: list[Block], offset: int, length: int
    ) -> Generator[bytes, None, None]:
        end = offset + length
        for block in blocks:
            start, stop = max(offset, block.offset), min(end, block.end)
            addresses = list(block.addresses)
            while start < stop:
                address = addresses.pop(0)
                try:
                    for piece in nodes.read(block, address, start - block.offset, stop - start):
                        start += len(piece)
                        yield piece
                except FAILED as err:
                    if not addresses:
                        self._disable_for_a_while(err)
                        raise _make_error(err, path) from err

    def _disable_for_a_while(self, err: Exception) -> None:
        if not isinstance(err, RpcError):  # a refusal concerns this file, not the connection
            self._barred = time.monotonic() + BARRED


class _FileWriter:
    """The writing of one new file: its blocks in order, then closing it."""

    def __init__(self, names: NameNode, nodes: DataNodes, path: str, layout: FileLayout, mode: int) -> None:
        self._names, self._nodes, self._path, self._shape = names, nodes, path, layout.shape
        self._file = names.create(path, layout.replication, layout.shape.block, mode)

    def run(self, feed: PieceReader, is_empty: bool, is_large: bool) -> None:
        """Set up the first block before reading a piece, so that WebHDFS can still be used if that fails."""
        if not self._file.is_plain:
            raise BlockError("an encrypted or striped file")
        last = None
        while not is_empty:
            block = _wait_until_reported(partial(self._add_block, last))
            if not block.is_plain:
                raise BlockError("a block behind a token")
            size = self._nodes.write(block, self._shape, self._file.block_size, feed, is_large)
            last = block.wire_id(size)
            is_empty = feed.is_empty
        _wait_until_reported(lambda: self._names.complete(self._path, self._file, last) or None)

    def _add_block(self, last: bytes | None) -> Block | None:
        """Return the next block; None while no data node has reported the last one."""
        try:
            return self._names.add_block(self._path, self._file, last)
        except RpcError as err:
            if err.kind != "NotReplicatedYetException":
                raise
            return None


def _wait_until_reported(attempt: Callable[[], Result | None]) -> Result:
    """Return the result of the first attempt that has one: a data node reports a block some time later."""
    pause, end = FIRST_PAUSE, time.monotonic() + CLOSING
    while (result := attempt()) is None:
        if time.monotonic() > end:
            raise BlockError("no data node knows its block")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return result


def _make_error(err: Exception, path: str) -> PaiError:
    """Return the error that WebHDFS would have raised."""
    if not isinstance(err, RpcError):
        return Unreachable(f"{path}: HDFS does not answer: {error_text(err)}")
    return make_error(RemoteError(err.kind, str(err)), path)


def _renewing_lease(pieces: Iterable[bytes], names: NameNode) -> Iterator[bytes]:
    """Yield the pieces, and renew the lease at the name node now and then."""
    renewed = time.monotonic()
    for piece in pieces:
        if time.monotonic() - renewed > RENEWAL:
            names.renew_lease()
            renewed = time.monotonic()
        yield piece
