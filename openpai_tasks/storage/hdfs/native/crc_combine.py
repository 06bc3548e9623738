"""Check bytes against the CRCs of their chunks, at a third of the cost of computing each one.

The CRC of two strings follows from their CRCs: the first, shifted by the length of the second, xor the
second. So the received CRCs are combined into the CRC of all bytes, which a single C call computes. All pairs
are combined at once: each of the four bytes of all CRCs is a row, and ``bytes.translate`` shifts a row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

Matrix = tuple[int, ...]
"""The image of each of the 32 bits."""

POLYNOMIALS = {"CRC32": 0xEDB88320, "CRC32C": 0x82F63B78}


def fits(data: bytes, crcs: bytes, chunk: int, crc: str, whole: Callable[[bytes], int]) -> bool:
    """Whether these are the chunks' CRCs, four bytes each; ``whole`` computes the CRC of any bytes."""
    count, rest = divmod(len(data), chunk)
    if len(crcs) != 4 * (count + bool(rest)):
        return False
    if rest and whole(data[-rest:]) != int.from_bytes(crcs[-4:], "big"):
        return False
    even = data[:-rest] if rest else data
    return not even or combine(crcs[: 4 * count], chunk, crc) == whole(even)


def combine(crcs: bytes, chunk: int, crc: str) -> int:
    """Return the CRC of all chunks together, given the CRC of each; ``chunk`` must be a power of two."""
    number = int.from_bytes
    rows = [crcs[place::4] for place in (3, 2, 1, 0)]  # lowest byte first
    while (count := len(rows[0])) > 1:
        if count % 2:
            rows = [b"\0" + row for row in rows]  # the CRC of an empty string, before the first
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
    """Return what each byte of a CRC adds to each byte of the CRC shifted by ``size`` bytes."""
    moved = _shift_matrix(crc, size)
    found = [[_times(moved, value << 8 * place) for value in range(256)] for place in range(4)]
    return [[bytes(value >> 8 * out & 255 for value in row) for out in range(4)] for row in found]


@cache
def _shift_matrix(crc: str, size: int) -> Matrix:
    """Return the effect of ``size`` zero bytes on a CRC: the effect of half as many, twice."""
    if size == 1:
        bit: Matrix = (POLYNOMIALS[crc], *(1 << place for place in range(31)))
        return _twice(_twice(_twice(bit)))
    return _twice(_shift_matrix(crc, size // 2))


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
