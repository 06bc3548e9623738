"""CRC32C; the only module that imports ``google_crc32c``."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c

from openpai_tasks.storage.store import Digest

CRC32C = "crc32c"
crc32c_of: Callable[[bytes], int] = google_crc32c.value
"""Returns the CRC of some bytes; called directly, as there may be two thousand for a MiB."""


def crc32c(piece: bytes, crc: int = 0) -> int:
    """Return the CRC of the bytes; ``crc`` is the CRC of the bytes before them."""
    return int(google_crc32c.extend(crc, piece))


class Crc32c:
    """The hasher of packed files."""

    def __init__(self) -> None:
        self._crc = 0

    def update(self, piece: bytes, /) -> None:
        self._crc = crc32c(piece, self._crc)

    def digest(self) -> Digest:
        return Digest(CRC32C, f"{self._crc:08x}")
