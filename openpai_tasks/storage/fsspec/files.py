"""Files of ``pai://`` for fsspec, for reading and writing, and wrappers for writing."""

from __future__ import annotations

import contextlib
import inspect
import io
import tempfile
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from openpai_tasks.errors import Denied, NotFound, Unreachable
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import PIECE, parent


class Download(AbstractBufferedFile):  # type: ignore[misc]
    """A file for random reads, with one block of read-ahead."""

    def __init__(self, fs: AbstractFileSystem, path: str, block_size: int | str, **options: Any) -> None:
        super().__init__(fs, path, mode="rb", block_size=block_size, **options)
        if self.details["type"] == "directory":
            raise IsADirectoryError(path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        place = self.fs._locate(self.path)  # located each time: the process may be a forked child
        with mapping_errors(self.path):
            block = b"".join(place.store.read(place.path, start, end - start))
        if _facts(self.fs.info(self.path)) != _facts(self.details):
            raise OSError(f"{place.url}: the file was changed while it was read; open it again")
        return block


def _facts(row: dict[str, Any]) -> tuple[Any, ...]:
    """The id of this version of the file: its version, else its time."""
    return row["size"], row["version"] or row["mtime"]


class FileUpload(io.BufferedIOBase):
    """A file for writing, which appears, complete and verified, when it is closed.

    It never appears if a ``with`` block fails, or if it is not closed.
    """

    def __init__(self, place: Location, autocommit: bool = True) -> None:
        self._place = place
        self._autocommit = autocommit
        self._earlier = failures()
        self._is_lost = False
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed in commit or discard)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        return self._file.truncate(size)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._is_lost or set(map(id, failures())) - set(map(id, self._earlier)):
            self.discard()
        elif self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Send the written data; a transaction sends it at its end."""
        if self._file.closed:  # of a block that failed
            return
        with self._file, mapping_errors(self._place.url):
            self._place.store.make_folder(parent(self._place.path))
            size = self._file.seek(0, io.SEEK_END)
            put(self._place.store, self._place.path, self._pieces, size)

    def _pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        return iter(lambda: self._file.read(PIECE), b"")

    def discard(self) -> None:
        """Discard the written data."""
        self._file.close()
        super().close()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _dealloc_warn(self, source: Any) -> None:
        """Discard the data; called by Python before it closes a wrapper that the caller never closed."""
        self._is_lost = True
        warnings.warn(f"{self._place.url}: never closed, so it was not written", RuntimeWarning, stacklevel=2)

    def __del__(self) -> None:
        if not self.closed:
            self._dealloc_warn(self)
            self.discard()


class TextUpload(io.TextIOWrapper):
    """A text file for writing, which passes on that a ``with`` block fails."""

    def __exit__(self, *error: Any) -> None:
        self.close()


class CompressedFile(io.BufferedIOBase):
    """A compressed file for writing; unlike fsspec's, it closes the file below."""

    def __init__(self, below: Any, path: str, compression: str | None) -> None:
        from fsspec.compression import compr  # type: ignore[import-untyped]
        from fsspec.core import get_compression  # type: ignore[import-untyped]

        self._below = below
        kind = get_compression(path, compression)
        self._packing = compr[kind](below, mode="w") if kind else below

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written: int = self._packing.write(data)
        return written

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._packing.close()
            self._below.close()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _dealloc_warn(self, source: Any) -> None:
        self._below._dealloc_warn(source)

    def __del__(self) -> None:
        """Discard a file that was never closed."""
        if not self.closed:
            self._below.__del__()


@contextlib.contextmanager
def mapping_errors(path: str) -> Iterator[None]:
    """Raise our errors as the built-in ones that callers of fsspec expect."""
    try:
        yield
    except NotFound as err:
        raise FileNotFoundError(path) from err
    except Denied as err:
        raise PermissionError(str(err)) from err
    except Unreachable as err:
        raise ConnectionError(str(err)) from err


def failures() -> list[BaseException]:
    """Return the errors of these blocks."""
    return [error for frame in _frames() for error in _failing(frame)]


def is_cut_short() -> bool:
    """Whether fsspec's cache sends a file only because a failing block closes it."""
    from fsspec.implementations.cached import LocalTempFile  # type: ignore[import-untyped]

    frames = iter(_frames())
    is_cached = any(frame.f_code is LocalTempFile.commit.__code__ for frame in frames)
    closing = next((frame for frame in frames if _is_exit(frame)), None) if is_cached else None
    return closing is not None and bool(_failing(closing))


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_exit(frame: FrameType) -> bool:
    return frame.f_code.co_name in ("__exit__", "__aexit__")


def _failing(frame: FrameType) -> list[BaseException]:
    """Return the errors passed to an ``__exit__`` method."""
    if not _is_exit(frame):
        return []
    given = inspect.getargvalues(frame)
    values = [given.locals.get(name) for name in given.args]
    values += given.locals.get(given.varargs, ()) if given.varargs else ()
    return [value for value in values if isinstance(value, BaseException)]
