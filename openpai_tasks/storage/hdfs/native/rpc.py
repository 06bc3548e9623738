"""The name node's native protocol: the few calls that direct access to blocks needs.

WebHDFS makes a data node fetch or store the bytes for us, and opens a Java client there for every request;
talking to the name node and the data nodes like a Java client saves the cluster that work.
"""

from __future__ import annotations

import re
import secrets
import struct
import threading
from functools import cache

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage import protobuf as pb
from openpai_tasks.storage.hdfs.native.stream import Stream, Streams

PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
GREETING = b"hrpc\x09\x00\x00"  # version 9, without authentication, like WebHDFS's user.name
ANSWER_LIMIT = 64 << 20
PROTOBUF, SETTING_UP = 2, -3
CREATE, OVERWRITE = 1, 2
FOLDER, LINK = 1, 3
HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
PRIVATE_TOKEN = 1  # field of a token that is empty if blocks need no token


class RpcError(Exception):
    """Raised when the name node refuses; ``kind`` is the name of the Java exception without its package."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Block:
    """A block of a file, and the data nodes that have it or will get it."""

    pool: str
    id: int
    stamp: int
    size: int
    offset: int
    nodes: tuple[bytes, ...]  # as received
    addresses: tuple[tuple[str, int], ...]  # of the nodes
    token: bytes
    storages: tuple[bytes, ...] = ()
    storage_types: tuple[int, ...] = ()

    @classmethod
    def parse(cls, data: bytes) -> Block:
        found = pb.fields(data)
        it = pb.fields(pb.inner(found, 1))
        types = found.get(7, [])
        nodes = tuple(node for node in found.get(3, []) if isinstance(node, bytes))
        return cls(
            pb.text(it, 1),
            pb.number(it, 2),
            pb.number(it, 3),
            pb.number(it, 4),
            pb.number(found, 2),
            nodes,
            tuple(map(_address, nodes)),
            pb.inner(found, 5),
            tuple(name for name in found.get(8, []) if isinstance(name, bytes)),
            tuple(kind for kind in types if isinstance(kind, int)),
        )

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def is_plain(self) -> bool:
        """Whether it is a complete copy that needs no token, not a stripe."""
        return bool(self.nodes) and self.id < 1 << 63 and not pb.inner(pb.fields(self.token), PRIVATE_TOKEN)

    def wire_id(self, size: int) -> bytes:
        """Return its identifier on the wire, with the given size."""
        return pb.message((1, self.pool), (2, self.id), (3, self.stamp), (4, size))


def _address(node: bytes) -> tuple[str, int]:
    found = pb.fields(pb.inner(pb.fields(node), 1))
    host, port = pb.text(found, 1), pb.number(found, 4)
    if not HOST.fullmatch(host) or not 0 < port < 1 << 16:
        raise pb.InvalidMessage("a data node without a valid address")
    return host, port


@dataclass(frozen=True)
class NewFile:
    """A new file, empty and open for writing."""

    id: int
    block_size: int
    is_plain: bool  # neither encrypted nor striped: the bytes are stored as sent


@dataclass(frozen=True)
class Status:
    """The status of a path."""

    is_folder: bool
    is_link: bool
    size: int
    mode: int
    mtime_ms: int
    id: str
    name: str = ""  # in a listing

    @classmethod
    def parse(cls, data: bytes) -> Status:
        found = pb.fields(data)
        kind, mode = pb.number(found, 1), pb.number(pb.fields(pb.inner(found, 4)), 1)
        times = pb.number(found, 7), str(pb.number(found, 13))
        return cls(kind == FOLDER, kind == LINK, pb.number(found, 3), mode, *times)


class NameNode:
    """One name node; each thread uses a separate connection."""

    def __init__(self, host: str, port: int, user: str, timeout: float) -> None:
        self._key, self._user = (host, port), user
        self._streams = Streams(timeout, greet=self._greet)
        self.client = f"openpai-{secrets.token_hex(8)}"
        self._id = secrets.token_bytes(16)
        self._calls, self._lock = 0, threading.Lock()

    def close(self) -> None:
        self._streams.close()

    def blocks(self, path: str, offset: int, length: int) -> list[Block] | None:
        """Return the blocks with those bytes; None if the file is being written, encrypted or striped."""
        answer = self._call("getBlockLocations", pb.message((1, path), (2, offset), (3, length)))
        answered = pb.fields(pb.inner(answer, 1))
        blocks = [Block.parse(one) for one in answered.get(2, []) if isinstance(one, bytes)]
        is_plain = not (pb.number(answered, 3) or 6 in answered or 7 in answered)
        return blocks if is_plain and all(block.is_plain for block in blocks) else None

    def create(self, path: str, replication: int, block_size: int, mode: int) -> NewFile:
        asked = pb.message(
            (1, path),
            (2, pb.message((1, mode))),
            (3, self.client),
            (4, CREATE | OVERWRITE),
            (5, 0),
            (6, replication),
            (7, block_size),
        )
        answered = pb.fields(pb.inner(self._call("create", asked), 1))
        return NewFile(
            pb.number(answered, 13), pb.number(answered, 11), not (15 in answered or 17 in answered)
        )

    def add_block(self, path: str, file: NewFile, last: bytes | None) -> Block:
        asked = pb.message((1, path), (2, self.client), (3, last), (5, file.id))
        return Block.parse(pb.inner(self._call("addBlock", asked), 1))

    def complete(self, path: str, file: NewFile, last: bytes | None) -> bool:
        """Close the file; False while no data node has reported its last block."""
        asked = pb.message((1, path), (2, self.client), (3, last), (4, file.id))
        return bool(pb.number(self._call("complete", asked), 1))

    def status(self, path: str) -> Status | None:
        """Return the status of the path, or None."""
        answer = self._call("getFileInfo", pb.message((1, path)))
        return Status.parse(pb.inner(answer, 1)) if 1 in answer else None

    def rename(self, source: str, target: str) -> bool:
        """Rename a file, replacing any file of that name."""
        self._call("rename2", pb.message((1, source), (2, target), (3, 1)))
        return True

    def set_mtime(self, path: str, mtime_ms: int) -> bool:
        self._call("setTimes", pb.message((1, path), (2, mtime_ms), (3, -1)))
        return True

    def recover(self, path: str) -> bool:
        """Close a file whose writer is dead; False while its last block is being recovered."""
        return bool(pb.number(self._call("recoverLease", pb.message((1, path), (2, self.client))), 1))

    def renew_lease(self) -> None:
        self._call("renewLease", pb.message((1, self.client)))

    def _call(self, method: str, asked: bytes) -> pb.Fields:
        with self._lock:
            self._calls = call = (self._calls + 1) % (1 << 31)
        with self._streams.borrow(self._key) as stream:
            stream.send(_frame_message(self._header(call), _request_header(method) + pb.delimited(asked)))
            return _answer(stream)

    def _greet(self, stream: Stream) -> None:
        context = pb.message((2, pb.message((1, self._user))), (3, PROTOCOL))
        stream.send(GREETING + _frame_message(self._header(SETTING_UP), pb.delimited(context)))

    def _header(self, call: int) -> bytes:
        fields_ = (1, PROTOBUF), (2, 0), (3, pb.zigzag(call)), (4, self._id), (5, pb.zigzag(-1))
        return pb.delimited(pb.message(*fields_))


@cache
def _request_header(method: str) -> bytes:
    return pb.delimited(pb.message((1, method), (2, PROTOCOL), (3, 1)))


def _frame_message(header: bytes, rest: bytes) -> bytes:
    return struct.pack(">i", len(header) + len(rest)) + header + rest


def _answer(stream: Stream) -> pb.Fields:
    size = int(struct.unpack(">i", stream.exactly(4))[0])
    if not 0 < size <= ANSWER_LIMIT:
        raise pb.InvalidMessage(f"an answer of {size} bytes")
    data = stream.exactly(size)
    head, at = pb.take_message(data)
    answered = pb.fields(head)
    if pb.number(answered, 2):
        kind = pb.text(answered, 4).rpartition(".")[2]
        raise RpcError(kind, pb.text(answered, 5).partition("\n")[0])
    return pb.fields(pb.take_message(data, at)[0])
