"""``pai://`` for fsspec: ``fsspec.open("pai://lab/home/a.csv")``, and so pandas, pyarrow, dask and others.

Here its errors are Python's own (FileNotFoundError, PermissionError), which those libraries look for.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from openpai_tasks.errors import Denied, NotFound, Unreachable
from openpai_tasks.storage.location import PAI, Book, Location, locate
from openpai_tasks.storage.progress import Watch
from openpai_tasks.storage.store import PIECE, Entry, join, parent
from openpai_tasks.storage.transfer import put, transfer


class ClusterFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The storages of all known clusters as one tree: ``<cluster>/<storage>/<path>``."""

    protocol = "pai"
    root_marker = ""

    def make_book(self) -> Book:
        raise NotImplementedError

    _opened: tuple[int, Book] | None = None

    @property
    def _book(self) -> Book:
        """One in each process: a child that was forked must not speak over its parent's connections."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self.make_book()
        return self._opened[1]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        with _told(path):
            place, entry = self._entry(path)
            found = place.store.list(place.path) if entry.is_folder else iter([entry])
            name = self._strip_protocol(path)
            rows = [_row(join(name, each.name) if entry.is_folder else name, each) for each in found]
        return rows if detail else [row["name"] for row in rows]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        with _told(path):
            return _row(self._strip_protocol(path), self._entry(path)[1])

    def modified(self, path: str) -> Any:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        with _told(path):
            place = self._place(path)
            if place.store.stat(place.path) is not None:
                raise FileExistsError(path)
            if not create_parents and place.store.stat(parent(place.path)) is None:
                raise FileNotFoundError(parent(place.path))
            place.store.make_folder(place.path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        with contextlib.suppress(*[FileExistsError] if exist_ok else []):
            self.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._remove(path)

    def rm_file(self, path: str) -> None:
        self._remove(path)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        for each in self.expand_path(path, maxdepth=1):
            self._remove(each, recursive)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        with _told(path1):
            source, entry = self._entry(path1)
            target = self._place(path2)
            if entry.is_folder:
                target.store.make_folder(target.path)
            else:
                target.store.make_folder(parent(target.path))
                transfer(source.store, entry, target.store, target.path, Watch())

    def put_file(self, lpath: str, rpath: str, *args: Any, **options: Any) -> None:
        """As fsspec does; but a cache in front sends what it has also when the block that writes it fails."""
        if is_cut_short():
            os.remove(lpath)  # nor shall the cache give it to anybody
        else:
            super().put_file(lpath, rpath, *args, **options)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """As fsspec does, but what is wrapped around a file to write ends as the file itself does."""
        options |= {"block_size": block_size, "cache_options": cache_options}
        if "r" in mode or (compression is None and "b" in mode):
            return super().open(path, mode, compression=compression, **options)
        if "b" in mode:
            return Compressed(super().open(path, mode, **options), path, compression)
        words = {key: options.pop(key) for key in ("encoding", "errors", "newline") if key in options}
        return Text(self.open(path, mode.replace("t", "") + "b", compression=compression, **options), **words)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if mode == "rb":
            size = block_size if block_size is not None else "default"
            return Download(self, path, size, cache_options=cache_options, **options)
        place = self._place(path)
        if mode in ("wb", "xb"):
            if mode == "xb" and place.store.stat(place.path) is not None:
                raise FileExistsError(path)
            return Upload(place, autocommit)
        raise NotImplementedError(
            f"{PAI}{path}: a file is read or written as a whole, not opened with {mode!r}"
        )

    def _place(self, path: str) -> Location:
        with _told(path):
            return locate(PAI + self._strip_protocol(path), self._book)

    def _entry(self, path: str) -> tuple[Location, Entry]:
        place = self._place(path)
        entry = place.store.stat(place.path)
        if entry is None:
            raise FileNotFoundError(path)
        return place, entry

    def _remove(self, path: str, recursive: bool = False) -> None:
        place = self._place(path)
        if place.is_root:
            raise PermissionError(f"{place.url}: the root of a storage is never removed")
        with _told(path):
            place.store.remove(place.path, recursive)


class Download(AbstractBufferedFile):  # type: ignore[misc]
    """A file to read anywhere in it, a block ahead."""

    def __init__(self, fs: ClusterFileSystem, path: str, block_size: int | str, **options: Any) -> None:
        super().__init__(fs, path, mode="rb", block_size=block_size, **options)
        if self.details["type"] == "directory":
            raise IsADirectoryError(path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        place = self.fs._place(self.path)  # looked up each time: the process may be a child by now
        with _told(self.path):
            return b"".join(place.store.read(place.path, start, end - start))


class Upload(io.BufferedIOBase):
    """A file to write; it is there, complete and verified, when it is closed.

    One that is closed because a ``with`` block fails, or that nobody closes, never is.
    """

    def __init__(self, place: Location, autocommit: bool = True) -> None:
        self._place = place
        self._autocommit = autocommit
        self._earlier = failures()
        self._is_lost = False
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115  (closed in commit or discard)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written: int = self._file.write(data)
        return written

    def seek(self, offset: int, whence: int = 0) -> int:
        position: int = self._file.seek(offset, whence)
        return position

    def tell(self) -> int:
        position: int = self._file.tell()
        return position

    def truncate(self, size: int | None = None) -> int:
        left: int = self._file.truncate(size)
        return left

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._is_lost or set(map(id, failures())) - set(map(id, self._earlier)):
            self.discard()
        elif self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Send what was written; a transaction does so at its end."""
        if self._file.closed:  # of a block that failed
            return
        with self._file, _told(self._place.url):
            self._place.store.make_folder(parent(self._place.path))
            size = self._file.seek(0, io.SEEK_END)
            put(self._place.store, self._place.path, self._pieces, size)

    def _pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        return iter(lambda: self._file.read(PIECE), b"")

    def discard(self) -> None:
        """Forget what was written."""
        self._file.close()
        super().close()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _dealloc_warn(self, source: Any) -> None:
        """Python says so before it closes, by itself, a text or a buffer around this that nobody closed."""
        self._is_lost = True
        warnings.warn(f"{self._place.url}: never closed, so it was not written", RuntimeWarning, stacklevel=2)

    def __del__(self) -> None:
        if not self.closed:
            self._dealloc_warn(self)
            self.discard()


class Text(io.TextIOWrapper):
    """Text to write; that a block fails is seen by the file below."""

    def __exit__(self, *error: Any) -> None:
        self.close()


class Compressed(io.BufferedIOBase):
    """A file to write that is compressed on its way; fsspec's own does not close the file below."""

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
        """Nobody has closed it, so what has come so far is no file."""
        if not self.closed:
            self._below.__del__()


def failures() -> list[BaseException]:
    """The errors with which ``with`` blocks are ending at this moment.

    fsspec's and pandas' own only close their files then, as if all were well.
    """
    return [error for frame in _frames() for error in _failing(frame)]


def is_cut_short() -> bool:
    """Whether a file of a cache of fsspec's is sent because it is closed by a block that fails."""
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
    """The errors that the end of a ``with`` block is told of."""
    if not _is_exit(frame):
        return []
    given = inspect.getargvalues(frame)
    values = [given.locals.get(name) for name in given.args]
    values += given.locals.get(given.varargs, ()) if given.varargs else ()
    return [value for value in values if isinstance(value, BaseException)]


def _row(name: str, entry: Entry) -> dict[str, Any]:
    kind = "directory" if entry.is_folder else "file"
    return {
        "name": name,
        "size": entry.size,
        "type": kind,
        "mtime": entry.mtime_ms / 1000,
        "islink": entry.is_link,
    }


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except NotFound as err:
        raise FileNotFoundError(path) from err
    except Denied as err:
        raise PermissionError(str(err)) from err
    except Unreachable as err:
        raise ConnectionError(str(err)) from err
