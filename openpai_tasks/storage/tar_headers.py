"""Read tar archives that somebody may have crafted, with little memory for their headers."""

from __future__ import annotations

import os
from gzip import GzipFile
from typing import BinaryIO

from openpai_tasks.errors import PathError

LARGEST = 1 << 16
"""Bytes of one header; the longest path has 4 KB."""


class LimitedHeaders:
    """A file for ``tarfile``, which would read a header of any size at once."""

    def __init__(
        self, file: BinaryIO | GzipFile, most: int | None = None, largest: int | None = None
    ) -> None:
        """``most``: bytes of all headers; ``largest``: bytes of the archive, which may be compressed."""
        self._file, self._left, self._largest = file, most, largest
        self.is_content = False
        """Whether a file's content is being read, in pieces."""

    def read(self, size: int) -> bytes:
        if not self.is_content:
            if not 0 <= size <= LARGEST:
                raise PathError(f"a header has {size} bytes, more than {LARGEST >> 10} KB")
            if self._left is not None:
                self._left -= size
                if self._left < 0:
                    raise PathError("it has too many headers")
        if self._largest is not None:
            self.check_end(self._file.tell() + size)
        return self._file.read(size)

    def check_end(self, place: int) -> None:
        """Raise if the place is beyond the largest size."""
        if self._largest is not None and place > self._largest:
            raise PathError(f"it unpacks to more than {self._largest >> 20} MB")

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.check_end(offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()
