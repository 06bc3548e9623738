"""Shards for Hadoop: SequenceFiles version 6, uncompressed, from Text (the name) to BytesWritable.

A record is the length of both, the key's length, the key and the value. Now and then, -1 and a 16-byte mark
of the file stand in place of a length, so that a reader that starts in the middle can find the next record.
"""

from __future__ import annotations

import hashlib
import struct
from typing import BinaryIO

from openpai_tasks.errors import PathError
from openpai_tasks.storage.packing.index import Index, Row, check_member_name
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.shards import Encoder, Format

MAGIC = b"SEQ\x06"
TEXT, BYTES = "org.apache.hadoop.io.Text", "org.apache.hadoop.io.BytesWritable"
INT = struct.Struct(">i")
ESCAPE = INT.pack(-1)
SYNC = 16
INTERVAL = 2000
"""Bytes after which a mark precedes the next record."""
MOST = (1 << 31) - (1 << 16)
"""The length of a record is a Java int, and the name needs a little of it."""
MODE = 0o644


def vint(number: int) -> bytes:
    """Encode a length like Hadoop: up to 127 in one byte, else a size byte and the bytes."""
    if number <= 127:
        return bytes([number])
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(raw)]) + raw


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return vint(len(raw)) + raw


class SequenceEncoder(Encoder):
    def __init__(self, members: list[PackMember]) -> None:
        """Derive the mark from the members: unlikely to occur in the shard, and always the same."""
        names = hashlib.md5(usedforsecurity=False)
        for member in members:
            names.update(
                f"{member.name}\0{member.size}\0{member.mtime_ms}\0".encode("utf-8", "surrogateescape")
            )
        self._sync, self._synced = names.digest(), 0

    def head(self) -> bytes:
        kinds = text(TEXT) + text(BYTES)
        return MAGIC + kinds + b"\0\0" + INT.pack(0) + self._sync  # neither compressed; no metadata

    def before(self, member: PackMember, position: int) -> bytes:
        mark = b""
        if position >= self._synced + INTERVAL:
            mark = ESCAPE + self._sync
            self._synced = position + len(mark)
        key = text(member.name)
        lengths = INT.pack(len(key) + INT.size + member.size) + INT.pack(len(key))
        return mark + lengths + key + INT.pack(member.size)


def _measure(member: PackMember) -> int:
    return member.size + 40 + len(member.name)


def _scan(file: BinaryIO, url: str, shard: int, index: Index) -> None:
    parts = _Parts(file, url)
    sync, at = _read_header(parts, url), parts.at
    while at < parts.size:
        length = parts.number()
        if length != -1:
            index.add(_row(parts, length, shard, at))
        elif parts.read(SYNC) != sync:
            raise PathError(f"{url}: damaged at byte {at}: not the mark that was expected")
        at = parts.at


LONGEST = 1 << 20  # bytes of a name


class _Parts:
    """Reads the parts of a file in order; raises if bytes are missing."""

    def __init__(self, file: BinaryIO, url: str) -> None:
        self._file, self.url, self.at = file, url, 0
        self.size = file.seek(0, 2)
        file.seek(0)

    def read(self, count: int) -> bytes:
        self._require(count)
        found = self._file.read(count)
        self.at += count
        return found

    def skip(self, count: int) -> None:
        self._require(count)
        self.at = self._file.seek(self.at + count)

    def _require(self, count: int) -> None:
        if not 0 <= count <= self.size - self.at:
            raise PathError(f"{self.url}: cut at byte {self.size}, in the middle of a record")

    def number(self) -> int:
        return int(INT.unpack(self.read(INT.size))[0])

    def text(self) -> str:
        first = self.read(1)[0]
        count = first if first <= 127 else int.from_bytes(self.read(256 - 112 - first), "big")
        if count > LONGEST:
            raise PathError(f"{self.url}: a text has {count} bytes, more than {LONGEST >> 20} MB")
        return self.read(count).decode("utf-8", "surrogateescape")


def _read_header(parts: _Parts, url: str) -> bytes:
    """Return the file's mark; raise for types and compression that cannot be read here."""
    if parts.read(len(MAGIC)) != MAGIC:
        raise PathError(f"{url}: not a SequenceFile of version 6")
    kinds = parts.text(), parts.text()
    if kinds != (TEXT, BYTES):
        raise PathError(f"{url}: from {kinds[0]} to {kinds[1]}; only Text to BytesWritable can be read")
    if parts.read(2) != b"\0\0":
        raise PathError(f"{url}: compressed; only SequenceFiles that are not can be read")
    for _ in range(2 * parts.number()):
        parts.text()
    return parts.read(SYNC)


def _row(parts: _Parts, length: int, shard: int, at: int) -> Row:
    key_length = parts.number()
    start = parts.at
    name = parts.text()
    size = parts.number()
    if parts.at - start != key_length + INT.size or length != key_length + INT.size + size or size < 0:
        raise PathError(f"{parts.url}: damaged at byte {at}: the lengths of a record do not agree")
    row = Row(check_member_name(name, parts.url), shard, parts.at, size, MODE, 0)
    parts.skip(size)
    return row


FORMAT = Format(".seq", SequenceEncoder, _measure, _scan, MOST)
