"""HDFS's own checksum of a file: the MD5 of each block's MD5 of the CRCs of every 512 bytes.

``MD5-of-262144MD5-of-512CRC32C`` means blocks of 262144 CRCs, each over 512 bytes; ``MD5-of-0MD5...`` means a
single block.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.crc import crc32c_of
from openpai_tasks.storage.store import Digest

Sums = Callable[[bytes, int], bytes]
"""Computes the CRCs, four bytes each, of chunks of a size; the last chunk may be smaller."""

CRCS: dict[str, Callable[[bytes], int]] = {"CRC32": zlib.crc32, "CRC32C": crc32c_of}
CRC_NAMES = {1: "CRC32", 2: "CRC32C"}
"""By their numbers in Hadoop's protocols."""
KIND = re.compile(r"MD5-of-(\d+)MD5-of-(\d+)(CRC32C?)")
EMPTY = "MD5-of-0MD5-of-0CRC32"
STRIDE = 1 << 20


@dataclass(frozen=True)
class Shape:
    """The parameters of a file's checksum; ``block`` 0 is one block of any size."""

    block: int
    chunk: int = 512
    crc: str = "CRC32C"

    @classmethod
    def parse(cls, kind: str) -> Shape | None:
        """Return the parameters in the name of a kind; None for kinds that are not supported."""
        found = KIND.fullmatch(kind)
        if not found:
            return None
        sums, chunk = int(found[1]), int(found[2])
        return cls(sums * chunk, chunk or 512, found[3])


class BlockHasher:
    """Computes a fingerprint while bytes pass; keeps less than a chunk, and 16 bytes for each block."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._sums = SUMS[shape.crc]
        self._rest = b""
        self._block, self._filled = hashlib.md5(usedforsecurity=False), 0
        self._blocks = bytearray()

    def update(self, piece: bytes, /) -> None:
        # Hashing a slice of bytes is cheaper than a memoryview.
        data = self._rest + piece if self._rest else piece
        whole = len(data) - len(data) % self._shape.chunk
        self._rest = data[whole:]
        start = 0
        while start < whole:
            room = self._shape.block - self._filled if self._shape.block else whole
            end = min(whole, start + room, start + STRIDE)
            self._add(data[start:end])
            start = end

    def digest(self) -> Digest:
        if self._rest:
            self._add(self._rest)
            self._rest = b""
        if self._filled:
            self._close_block()
        count = len(self._blocks) // 16
        padded = self._blocks + bytes(_buffer(len(self._blocks)) - len(self._blocks))
        value = hashlib.md5(padded, usedforsecurity=False).hexdigest()
        if not count:
            return Digest(EMPTY, value)
        sums = self._shape.block // self._shape.chunk if count > 1 else 0
        return Digest(f"MD5-of-{sums}MD5-of-{self._shape.chunk}{self._shape.crc}", value)

    def _add(self, data: bytes) -> None:
        self._block.update(self._sums(data, self._shape.chunk))
        self._filled += len(data)
        if self._filled == self._shape.block:
            self._close_block()

    def _close_block(self) -> None:
        self._blocks += self._block.digest()
        self._block, self._filled = hashlib.md5(usedforsecurity=False), 0


def _buffer(size: int) -> int:
    """Return the size of HDFS's buffer, which doubles from 32 bytes; HDFS hashes all of it."""
    room = 32
    while room < size:
        room *= 2
    return room


def _each(crc: Callable[[bytes], int]) -> Sums:
    """Apply a CRC function to many chunks: cut, called and packed without a Python loop."""

    def sums(data: bytes, chunk: int) -> bytes:
        count, rest = divmod(len(data), chunk)
        found = [*map(crc, _cutter(chunk, count).unpack_from(data))]
        if rest:
            found.append(crc(data[-rest:]))
        return struct.pack(f">{len(found)}I", *found)

    return sums


@lru_cache(16)
def _cutter(chunk: int, count: int) -> struct.Struct:
    return struct.Struct(f"{chunk}s" * count)


SUMS: dict[str, Sums] = {name: _each(crc) for name, crc in CRCS.items()}
