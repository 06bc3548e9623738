"""``pai://`` for fsspec: ``fsspec.open("pai://lab/home/a.csv")``, and so pandas, pyarrow, dask and others.

Here its errors are Python's own (FileNotFoundError, PermissionError), which those libraries look for.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from openpai_tasks.storage.failing_blocks import is_cut_short
from openpai_tasks.storage.location import PAI, Book, Location, locate
from openpai_tasks.storage.paifs_files import Compressed, Download, Text, Upload, told
from openpai_tasks.storage.progress import Watch
from openpai_tasks.storage.store import Entry, join, parent
from openpai_tasks.storage.transfer import transfer


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
        with told(path):
            place, entry = self._entry(path)
            found = place.store.list(place.path) if entry.is_folder else iter([entry])
            name = self._strip_protocol(path)
            rows = [_row(join(name, each.name) if entry.is_folder else name, each) for each in found]
        return rows if detail else [row["name"] for row in rows]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        with told(path):
            return _row(self._strip_protocol(path), self._entry(path)[1])

    def modified(self, path: str) -> Any:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        with told(path):
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
        with told(path1):
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
        with told(path):
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
        with told(path):
            place.store.remove(place.path, recursive)


def _row(name: str, entry: Entry) -> dict[str, Any]:
    kind = "directory" if entry.is_folder else "file"
    return {
        "name": name,
        "size": entry.size,
        "type": kind,
        "mtime": entry.mtime_ms / 1000,
        "islink": entry.is_link,
    }
