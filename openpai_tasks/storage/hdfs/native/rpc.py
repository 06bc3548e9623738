"""The name node's native protocol: the few calls that direct access to blocks needs.

WebHDFS makes a data node fetch or store the bytes for us, and opens a Java client there for every request;
talking to the name node and the data nodes like a Java client saves the cluster that work.
"""

from __future__ import annotations

import secrets
import struct
import threading
from functools import cache

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.hdfs.native.protobuf import (
    Fields,
    Garbled,
    delimited,
    fields,
    inner,
    message,
    number,
    take_message,
    text,
    zigzag,
)
from openpai_tasks.storage.hdfs.native.stream import Stream, Streams

PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
GREETING = b"hrpc\x09\x00\x00"  # version 9, without authentication, like WebHDFS's user.name
ANSWER_LIMIT = 64 << 20
PROTOBUF, SETTING_UP = 2, -3
CREATE, OVERWRITE = 1, 2
FOLDER, LINK = 1, 3
PRIVATE_TOKEN = 1  # field of a token that is empty if blocks need no token


class RpcRefused(Exception):
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
    token: bytes
    storages: tuple[bytes, ...] = ()
    storage_types: tuple[int, ...] = ()

    @classmethod
    def parse(cls, data: bytes) -> Block:
        found = fields(data)
        it = fields(inner(found, 1))
        types = found.get(7, [])
        return cls(
            text(it, 1),
            number(it, 2),
            number(it, 3),
            number(it, 4),
            number(found, 2),
            tuple(node for node in found.get(3, []) if isinstance(node, bytes)),
            inner(found, 5),
            tuple(name for name in found.get(8, []) if isinstance(name, bytes)),
            tuple(kind for kind in types if isinstance(kind, int)),
        )

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def is_plain(self) -> bool:
        """Whether it is a complete copy that needs no token, not a stripe."""
        return bool(self.nodes) and self.id < 1 << 63 and not inner(fields(self.token), PRIVATE_TOKEN)

    def addresses(self) -> list[tuple[str, int]]:
        ids = (fields(inner(fields(node), 1)) for node in self.nodes)
        return [(text(one, 1), number(one, 4)) for one in ids]

    def named(self, size: int) -> bytes:
        """Return its identifier on the wire, with the given size."""
        return message((1, self.pool), (2, self.id), (3, self.stamp), (4, size))


@dataclass(frozen=True)
class Created:
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
    id: int

    @classmethod
    def parse(cls, data: bytes) -> Status:
        found = fields(data)
        kind, mode = number(found, 1), number(fields(inner(found, 4)), 1)
        return cls(kind == FOLDER, kind == LINK, number(found, 3), mode, number(found, 7), number(found, 13))


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
        answer = self._call("getBlockLocations", message((1, path), (2, offset), (3, length)))
        answered = fields(inner(answer, 1))
        blocks = [Block.parse(one) for one in answered.get(2, []) if isinstance(one, bytes)]
        is_plain = not (number(answered, 3) or 6 in answered or 7 in answered)
        return blocks if is_plain and all(block.is_plain for block in blocks) else None

    def create(self, path: str, replication: int, block_size: int, mode: int) -> Created:
        asked = message(
            (1, path),
            (2, message((1, mode))),
            (3, self.client),
            (4, CREATE | OVERWRITE),
            (5, 0),
            (6, replication),
            (7, block_size),
        )
        answered = fields(inner(self._call("create", asked), 1))
        return Created(number(answered, 13), number(answered, 11), not (15 in answered or 17 in answered))

    def add_block(self, path: str, file: Created, last: bytes | None) -> Block:
        asked = message((1, path), (2, self.client), (3, last), (5, file.id))
        return Block.parse(inner(self._call("addBlock", asked), 1))

    def complete(self, path: str, file: Created, last: bytes | None) -> bool:
        """Close the file; False while no data node has reported its last block."""
        asked = message((1, path), (2, self.client), (3, last), (4, file.id))
        return bool(number(self._call("complete", asked), 1))

    def status(self, path: str) -> Status | None:
        """Return the status of the path, or None."""
        answer = self._call("getFileInfo", message((1, path)))
        return Status.parse(inner(answer, 1)) if 1 in answer else None

    def rename(self, source: str, target: str) -> bool:
        """Rename a file, replacing any file of that name."""
        self._call("rename2", message((1, source), (2, target), (3, 1)))
        return True

    def set_mtime(self, path: str, mtime_ms: int) -> bool:
        self._call("setTimes", message((1, path), (2, mtime_ms), (3, -1)))
        return True

    def recover(self, path: str) -> bool:
        """Close a file whose writer is dead; False while its last block is being recovered."""
        return bool(number(self._call("recoverLease", message((1, path), (2, self.client))), 1))

    def renew_lease(self) -> None:
        self._call("renewLease", message((1, self.client)))

    def _call(self, method: str, asked: bytes) -> Fields:
        with self._lock:
            self._calls = call = (self._calls + 1) % (1 << 31)
        with self._streams.borrowed(self._key) as stream:
            stream.send(_framed(self._header(call), _named(method) + delimited(asked)))
            return _answer(stream)

    def _greet(self, stream: Stream) -> None:
        context = message((2, message((1, self._user))), (3, PROTOCOL))
        stream.send(GREETING + _framed(self._header(SETTING_UP), delimited(context)))

    def _header(self, call: int) -> bytes:
        fields_ = (1, PROTOBUF), (2, 0), (3, zigzag(call)), (4, self._id), (5, zigzag(-1))
        return delimited(message(*fields_))


@cache
def _named(method: str) -> bytes:
    return delimited(message((1, method), (2, PROTOCOL), (3, 1)))


def _framed(header: bytes, rest: bytes) -> bytes:
    return struct.pack(">i", len(header) + len(rest)) + header + rest


def _answer(stream: Stream) -> Fields:
    size = int(struct.unpack(">i", stream.exactly(4))[0])
    if not 0 < size <= ANSWER_LIMIT:
        raise Garbled(f"an answer of {size} bytes")
    data = stream.exactly(size)
    head, at = take_message(data)
    answered = fields(head)
    if number(answered, 2):
        kind = text(answered, 4).rpartition(".")[2]
        raise RpcRefused(kind, text(answered, 5).partition("\n")[0])
    return fields(take_message(data, at)[0])
