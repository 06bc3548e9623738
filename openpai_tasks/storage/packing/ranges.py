"""Read ranges of files in a store: as a seekable file, or as blocks that many readers share."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, BinaryIO, cast

from openpai_tasks.errors import PathError
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import PIECE, Store

BLOCK = 8 << 20
KEPT = 8
"""Number of cached blocks; with BLOCK, the memory that shared reading takes."""


def fetch(store: Store, path: str, offset: int, length: int) -> bytes:
    """Read exactly this many bytes; raise if the file is too short."""
    if not length:
        return b""
    found = retrying(lambda: b"".join(store.read(path, offset, length)), Watch().wait)
    if len(found) != length:
        raise PathError(f"{path}: got {len(found)} of {length} bytes from byte {offset} on; it was truncated")
    return found


def open_file(store: Store, path: str, size: int) -> BinaryIO:
    """A file for random reads."""
    return cast(BinaryIO, io.BufferedReader(_Ranges(store, path, size), PIECE))


class _Ranges(io.RawIOBase):
    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, into: Any) -> int:
        count = max(0, min(len(into), self._size - self._at))
        into[:count] = fetch(self._store, self._path, self._at, count)
        self._at += count
        return count


class Blocks:
    """Cache of the last blocks; readers of a block that is being fetched wait for it."""

    def __init__(self, read: Callable[[int, int, int], bytes], sizes: list[int]) -> None:
        """``read(file, offset, length)`` returns the bytes."""
        self._read, self._sizes = read, sizes
        self._kept: OrderedDict[tuple[int, int], Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, file: int, offset: int, length: int) -> bytes:
        end, parts = offset + length, []
        while offset < end:
            number, start = divmod(offset, BLOCK)
            part = self._block(file, number)[start : start + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._kept.clear()

    def _block(self, file: int, number: int) -> bytes:
        key = file, number
        with self._lock:
            there = self._kept.get(key)
            block = there or self._kept.setdefault(key, Future())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if there is None:
            self._fetch(block, key)
        return block.result()

    def _fetch(self, block: Future[bytes], key: tuple[int, int]) -> None:
        file, start = key[0], key[1] * BLOCK
        try:
            block.set_result(self._read(file, start, min(BLOCK, self._sizes[file] - start)))
        except BaseException as err:
            with self._lock:
                self._kept.pop(key, None)  # the next reader tries again
            block.set_exception(err)
