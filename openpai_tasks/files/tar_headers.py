"""Read tar archives that somebody may have crafted, with little memory for their headers."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from gzip import GzipFile
from typing import Any, BinaryIO, cast

from openpai_tasks.errors import PathError

LARGEST = 1 << 16
"""Bytes of one header; the longest path has 4 KB."""


LATEST = 1 << 52
"""Seconds since 1970 up to which a file's time is valid; with milliseconds, it fits into 64 bits."""


class CheckedHeader(tarfile.TarInfo):
    """A header that is refused if it is damaged; ``tarfile`` would take it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> CheckedHeader:
        try:
            found = super().fromtarfile(tarfile_)
        except tarfile.InvalidHeaderError as err:  # type: ignore[attr-defined]
            if tarfile_.offset == 0:  # it is no tar archive at all
                raise
            raise tarfile.ReadError(f"damaged header: {err}") from err
        except (ValueError, IndexError, OverflowError) as err:  # of numbers that are none
            raise tarfile.ReadError(f"damaged header: {err}") from err
        if not -LATEST < found.mtime < LATEST or found.size >= LATEST or "\0" in found.name:
            raise tarfile.ReadError("damaged header: invalid name, size or time")
        return found


def open_tar(file: LimitedHeaders) -> tarfile.TarFile:
    """Open an archive for reading, from its start to its end."""
    options: Any = {"tarinfo": CheckedHeader, "errors": "surrogateescape"}
    return tarfile.open(fileobj=cast(BinaryIO, file), mode="r:", **options)


def iter_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive, of which ``tarfile`` would remember all."""
    while (found := archive.next()) is not None:
        vars(archive)["members"] = []
        yield found


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
