"""Shards for TensorFlow: a ``tf.train.Example`` for each file, with name, mode, mtime_ms and content.

A record is its length, the masked CRC32C of these eight bytes, the data, and the data's masked CRC32C.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from openpai_tasks.errors import PathError
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.packing import example
from openpai_tasks.storage.packing.index import Index, Row, check_member_name
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.shards import Encoder, Format

LENGTH, CRC = struct.Struct("<Q"), struct.Struct("<I")
MOST = (1 << 31) - (1 << 16)
"""Protobuf can hold less than 2 GiB; the name needs a little of it."""
MODE = 0o644
"""Mode of a file whose record has none."""


def masked(crc: int) -> int:
    """Mask a CRC for storage, as CRCs of data that contains CRCs are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class TFRecordEncoder(Encoder):
    def before(self, member: PackMember, position: int) -> bytes:
        facts: dict[str, bytes | int] = {"name": member.name.encode("utf-8", "surrogateescape")}
        facts |= {"mode": member.mode, "mtime_ms": member.mtime_ms}
        begun = example.head(facts, "content", member.size)
        self._crc = crc32c(begun)
        length = LENGTH.pack(len(begun) + member.size)
        return length + CRC.pack(masked(crc32c(length))) + begun

    def update(self, piece: bytes) -> None:
        self._crc = crc32c(piece, self._crc)

    def after(self, member: PackMember) -> bytes:
        return CRC.pack(masked(self._crc))


def _measure(member: PackMember) -> int:
    return member.size + 128 + len(member.name)


def _scan(file: BinaryIO, url: str, shard: int, index: Index) -> None:
    """Read all records and check their CRCs; one that is not an Example of a file becomes a file itself."""
    stem, at, number = url.rpartition("/")[2].partition(".")[0], 0, 0
    whole = file.seek(0, 2)
    file.seek(0)
    while head := file.read(LENGTH.size + CRC.size):
        size = _length(head, url, number)
        if size > whole - at:
            raise PathError(f"{url}: record {number} is cut")
        record, checksum = file.read(size), file.read(CRC.size)
        if len(record) < size or len(checksum) < CRC.size:
            raise PathError(f"{url}: record {number} is cut")
        if CRC.unpack(checksum)[0] != masked(crc32c(record)):
            raise PathError(f"{url}: record {number} is damaged: wrong CRC32C")
        index.add(_row(record, at + len(head), f"{stem}-{number:08d}", url, shard))
        at, number = at + len(head) + size + CRC.size, number + 1


def _length(head: bytes, url: str, number: int) -> int:
    if len(head) < LENGTH.size + CRC.size:
        raise PathError(f"{url}: record {number} is cut")
    if CRC.unpack_from(head, LENGTH.size)[0] != masked(crc32c(head[: LENGTH.size])):
        raise PathError(f"{url}: record {number} is damaged, or this is not a TFRecord file")
    return int(LENGTH.unpack_from(head)[0])


def _row(record: bytes, at: int, name: str, url: str, shard: int) -> Row:
    """Return the file in the record, or else the record as a file."""
    try:
        found = example.features(record)
    except ValueError:
        found = {}
    own, content = found.get("name"), found.get("content")
    if not isinstance(own, example.Span) or not isinstance(content, example.Span):
        return Row(name, shard, at, len(record), MODE, 0, crc32c(record))
    mode, mtime = found.get("mode"), found.get("mtime_ms")
    return Row(
        check_member_name(record[own.start : own.end].decode("utf-8", "surrogateescape"), url),
        shard,
        at + content.start,
        content.end - content.start,
        mode & 0o777 if isinstance(mode, int) else MODE,
        mtime if isinstance(mtime, int) else 0,
        crc32c(record[content.start : content.end]),
    )


FORMAT = Format(".tfrecord", TFRecordEncoder, _measure, _scan, MOST)
