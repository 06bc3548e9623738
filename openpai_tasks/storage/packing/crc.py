"""CRC32C, the one home of ``google_crc32c``."""

from __future__ import annotations

import google_crc32c


def crc32c(piece: bytes, crc: int = 0) -> int:
    """The CRC of the bytes; ``crc`` is that of those before them."""
    return int(google_crc32c.extend(crc, piece))
