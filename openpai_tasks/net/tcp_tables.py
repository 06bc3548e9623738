"""The tables in which Linux shows this machine's TCP connections, and whose they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
OWN_END, FAR_END, STATE, USER, INODE = 1, 2, 3, 7, 9  # columns
LISTENING = "0A"
MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 one
LOOPBACK, ANY = b"\x7f\0\0\1", bytes(4)


def is_shown() -> bool:
    """Whether the system has the tables."""
    return TCP_TABLES[0].exists()


def rows() -> Iterator[list[str]]:
    """Yield the columns of each row."""
    for table in TCP_TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        yield from map(str.split, lines)


def forms(packed: bytes, port: int) -> tuple[str, ...]:
    """Return an end of a connection as the tables show it; a program may use IPv6 to reach IPv4."""
    addresses = (packed, MAPPED + packed) if len(packed) == 4 else (packed,)
    return tuple(f"{_hexadecimal(address)}:{port:04X}" for address in addresses)


def _hexadecimal(packed: bytes) -> str:
    """Return an address as the numbers of 32 bits that the system has in memory."""
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def listening_users(port: int) -> set[int]:
    """Return the users whose processes accept connections to 127.0.0.1 at the port."""
    places = {*forms(LOOPBACK, port), *forms(ANY, port), *forms(bytes(16), port)}
    return {int(row[USER]) for row in rows() if row[STATE] == LISTENING and row[OWN_END] in places}
