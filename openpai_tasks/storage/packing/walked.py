"""A tree as it was found before anything is written, in few bytes for each name, and a mark made of it."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterator

from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.store import join

FACTS = struct.Struct(">?QqH")
LETTERS = 10
"""Of a mark."""


class Walked:
    """What is to be packed; its names, sizes, times and modes make its marks."""

    def __init__(self, root: str) -> None:
        self._root, self._found = root, deque[bytes]()
        self._hash = hashlib.sha256()

    def add(self, member: PackMember, is_packed: bool = True) -> None:
        """One more, which is only part of the mark where it is not packed itself."""
        facts = FACTS.pack(member.is_folder, member.size, member.mtime_ms, member.mode)
        small = facts + member.name.encode("utf-8", "surrogateescape")
        self._hash.update(small + b"\0")
        if is_packed:
            self._found.append(small)

    def members(self) -> Iterator[PackMember]:
        """All of them, once: each is let go as it is handed on."""
        while self._found:
            small = self._found.popleft()
            is_folder, size, mtime_ms, mode = FACTS.unpack_from(small)
            name = small[FACTS.size :].decode("utf-8", "surrogateescape")
            yield PackMember(name, join(self._root, name), is_folder, size, mtime_ms, mode)

    def marks(self, *rules: object) -> Iterator[str]:
        """Marks for the tree packed by these rules: always the same ones, in the same order."""
        number = 0
        while True:
            own = self._hash.copy()
            own.update(repr((*rules, number)).encode())
            yield own.hexdigest()[:LETTERS]
            number += 1
