"""Files on this machine: any path, or a folder that symlinks cannot leave."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Container, Iterable, Iterator, MutableSequence
from functools import lru_cache
from typing import BinaryIO, Literal, NamedTuple, TypeGuard

from openpai_tasks.errors import Denied, NoSuchPath, NotFound, PathError
from openpai_tasks.files import removal
from openpai_tasks.files.removal import FOLDER, SEARCH, open_folder
from openpai_tasks.storage.local.identity import identities, identity_of, real_path
from openpai_tasks.storage.store import (
    PIECE,
    SHA256,
    Appends,
    Digest,
    Entry,
    Hasher,
    KnowsPlaces,
    SetsModes,
    Sha256,
    Store,
    base,
    fingerprint,
    is_below,
    join,
    parent,
)

SIZE = (1 << 63) - 1
"""The bits of a size in a number that also holds a time."""
MANY = 1000
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
FORBIDDEN = (errno.EACCES, errno.EPERM)

FileFacts = tuple[str, int, int, int]
"""The name of a file, its size, its time in milliseconds, and its mode."""


class SameFiles(NamedTuple):
    """Names and sizes of files that two folders have in common, and the number of their other entries."""

    sizes: dict[str, int]
    others: int


def is_plain(store: Store) -> TypeGuard[LocalStore]:
    """Whether it is a local store, and not a subclass, which may read and write in other ways."""
    return type(store) is LocalStore


class LocalStore(Appends, KnowsPlaces, SetsModes):
    """The files below ``root``; symlinks cannot leave it unless it is ``/``."""

    kind = "local"
    knows_digests = False

    def __init__(self, root: str = "/", read_only: bool = False) -> None:
        self.root = real_path(os.path.abspath(root))
        self._confined = self.root != "/"
        self.read_only = read_only

    def address(self, path: str) -> str:
        return "file://" + real_path(self._full_path(path))

    def identities(self, path: str, above: bool = False) -> set[str]:
        return identities(real_path(self._full_path(path)), above)

    def stat(self, path: str) -> Entry | None:
        """Return the entry at the path; for a symlink that points outside the storage, the link itself."""
        place = self._full_path(path).rstrip("/") or "/"
        with contextlib.suppress(NotFound), mapping_errors(path):
            with self._in_parent(place) as (name, holder):
                facts = os.lstat(name, dir_fd=holder)
            if stat.S_ISLNK(facts.st_mode):
                return self._link_entry(place, base(path), path, facts)
            return _make_entry(base(path), path, facts, False)
        return None

    def list(self, path: str) -> Iterator[Entry]:
        return self.list_except(path, ())

    def list_except(self, path: str, names: Container[str]) -> Iterator[Entry]:
        """Like ``list``, without these names, which cost next to nothing."""
        place, inside = self._full_path(path), join(path, "")
        with mapping_errors(path), self._scan(path) as entries:
            for found in entries:
                if found.name not in names:
                    yield self._listed_entry(found, place, inside)

    def list_files(self, path: str, others: MutableSequence[Entry]) -> Iterator[FileFacts]:
        """Like ``list``, but faster: yield the regular files, and add all other entries to ``others``."""
        place, inside = self._full_path(path), join(path, "")
        with mapping_errors(path), self._scan(path) as entries:
            for found in entries:
                if found.is_file(follow_symlinks=False):
                    try:
                        facts = found.stat(follow_symlinks=False)
                    except OSError:
                        pass
                    else:
                        yield found.name, facts.st_size, facts.st_mtime_ns // 1_000_000, facts.st_mode & 0o777
                        continue
                others.append(self._listed_entry(found, place, inside))

    def _listed_entry(self, found: os.DirEntry[str], place: str, inside: str) -> Entry:
        name, is_link = found.name, found.is_symlink()
        try:
            facts = found.stat(follow_symlinks=False)
            if is_link:
                return self._link_entry(join(place, name), name, inside + name, facts)
            return _make_entry(name, inside + name, facts, False)
        except OSError as err:  # a dangling symlink, or a file that was just removed
            if err.errno == errno.ENAMETOOLONG:  # all content of a folder would be left out silently
                raise
            return Entry(name, inside + name, False, is_link=is_link)

    def _link_entry(self, place: str, name: str, path: str, facts: os.stat_result) -> Entry:
        """Return the entry of a symlink: its target's, or that of the link itself if it leads out."""
        if not self._confined:
            return _make_entry(name, path, os.stat(place), True)
        real = real_path(place)
        if not is_below(real, self.root):
            return Entry(name, path, False, mtime_ms=facts.st_mtime_ns // 1_000_000, is_link=True)
        with self._in_parent(real) as (last, holder):
            target = os.lstat(last, dir_fd=holder)
        if stat.S_ISLNK(target.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return _make_entry(name, path, target, True)

    def make_folder(self, path: str) -> None:
        self._check_writable(path)
        with mapping_errors(path):
            place = self._inside(path)
            if self._confined:
                os.close(open_folder(real_path(place), self.root, create=True))
            else:
                _make_folders(place)

    def remove(self, path: str, recursive: bool = False) -> None:
        place = self._changeable(path)
        with mapping_errors(path), self._open_holder(place) as holder:
            name = base(place)
            if not stat.S_ISDIR(os.lstat(name, dir_fd=holder).st_mode):
                os.unlink(name, dir_fd=holder)
            elif recursive:
                _remove_tree(name, holder, path)
            else:
                os.rmdir(name, dir_fd=holder)

    def rename(self, source: str, target: str) -> None:
        old, new = self._changeable(source), self._changeable(target)
        with (
            mapping_errors(target),
            self._in_parent(old) as (one, here),
            self._in_parent(new) as (other, there),
        ):
            os.replace(one, other, src_dir_fd=here, dst_dir_fd=there)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with mapping_errors(path), as_regular(self._open_for_reading(path), path) as file:
            file.seek(offset)
            left = length
            while left is None or left > 0:
                piece = file.read(PIECE if left is None else min(PIECE, left))
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece

    def open_file(self, path: str) -> int:
        """Open a file for reading, by the rules of ``read``; return its descriptor."""
        with mapping_errors(path), as_regular(self._open_for_reading(path), path) as file:
            return os.dup(file.fileno())

    def open_folder(self, path: str) -> int:
        """Open a folder, by the rules of ``list``, to reach the names in it; return its descriptor."""
        place = self._full_path(path)
        with mapping_errors(path):
            return self._open_inside(place) if self._confined else os.open(place, SEARCH & ~os.O_NOFOLLOW)

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._stream(path, pieces, os.O_CREAT | os.O_TRUNC)

    def unfinished_size(self, path: str) -> int:
        entry = self.stat(path)
        return entry.size if entry and not entry.is_link else 0

    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        self._stream(path, pieces, os.O_APPEND)

    def _stream(self, path: str, pieces: Iterable[bytes], how: int) -> None:
        place = self._changeable(path)
        with mapping_errors(path), self._in_parent(place) as (name, holder):
            how |= os.O_WRONLY | os.O_NOFOLLOW | (os.O_NONBLOCK if self._confined else 0)
            handle = os.open(name, how, 0o600, dir_fd=holder)
            file = as_regular(handle, path, "wb") if self._confined else os.fdopen(handle, "wb", buffering=0)
        with file:
            for piece in pieces:  # errors of the source pass unchanged
                with mapping_errors(path):
                    _write_all(file, piece)

    def digest(self, path: str) -> Digest | None:
        return fingerprint(Sha256(), self.read(path))

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return Sha256() if kind in (None, SHA256) else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        moment = mtime_ms * 1_000_000
        with mapping_errors(path), self._in_real_parent(path) as (name, holder):
            os.utime(name, ns=(moment, moment), dir_fd=holder, follow_symlinks=holder is None)

    def set_mode(self, path: str, mode: int) -> None:
        with mapping_errors(path):
            handle = self._open_for_reading(path) if self._confined else path
            try:
                os.chmod(handle, mode)
            finally:
                if isinstance(handle, int):
                    os.close(handle)

    def allowed(self, mode: int) -> int:
        return mode & ~umask(int(time.monotonic()))

    def same_files(self, source: LocalStore, folder: str, target: str) -> Iterator[SameFiles]:
        """Yield the files that have the same size and time in both folders, some at a time."""
        with mapping_errors(target):
            there = dict(self._file_facts(target))
        sizes: dict[str, int] = {}
        others = 0
        with mapping_errors(folder):
            for name, facts in source._file_facts(folder):
                if facts is None or there.pop(name, None) != facts:
                    others += 1
                    continue
                sizes[name] = facts & SIZE
                if len(sizes) == MANY:
                    yield SameFiles(sizes, 0)
                    sizes = {}
        yield SameFiles(sizes, others + len(there))

    def _file_facts(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Yield all names, with time and size of regular files, which take one system call for each.

        Both are one number, as there may be a million of them: it takes a third of the memory of a tuple.
        """
        with self._scan(path) as entries:
            for found in entries:
                try:
                    facts = found.stat(follow_symlinks=False)
                except OSError:  # it was just removed, or the listing will report it
                    yield found.name, None
                    continue
                is_file = stat.S_ISREG(facts.st_mode)
                yield found.name, facts.st_mtime_ns // 1_000_000 << 63 | facts.st_size if is_file else None

    @contextlib.contextmanager
    def _scan(self, path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Scan an open folder, in which names are looked up faster; no listing has ``.`` or a slash."""
        folder = self.open_folder(path)
        try:
            handle = os.open(".", FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            with os.scandir(handle) as entries:
                yield entries
        finally:
            os.close(handle)

    def _full_path(self, path: str) -> str:
        return self.root + path if self._confined else path

    def _inside(self, path: str) -> str:
        """Return the path on this machine; raise if it leads out of the root."""
        place = self._full_path(path)
        self._check_inside(place, path)
        return place

    def _changeable(self, path: str) -> str:
        """Return the path to change, which may be a symlink; its parent folder must be inside."""
        self._check_writable(path)
        place = self._full_path(path.rstrip("/"))
        self._check_inside(os.path.dirname(place), path)
        return place

    def _check_inside(self, place: str, path: str) -> None:
        """Raise if the place is outside the root once all symlinks are followed."""
        if self._confined and not is_below(real_path(place), self.root):
            raise PathError(f"{path} leads out of the storage, by a link or by '..'")

    def _open_for_reading(self, path: str) -> int:
        """Open the target of the path for reading, without waiting for a pipe."""
        with self._in_real_parent(path) as (name, holder):
            how = os.O_RDONLY | os.O_NONBLOCK | (0 if holder is None else os.O_NOFOLLOW)
            return os.open(name, how, dir_fd=holder)

    def _in_real_parent(self, path: str) -> contextlib.AbstractContextManager[tuple[str, int | None]]:
        place = self._inside(path)
        real = real_path(place) if self._confined else place
        return self._in_parent(real)

    @contextlib.contextmanager
    def _in_parent(self, place: str) -> Iterator[tuple[str, int | None]]:
        """Yield a name and its open parent folder, so that the checked path is the one that is used.

        Users who write to a storage, such as jobs, may replace a folder by a symlink. Without a root there is
        nothing to check: the system follows the path by its name alone.
        """
        if self._confined:
            place = join(place, ".") if place == self.root else place
            with self._open_holder(place) as holder:
                yield base(place), holder
        else:
            yield place, None

    @contextlib.contextmanager
    def _open_holder(self, place: str) -> Iterator[int]:
        """Open the parent folder of the name, so that it cannot be replaced by a symlink any more."""
        folder, name = os.path.split(place)
        if name == os.pardir:
            raise PathError(f"{place} leads out of the storage, by a link or by '..'")
        handle = self._open_inside(folder or "/")
        try:
            yield handle
        finally:
            os.close(handle)

    def _open_inside(self, folder: str) -> int:
        """Open the folder where the path leads to, which must be below the root."""
        real = real_path(folder)
        if not is_below(real, self.root):
            raise PathError(f"{folder} leads out of the storage, by a link or by '..'")
        return open_folder(real, self.root)

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)


def _make_entry(name: str, path: str, facts: os.stat_result, is_link: bool) -> Entry:
    mode, mtime_ms = facts.st_mode, facts.st_mtime_ns // 1_000_000
    if stat.S_ISREG(mode):  # by far the most
        return Entry(
            name, path, False, facts.st_size, mtime_ms, is_link, mode & stat.S_IXUSR > 0, False, mode & 0o777
        )
    if stat.S_ISDIR(mode):
        return Entry(name, path, True, 0, mtime_ms, is_link, mode=mode & 0o777, id=identity_of(facts))
    can_run = mode & stat.S_IXUSR > 0
    return Entry(name, path, False, facts.st_size, mtime_ms, is_link, can_run, True, mode & 0o777)


def _remove_tree(name: str, holder: int, path: str) -> None:
    try:
        removal.remove_tree(name, holder)
    except PathError:
        raise
    except OSError as err:
        raise _make_error(err, join(parent(path), str(err.filename))) from err


def _make_folders(place: str) -> None:
    """Create the folder and its missing parents, one level at a time, as there may be very many."""
    missing = []
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):  # otherwise another thread was faster
                raise


@lru_cache(1)
def umask(second: int) -> int:
    """Return the umask for new files; read at most once a second.

    Linux reports it in /proc, since asking the process means changing it for a moment.
    """
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def as_regular(handle: int, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    """Open the file; refuse pipes and devices, as reading them could block or never end."""
    file = os.fdopen(handle, mode, buffering=0)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise PathError(f"{path} is neither a file nor a folder")
    return file


def _write_all(file: BinaryIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


@contextlib.contextmanager
def mapping_errors(path: str) -> Iterator[None]:
    """Translate errors of the system to ours."""
    try:
        yield
    except PathError:
        raise
    except OSError as err:
        raise _make_error(err, path) from err


def _make_error(err: OSError, path: str) -> PathError | NoSuchPath | Denied:
    reason = (err.strerror or str(err)).lower()
    if err.errno in MISSING:
        return NoSuchPath(f"{path}: {reason}")
    if err.errno in FORBIDDEN:
        return Denied(f"{path}: {reason}", 403)
    return PathError(f"{path}: {reason}")
