"""The digests of object stores, which only support MD5."""

from __future__ import annotations

import hashlib
import re

from openpai_tasks.storage.store import Digest, Hasher

MD5 = "md5"
PARTS = re.compile(r"md5-of-(\d+)md5")


class Md5:
    """The digest of an object that was uploaded in one request."""

    def __init__(self) -> None:
        self._hash = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes, /) -> None:
        self._hash.update(piece)

    def digest(self) -> Digest:
        return Digest(MD5, self._hash.hexdigest())


class Md5OfParts:
    """The digest of an object that was uploaded in parts of one size: the MD5 of their MD5s."""

    def __init__(self, size: int) -> None:
        self._size, self._filled = size, 0
        self._part, self._parts = hashlib.md5(usedforsecurity=False), bytearray()

    def update(self, piece: bytes, /) -> None:
        view = memoryview(piece)
        while view:
            room = self._size - self._filled
            self._part.update(view[:room])
            self._filled += len(view[:room])
            view = view[room:]
            if self._filled == self._size:
                self._close()

    def digest(self) -> Digest:
        if self._filled:
            self._close()
        value = hashlib.md5(self._parts, usedforsecurity=False).hexdigest()
        return Digest(kind_of_parts(self._size), f"{value}-{len(self._parts) // 16}")

    def _close(self) -> None:
        self._parts += self._part.digest()
        self._part, self._filled = hashlib.md5(usedforsecurity=False), 0


def hasher_of(kind: str) -> Hasher | None:
    """Return a hasher for digests of this kind, if it is one of object stores."""
    parts = PARTS.fullmatch(kind)
    return Md5() if kind == MD5 else Md5OfParts(int(parts[1])) if parts else None


def kind_of_parts(size: int) -> str:
    return f"md5-of-{size}md5"
