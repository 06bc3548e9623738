"""Operations on files, on this machine and on storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from openpai_tasks.errors import ConfigError, NoSuchPath, PathError
from openpai_tasks.sdk import amounts, files
from openpai_tasks.sdk.amounts import at_least, read, size
from openpai_tasks.storage import location, patterns
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying import plan
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.copying.walk import WalkedEntry, stream, walk
from openpai_tasks.storage.location import Book, Location, naming
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import Entry, join, parent
from openpai_tasks.text import wildcards

FILE, FOLDER = "file", "folder"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file or folder, as commands show it."""

    name: str
    type: str
    size: int
    modified: int
    link: bool
    url: str


@dataclass(frozen=True)
class FileFacts:
    """Everything known about one file or folder."""

    url: str
    type: str
    size: int
    modified: int
    link: bool
    store: str
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """How much space a folder takes."""

    url: str
    files: int
    folders: int
    size: int


def locate(text: str, book: Book) -> Location:
    """Return the location that ``text`` names, also in a Hadoop archive: ``har://pai-lab/home/x.har/a``."""
    is_archive = text.lower().startswith("har://")
    return files.locate_in_archive(text, book) if is_archive else location.locate(text, book)


def locate_all(texts: Sequence[str], book: Book) -> list[Location]:
    """Return the locations of these paths, with patterns resolved; a missing one is an error."""
    found: list[Location] = []
    for place in (locate(text, book) for text in texts):
        with naming(place):
            found += patterns.sources(place)
    return found


def list_files(places: Sequence[Location], parts: bool = False) -> Iterator[FileInfo]:
    """The entries of the folders as they arrive, or the file itself; ``parts``: with unfinished files."""
    for place in places:
        entry = existing(place)
        if not entry.is_folder:
            yield _info(entry, place.name, place.url)
            continue
        prefix = "" if len(places) == 1 else place.url.rstrip("/") + "/"
        with naming(place):
            for found in place.store.list(place.path):
                if parts or not is_part(found):
                    yield _info(found, prefix + found.name, join(place.url, found.name))


def existing(place: Location) -> Entry:
    with naming(place):
        entry = place.store.stat(place.path)
    if entry is None:
        raise NoSuchPath(f"{place.url}: no such file or folder")
    return entry


def file_facts(place: Location, checksum: bool = False) -> FileFacts:
    entry = existing(place)
    with naming(place):
        digest = place.store.digest(place.path) if checksum and not entry.is_folder else None
    return FileFacts(
        place.url,
        FOLDER if entry.is_folder else FILE,
        entry.size,
        entry.mtime_ms,
        entry.is_link,
        place.store.kind,
        f"{digest.kind}:{digest.value}" if digest else "",
    )


def copy_rules(workers: int, checksum: bool = False, delete: bool = False, preview: bool = False) -> Rules:
    """How to copy, from the flags."""
    return Rules(amounts.workers(workers), checksum, delete, preview)


def copy(sources: Sequence[Location], target: Location, rules: Rules, watch: Watch) -> Copied:
    items = plan.plan_copy(sources, target)
    return copying.copy(items, rules, watch, plan.target_of(items))


def sync(source: Location, target: Location, rules: Rules, watch: Watch) -> Copied:
    return copying.copy(plan.plan_sync(source, target), rules, watch, target.url)


def check_copied(copied: Copied) -> None:
    """Raise an error unless everything was copied."""
    if copied.failed:
        done = copied.files + copied.skipped
        raise PathError(f"{len(copied.failed)} of {done + len(copied.failed)} did not arrive")


def require_two(paths: Sequence[str]) -> Sequence[str]:
    """The paths, if there is a source and a target among them."""
    if len(paths) < 2:
        raise ConfigError("name a source and a target: copy SOURCE... TARGET")
    return paths


def make_folders(texts: Sequence[str], book: Book) -> None:
    for place in [locate(text, book) for text in texts]:
        with naming(place):
            place.store.make_folder(place.path)


def read_files(places: Sequence[Location]) -> Iterator[bytes]:
    """The files' bytes, one after the other."""
    for place in places:
        if existing(place).is_folder:
            raise PathError(f"{place.url} is a folder, not a file")
        with naming(place):
            yield from place.store.read(place.path)


def head(place: Location, lines: int) -> Iterator[bytes]:
    """The first lines, reading no more than needed."""
    left = read("lines", at_least(0), lines)
    for piece in read_files([place]):
        count = piece.count(b"\n")
        if count >= left:
            yield b"".join(line + b"\n" for line in piece.split(b"\n", left)[:left])
            return
        left -= count
        yield piece


def disk_usage(place: Location) -> Iterator[StorageUsage]:
    """The size of each entry of the folder as it is known, and of the folder itself last."""
    with naming(place):
        yield from _usage(place)


def _usage(place: Location) -> Iterator[StorageUsage]:
    entry = existing(place)
    total = _count([entry]) if not entry.is_folder else (0, 0, 0)
    folders: list[Entry] = []
    for found in place.store.list(place.path) if entry.is_folder else ():
        if is_part(found):
            continue
        if found.is_folder and not found.is_link:
            folders.append(found)
        else:
            row = _count([found])
            total = _sum(total, row)
            yield StorageUsage(join(place.url, found.name), *row)
    for folder in folders:
        inner = stream(place.join(folder.name))
        row = _sum(_count([folder]), _count(found.entry for found in inner))
        total = _sum(total, row)
        yield StorageUsage(join(place.url, folder.name), *row)
    yield StorageUsage(place.url, *total)


Count = tuple[int, int, int]
"""Files, folders, bytes."""


def _count(entries: Iterable[Entry]) -> Count:
    files = folders = size = 0
    for entry in entries:
        files, folders, size = files + (not entry.is_folder), folders + entry.is_folder, size + entry.size
    return files, folders, size


def _sum(one: Count, other: Count) -> Count:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def tree(place: Location, depth: int = 0) -> Iterator[tuple[str, WalkedEntry]]:
    """Everything below the folder down to a depth (0: all), each with the branches of a drawn tree."""
    levels = read("depth", at_least(0), depth) or None
    require_folder(place)
    last_at: dict[int, bool] = {}
    with naming(place):
        marked = _mark_last(list(walk(place, levels)))
    for found, is_last in marked:
        last_at[found.depth] = is_last
        bars = "".join("    " if last_at[level] else "│   " for level in range(1, found.depth))
        yield bars + ("└── " if is_last else "├── "), found


def _mark_last(found: list[WalkedEntry]) -> list[tuple[WalkedEntry, bool]]:
    """Each entry, and whether it is the last of its folder."""
    seen: set[str] = set()
    marked = []
    for item in reversed(found):
        folder = item.name.rpartition("/")[0]
        marked.append((item, folder not in seen))
        seen.add(folder)
    return marked[::-1]


def find_files(
    place: Location, name: str | None, kind: str | None, min_size: str | int
) -> Iterator[FileInfo]:
    """Everything below the folder that matches the pattern, the type and the size, as it is found."""
    least = read("min_size", size(), min_size)
    require_folder(place)
    if kind not in (None, FILE, FOLDER):
        raise PathError(f"a type is {FILE} or {FOLDER}, got {kind!r}")
    with naming(place):
        for found in stream(place):
            info = _info(found.entry, found.name, join(place.url, found.name))
            wanted = kind in (None, info.type) and info.size >= least
            if wanted and (name is None or wildcards.matches(found.entry.name, name)):
                yield info


def require_folder(place: Location) -> None:
    """Raise unless the location is a folder."""
    if not existing(place).is_folder:
        raise PathError(f"{place.url} is a file, not a folder")


def _info(entry: Entry, name: str, url: str) -> FileInfo:
    kind = FOLDER if entry.is_folder else FILE
    return FileInfo(name, kind, entry.size, entry.mtime_ms, entry.is_link, url)


def upload(place: Location, pieces: Iterable[bytes], size: int | None = None, replace: bool = False) -> int:
    """Write a file, complete or not at all, and its missing folders; return its size.

    An existing file stays as it is unless it may be replaced.
    """
    left = [pieces]

    def source() -> Iterable[bytes]:
        if not left:  # a stream cannot be read again
            raise PathError(
                "the storage broke off while it was written: nothing is kept, send the file again"
            )
        return left.pop()

    if place.is_root:
        raise PathError(f"{place.url} is a folder, not a file")
    with naming(place):
        there = place.store.stat(place.path)
        if there is not None and there.is_folder and not there.is_link:
            raise PathError(f"{place.url} is a folder, not a file")
        if there is not None and not replace:
            raise ConfigError(f"{place.url} exists already")
        place.store.make_folder(parent(place.path))
        return put(place.store, place.path, source, size)


def find_existing(folder: Location, paths: Sequence[Sequence[str]]) -> list[str]:
    """Return those of the paths below the folder that exist; each folder is listed once."""
    wanted: dict[str, dict[str, str]] = {}
    for names in paths:
        place = folder.join(*names)
        wanted.setdefault(parent(place.path), {})[place.name] = "/".join(names)
    found: list[str] = []
    with naming(folder):
        for above, names_there in wanted.items():
            there = folder.store.stat(above)
            if there is not None and there.is_folder:
                listed = {entry.name for entry in folder.store.list(above)}
                found += [path for name, path in names_there.items() if name in listed]
    return found
