"""CRC32C; the only module that imports ``google_crc32c``."""

from __future__ import annotations

import google_crc32c


def crc32c(piece: bytes, crc: int = 0) -> int:
    """Return the CRC of the bytes; ``crc`` is the CRC of the bytes before them."""
    return int(google_crc32c.extend(crc, piece))
