"""The fingerprint of stores that have none of their own."""

from __future__ import annotations

import hashlib

from openpai_tasks.storage.store import Digest

SHA256 = "sha256"


class Sha256:
    """Fed with a file, piece by piece."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, piece: bytes, /) -> None:
        self._hash.update(piece)

    def digest(self) -> Digest:
        return Digest(SHA256, self._hash.hexdigest())
