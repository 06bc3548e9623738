"""Whether bytes fit the CRCs of their chunks, at a third of the cost of computing each of them.

The CRC of two texts follows from the CRC of each: the first, moved on by the second's length, xor the second.
So the CRCs that came are combined into the one of all bytes, which one call to C computes. Pairs are combined
all at once: each of the four bytes of all CRCs is a row, and what moves them on is a ``bytes.translate``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

Matrix = tuple[int, ...]
"""What becomes of each of the 32 bits."""

POLYNOMIALS = {"CRC32": 0xEDB88320, "CRC32C": 0x82F63B78}


def fits(data: bytes, crcs: bytes, chunk: int, crc: str, whole: Callable[[bytes], int]) -> bool:
    """Whether these are the CRCs, four bytes each, of the chunks; ``whole`` computes the one of any bytes."""
    count, rest = divmod(len(data), chunk)
    if len(crcs) != 4 * (count + bool(rest)):
        return False
    if rest and whole(data[-rest:]) != int.from_bytes(crcs[-4:], "big"):
        return False
    even = data[:-rest] if rest else data
    return not even or combined(crcs[: 4 * count], chunk, crc) == whole(even)


def combined(crcs: bytes, chunk: int, crc: str) -> int:
    """The CRC of all chunks together, from that of each; a chunk is a power of two."""
    number = int.from_bytes
    rows = [crcs[place::4] for place in (3, 2, 1, 0)]  # lowest byte first
    while (count := len(rows[0])) > 1:
        if count % 2:
            rows = [b"\0" + row for row in rows]  # of no bytes at all, before the first
        tables, first = _tables(crc, chunk), [row[::2] for row in rows]
        rows = [
            (
                number(rows[out][1::2], "little")
                ^ number(first[0].translate(tables[0][out]), "little")
                ^ number(first[1].translate(tables[1][out]), "little")
                ^ number(first[2].translate(tables[2][out]), "little")
                ^ number(first[3].translate(tables[3][out]), "little")
            ).to_bytes(len(first[0]), "little")
            for out in range(4)
        ]
        chunk *= 2
    return number(bytes(row[0] for row in rows), "little")


@cache
def _tables(crc: str, size: int) -> list[list[bytes]]:
    """For each byte of a CRC, what it adds to each byte of the CRC that is moved on by so many bytes."""
    moved = _moving(crc, size)
    found = [[_times(moved, value << 8 * place) for value in range(256)] for place in range(4)]
    return [[bytes(value >> 8 * out & 255 for value in row) for out in range(4)] for row in found]


@cache
def _moving(crc: str, size: int) -> Matrix:
    """What as many zero bytes do to a CRC: half of them, twice."""
    if size == 1:
        bit: Matrix = (POLYNOMIALS[crc], *(1 << place for place in range(31)))
        return _twice(_twice(_twice(bit)))
    return _twice(_moving(crc, size // 2))


def _twice(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, value) for value in matrix)


def _times(matrix: Matrix, value: int) -> int:
    found = place = 0
    while value:
        if value & 1:
            found ^= matrix[place]
        value >>= 1
        place += 1
    return found
