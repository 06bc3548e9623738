"""``pai://`` for fsspec (``fsspec.open("pai://lab/home/a.csv")``), also for pandas, pyarrow, dask and others.

Its errors are Python's own (FileNotFoundError, PermissionError), as those libraries expect.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Sequence
from typing import Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import stringify_path  # type: ignore[import-untyped]

from openpai_tasks.storage.copying.plan import CopyItem, check_not_itself
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import transfer
from openpai_tasks.storage.fsspec.files import (
    CompressedFile,
    Download,
    FileUpload,
    TextUpload,
    is_cut_short,
    mapping_errors,
)
from openpai_tasks.storage.fsspec.moves import move
from openpai_tasks.storage.location import PAI, Book, Location, locate
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.patterns import MAGIC
from openpai_tasks.storage.store import Entry, base, join, parent

FILE, FOLDER = "file", "directory"


class ClusterFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The storages of all known clusters as one tree: ``<cluster>/<storage>/<path>``."""

    protocol = "pai"
    root_marker = ""

    def make_book(self) -> Book:
        raise NotImplementedError

    _opened: tuple[int, Book] | None = None

    @property
    def _book(self) -> Book:
        """The storages of this process: a forked child must not use its parent's connections."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self.make_book()
        return self._opened[1]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        with mapping_errors(path):
            place, entry = self._entry(path)
            found = (one for one in place.store.list(place.path) if not is_part(one))
            name = self._strip_protocol(path)
            rows = (
                [_row(join(name, one.name), one) for one in found] if entry.is_folder else [_row(name, entry)]
            )
        return rows if detail else [row["name"] for row in rows]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        with mapping_errors(path):
            return _row(self._strip_protocol(path), self._entry(path)[1])

    def exists(self, path: str, **options: Any) -> bool:
        """Whether the path exists; raise if the storage does not answer."""
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        return self._type(path) == FILE

    def isdir(self, path: str) -> bool:
        return self._type(path) == FOLDER

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        """Like fsspec, but an existing name is not a pattern."""
        return super().glob(self._escaped(path), maxdepth=maxdepth, **options)

    def modified(self, path: str) -> Any:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        with mapping_errors(path):
            place = self._locate(path)
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

    def mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Move files, and folders if ``recursive``; files that do not arrive stay where they are."""
        if maxdepth is not None:
            raise ValueError("a part of a folder cannot be moved: copy it, then remove the originals")
        for one, other in self._pairs(path1, path2):
            with mapping_errors(one):
                source, entry = self._entry(one)
                if entry.is_folder and not recursive:
                    raise IsADirectoryError(f"{source.url}: a folder; recursive=True moves it")
                move(source, entry, self._locate(other))

    def copy(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **options: Any,
    ) -> None:
        """Copy as fsspec does, but refuse to copy a path onto or into itself."""
        for one, other in self._pairs(path1, path2) if recursive else ():
            with mapping_errors(one):
                self._check_not_itself(one, other)
        super().copy(path1, path2, recursive, maxdepth, on_error, **options)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        with mapping_errors(path1):
            source, entry, target = self._check_not_itself(path1, path2)
            if entry.is_folder:
                target.store.make_folder(target.path)
            else:
                target.store.make_folder(parent(target.path))
                transfer(source.store, entry, target.store, target.path, Watch())

    def get_file(self, rpath: str, lpath: Any = None, *args: Any, **options: Any) -> None:
        """Like fsspec, but refuse to write to the file that is read, which would empty it."""
        if isinstance(lpath, (str, os.PathLike)):
            with mapping_errors(rpath):
                source, entry = self._entry(rpath)
                check_not_itself(CopyItem(source, entry, locate(os.path.abspath(lpath), self._book)))
        super().get_file(rpath, lpath, *args, **options)

    def put_file(self, lpath: str, rpath: str, *args: Any, **options: Any) -> None:
        """Like fsspec, but do not upload a file that a cache closes because a block failed."""
        if is_cut_short():
            os.remove(lpath)  # the cache must not return it either
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
        """Like fsspec, but text and compression wrappers close or discard the file below correctly."""
        options |= {"block_size": block_size, "cache_options": cache_options}
        if "r" in mode or (compression is None and "b" in mode):
            return super().open(path, mode, compression=compression, **options)
        if "b" in mode:
            return CompressedFile(super().open(path, mode, **options), path, compression)
        words = {key: options.pop(key) for key in ("encoding", "errors", "newline") if key in options}
        return TextUpload(
            self.open(path, mode.replace("t", "") + "b", compression=compression, **options), **words
        )

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
        place = self._locate(path)
        if mode in ("wb", "xb"):
            if mode == "xb" and place.store.stat(place.path) is not None:
                raise FileExistsError(path)
            return FileUpload(place, autocommit)
        raise NotImplementedError(
            f"{PAI}{path}: a file is read or written as a whole, not opened with {mode!r}"
        )

    def _locate(self, path: str) -> Location:
        with mapping_errors(path):
            return locate(PAI + self._strip_protocol(path), self._book)

    def _entry(self, path: str) -> tuple[Location, Entry]:
        place = self._locate(path)
        entry = place.store.stat(place.path)
        if entry is None:
            raise FileNotFoundError(path)
        return place, entry

    def _type(self, path: str) -> str | None:
        try:
            found: str = self.info(path)["type"]
        except FileNotFoundError:
            return None
        return found

    def _escaped(self, path: str) -> str:
        """Escape leading names of the pattern that exist as they are; clusters and storages stay."""
        names = self._strip_protocol(path).split("/")
        for number, name in enumerate(names):
            if number > 1 and MAGIC.search(name):
                if not self.exists("/".join(names[: number + 1])):
                    break
                names[number] = glob.escape(name)
        return "/".join(names) + "/" * path.endswith("/")

    def _pairs(self, path1: str | list[str], path2: str | list[str]) -> Sequence[tuple[str, str]]:
        """Return sources with their targets: in a folder that exists or has a slash, else the name itself.

        As in fsspec, a source that is written with a slash means its contents.
        """
        if isinstance(path1, list) and isinstance(path2, list):
            return list(zip(path1, path2, strict=True))
        given, target = stringify_path(path1), stringify_path(path2)
        found, is_one = self.expand_path(given, maxdepth=1), isinstance(given, str)
        is_content = is_one and given.endswith("/")
        is_folder = target.endswith("/") or self.isdir(target)
        is_into = len(found) > 1 or not is_one or (is_folder and not is_content)
        target = self._strip_protocol(target)
        return [(one, join(target, base(one)) if is_into else target) for one in found]

    def _check_not_itself(self, path1: str, path2: str) -> tuple[Location, Entry, Location]:
        source, entry = self._entry(path1)
        target = self._locate(path2)
        check_not_itself(CopyItem(source, entry, target))
        return source, entry, target

    def _remove(self, path: str, recursive: bool = False) -> None:
        place = self._locate(path)
        if place.is_root:
            raise PermissionError(f"{place.url}: the root of a storage is never removed")
        with mapping_errors(path):
            place.store.remove(place.path, recursive)


def _row(name: str, entry: Entry) -> dict[str, Any]:
    return {
        "name": name,
        "size": entry.size,
        "type": FOLDER if entry.is_folder else FILE,
        "mtime": entry.mtime_ms / 1000,
        "islink": entry.is_link,
        "version": entry.version,
    }
