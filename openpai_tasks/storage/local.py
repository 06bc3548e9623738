"""Files on this machine: any path a person names, or a folder that nothing leads out of."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from openpai_tasks.errors import ConfigError, Denied, NotFound, PathError
from openpai_tasks.home import make_private
from openpai_tasks.storage.clearing import open_folder, remove_tree
from openpai_tasks.storage.real import real_path
from openpai_tasks.storage.store import (
    PIECE,
    Appends,
    Digest,
    Entry,
    Hasher,
    Place,
    SetsModes,
    base,
    check_name,
    join,
    parent,
)

SHA256 = "sha256"
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
FORBIDDEN = (errno.EACCES, errno.EPERM)


class Sha256:
    """The digest of local files."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, piece: bytes, /) -> None:
        self._hash.update(piece)

    def digest(self) -> Digest:
        return Digest(SHA256, self._hash.hexdigest())


class LocalStore(Appends, SetsModes):
    """The files below ``root``; with a root of its own, no link leads out of it."""

    kind = "local"
    knows_digests = False

    def __init__(self, root: str = "/", read_only: bool = False) -> None:
        self.root = real_path(os.path.abspath(root))
        self._confined = self.root != "/"
        self._read_only = read_only

    def address(self, path: str) -> str:
        return "file://" + real_path(self._plain(path))

    def stat(self, path: str) -> Entry | None:
        try:
            return _entry(self._inside(path), base(path), path)
        except OSError as err:
            if err.errno in MISSING:
                return None
            raise _ours(err, path) from err

    def list(self, path: str) -> Iterator[Entry]:
        with _told(path), os.scandir(self._inside(path)) as entries:
            for found in entries:
                inner = join(path, check_name(found.name, path))
                yield _listed(found, found.name, inner)

    def make_folder(self, path: str) -> None:
        self._refuse_change(path)
        with _told(path):
            _make_folders(self._inside(path))

    def remove(self, path: str, recursive: bool = False) -> None:
        place = self._holding(path)
        with _told(path), self._open_holder(place) as holder:
            name = base(place)
            if not stat.S_ISDIR(os.lstat(name, dir_fd=holder).st_mode):
                os.unlink(name, dir_fd=holder)
            elif recursive:
                _remove_tree(name, holder, path)
            else:
                os.rmdir(name, dir_fd=holder)

    def rename(self, source: str, target: str) -> None:
        with _told(target):
            os.replace(self._holding(source), self._holding(target))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _told(path), _open_regular(self._inside(path), path) as file:
            file.seek(offset)
            left = length
            while left is None or left > 0:
                piece = file.read(PIECE if left is None else min(PIECE, left))
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._stream(path, pieces, os.O_CREAT | os.O_TRUNC)

    def broken_off(self, path: str) -> int:
        entry = self.stat(path)
        return entry.size if entry and not entry.is_link else 0

    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        self._stream(path, pieces, os.O_APPEND)

    def _stream(self, path: str, pieces: Iterable[bytes], how: int) -> None:
        place = self._holding(path)
        with _told(path):
            handle = os.open(place, os.O_WRONLY | os.O_NOFOLLOW | how, 0o600)
        with os.fdopen(handle, "wb", buffering=0) as file:
            for piece in pieces:  # what goes wrong over there keeps its own name
                with _told(path):
                    _write_all(file, piece)

    def digest(self, path: str) -> Digest | None:
        hasher = Sha256()
        for piece in self.read(path):
            hasher.update(piece)
        return hasher.digest()

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return Sha256() if kind in (None, SHA256) else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        with _told(path):
            os.utime(self._inside(path), ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def set_mode(self, path: str, mode: int) -> None:
        with _told(path):
            os.chmod(self._inside(path), mode)

    def allowed(self, mode: int) -> int:
        return mode & ~_umask(int(time.monotonic()))

    def _plain(self, path: str) -> str:
        return self.root + path if self._confined else path

    def _inside(self, path: str) -> str:
        """The path on this machine, if it is in the root after every link is followed."""
        place = self._plain(path)
        if self._confined and not _is_below(real_path(place), self.root):
            raise PathError(f"{path} leads out of the storage, by a link or by '..'")
        return place

    def _holding(self, path: str) -> str:
        """The path of a name itself, even if it is a link, to be changed; what holds it must be inside."""
        self._refuse_change(path)
        place = self._plain(path.rstrip("/"))
        if self._confined and not _is_below(real_path(os.path.dirname(place)), self.root):
            raise PathError(f"{path} leads out of the storage, by a link or by '..'")
        return place

    @contextlib.contextmanager
    def _open_holder(self, place: str) -> Iterator[int]:
        """The folder that holds the name, as it is now: nobody can put a link in its place any more."""
        folder = real_path(os.path.dirname(place) or "/")
        if not _is_below(folder, self.root):
            raise PathError(f"{place} leads out of the storage, by a link or by '..'")
        handle = open_folder(folder, self.root)
        try:
            yield handle
        finally:
            os.close(handle)

    def _refuse_change(self, path: str) -> None:
        if self._read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)


def open_store(place: Place) -> LocalStore:
    """A storage that is a folder of this machine: the embedded cluster's, or one's own."""
    if not os.path.isabs(str(place.data.get("path", ""))):
        raise ConfigError(f"storage {place.name!r} of {place.cluster!r} does not say which folder it is")
    root = users_part(Path(place.data["path"]), place)
    if not place.share:
        make_private(root)
    elif not root.is_dir():
        raise ConfigError(
            f"storage {place.name!r} of {place.cluster!r} is the folder {root}, which is missing"
        )
    return LocalStore(str(root), place.read_only)


def users_part(root: Path, place: Place) -> Path:
    """The folder of the user where each one has their own, else all of it."""
    if place.share:
        return root
    return root / check_name(place.user, f"storage {place.name!r}")


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _remove_tree(name: str, holder: int, path: str) -> None:
    try:
        remove_tree(name, holder)
    except PathError:
        raise
    except OSError as err:
        raise _ours(err, join(parent(path), str(err.filename))) from err


def _make_folders(place: str) -> None:
    """Make the folder and what is missing above it; one level at a time, as there may be very many."""
    missing = []
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):  # else another thread was quicker
                raise


def _entry(place: str, name: str, path: str) -> Entry:
    facts = os.lstat(place)
    is_link = stat.S_ISLNK(facts.st_mode)
    return _made(name, path, os.stat(place) if is_link else facts, is_link)


def _listed(found: os.DirEntry[str], name: str, path: str) -> Entry:
    try:
        return _made(name, path, found.stat(), found.is_symlink())
    except OSError as err:  # a link that leads nowhere, or a file that has just gone
        if err.errno == errno.ENAMETOOLONG:  # of a folder, all that is in it would be left out in silence
            raise
        return Entry(name, path, False, is_link=found.is_symlink())


def _made(name: str, path: str, facts: os.stat_result, is_link: bool) -> Entry:
    is_folder = stat.S_ISDIR(facts.st_mode)
    can_run = bool(facts.st_mode & stat.S_IXUSR) and not is_folder
    size = 0 if is_folder else facts.st_size
    is_special = not is_folder and not stat.S_ISREG(facts.st_mode)
    mtime_ms, mode = facts.st_mtime_ns // 1_000_000, facts.st_mode & 0o777
    return Entry(name, path, is_folder, size, mtime_ms, is_link, can_run, is_special, mode)


@lru_cache(1)
def _umask(second: int) -> int:
    """What new files must not have, asked once a second.

    Linux is asked, since to ask the process is to change it for a moment.
    """
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _open_regular(place: str, path: str) -> BinaryIO:
    """Open to read; what is no file (a pipe, a device) would keep us waiting, or never end."""
    handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    file = os.fdopen(handle, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise PathError(f"{path} is neither a file nor a folder")
    return file


def _write_all(file: BinaryIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of the system in our words."""
    try:
        yield
    except PathError:
        raise
    except OSError as err:
        raise _ours(err, path) from err


def _ours(err: OSError, path: str) -> PathError | NotFound | Denied:
    reason = (err.strerror or str(err)).lower()
    if err.errno in MISSING:
        return NotFound(f"{path}: {reason}", 404)
    if err.errno in FORBIDDEN:
        return Denied(f"{path}: {reason}", 403)
    return PathError(f"{path}: {reason}")
