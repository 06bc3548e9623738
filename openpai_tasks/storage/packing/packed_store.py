"""A packed set as a readable store: unpacking is a copy from it, with the same guarantees."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from openpai_tasks.errors import Denied, NoSuchPath, PathError
from openpai_tasks.storage.crc import CRC32C, Crc32c, crc32c
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.packing.index import UNKNOWN, Names
from openpai_tasks.storage.packing.packed_set import PackedSet
from openpai_tasks.storage.packing.ranges import BLOCK, Blocks
from openpai_tasks.storage.store import Digest, Entry, Hasher, ReadOnlyStore, ReadsSmallFiles, base, join


class PackedStore(ReadOnlyStore, ReadsSmallFiles):
    """The files of a set as a tree."""

    kind = "packed"
    knows_digests = True

    def __init__(self, packed: PackedSet) -> None:
        self._set, self.index = packed, packed.index
        self._order = by_name(self.index.names)
        self._folders = _Folders(self.index.names, self.index.folders)
        self._blocks = Blocks(packed.contents.read, [shard.size for shard in self.index.shards])
        self._is_near = all(isinstance(place.store, LocalStore) for place in packed.shards)
        self._modes = dict(zip(self.index.folders, self.index.folder_modes, strict=True))
        self._check_distinct()

    def address(self, path: str) -> str:
        return f"packed:{self._set.url}{path}"

    def stat(self, path: str) -> Entry | None:
        name = path.strip("/")
        if name in self._folders:
            return self._folder(name, path)
        number = self._number(name)
        return None if number is None else self._file(number, base(path), path)

    def list(self, path: str) -> Iterator[Entry]:
        name = path.strip("/")
        if name not in self._folders:
            raise NoSuchPath(f"{path}: no such folder among the packed files")
        for number in self._folders.files(name):
            last = base(self.index.names[number])
            yield self._file(number, last, join(path, last))
        for inner in self._folders.folders(name):
            yield self._folder(inner, join(path, base(inner)))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        number = self._existing(path)
        row = self.index[number]
        left = max(0, row.size - offset)
        left = left if length is None else min(left, length)
        at = row.offset + offset
        if left > BLOCK:
            place = self._set.shards[row.shard]
            yield from place.store.read(place.path, at, left)
        elif left == row.size:
            yield from [self._content(number)] if left else []
        elif left:
            yield self._blocks.read(row.shard, at, left)

    def read_small(self, path: str) -> bytes:
        return self._content(self._existing(path))

    def _content(self, number: int) -> bytes:
        """Return a small file, compared with its CRC; its block may have been damaged in transit."""
        if not self._is_near:
            row = self.index[number]
            data = self._blocks.read(row.shard, row.offset, row.size)
            if row.crc in (UNKNOWN, crc32c(data)):
                return data
            self._blocks.forget()
        return self._set.contents.file(number)

    def digest(self, path: str) -> Digest | None:
        number = self._number(path.strip("/"))
        crc = UNKNOWN if number is None else self.index.crc[number]
        return None if crc == UNKNOWN else Digest(CRC32C, f"{crc:08x}")

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return Crc32c() if kind == CRC32C else None

    def _refusal(self, path: str) -> Denied:
        return Denied(f"{path}: packed files cannot be changed; pack them again", 403)

    def _number(self, name: str) -> int | None:
        """Return the row of the file with this name."""
        return find(self.index.names, self._order, name)

    def _existing(self, path: str) -> int:
        number = self._number(path.strip("/"))
        if number is None:
            raise NoSuchPath(f"{path}: no such file among the packed ones")
        return number

    def _file(self, number: int, name: str, path: str) -> Entry:
        index = self.index
        mode, size, mtime = index.mode[number], index.size[number], index.mtime[number]
        return Entry(name, path, False, size, mtime, is_executable=mode & 0o100 > 0, mode=mode)

    def _folder(self, name: str, path: str) -> Entry:
        return Entry(base(path), path, True, mode=self._modes.get(name))

    def _check_distinct(self) -> None:
        """Refuse names that folders cannot hold: duplicates, and a file that is also a folder."""
        names, last = self.index.names, None
        for number in self._order:
            raw = names.raw(number)
            if raw == last:
                raise PathError(f"{self._set.url} contains {names[number]!r} twice; refused")
            last = raw
        for folder in self._folders:
            if self._number(folder) is not None:
                raise PathError(f"{self._set.url} contains {folder!r} as a file and as a folder; refused")


class _Folders:
    """The files and folders directly in each folder."""

    def __init__(self, files: Names, folders: Names) -> None:
        self._files: dict[str, array[int]] = {"": array("I")}
        self._inner: dict[str, list[str]] = {}
        for name in folders:
            self._know(name)
        for number, name in enumerate(files):
            folder = name.rpartition("/")[0]
            self._know(folder)
            self._files[folder].append(number)

    def _know(self, name: str) -> None:
        """Add the folder and its parents."""
        while name not in self._files:
            self._files[name] = array("I")
            above = name.rpartition("/")[0]
            self._inner.setdefault(above, []).append(name)
            name = above

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def files(self, name: str) -> array[int]:
        return self._files[name]

    def folders(self, name: str) -> list[str]:
        return self._inner.get(name, [])


def by_name(names: Names) -> array[int]:
    """Return the numbers of the names, sorted by name."""
    raw = [*map(names.raw, range(len(names)))]
    return array("I", sorted(range(len(names)), key=raw.__getitem__))


def find(names: Names, order: array[int], name: str) -> int | None:
    """Return the number of a name, or None."""
    raw = name.encode("utf-8", "surrogateescape")
    at = bisect_left(order, raw, key=names.raw)
    return order[at] if at < len(order) and names.raw(order[at]) == raw else None
