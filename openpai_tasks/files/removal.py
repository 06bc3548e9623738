"""Remove a local folder with all its contents, however deep, without following symlinks.

Every name is relative to an open folder, so a folder that is replaced by a symlink meanwhile is not followed.
Only two folders are open at a time: on the way up, each parent is checked to be the one on the way down.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from dataclasses import field

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Identity = tuple[int, int]


def open_folder(path: str, root: str, create: bool = False) -> int:
    """Open the folder name by name from the root, following no symlinks; ``create``: make missing ones."""
    handle = os.open(root, SEARCH)
    for name in path.removeprefix(root).split("/"):
        if name:
            above = handle
            try:
                handle = _open_or_create(name, above) if create else os.open(name, SEARCH, dir_fd=above)
            finally:
                os.close(above)
    return handle


def _open_or_create(name: str, above: int) -> int:
    try:
        return os.open(name, SEARCH, dir_fd=above)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another thread was faster
            os.mkdir(name, dir_fd=above)
        return os.open(name, SEARCH, dir_fd=above)
    except NotADirectoryError as err:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from err


def remove_tree(name: str, holder: int) -> None:
    """Remove the folder ``name`` of the open folder ``holder``, with its contents; errors name the rest."""
    descent = _Descent(name, holder)
    try:
        descent.clear()
    except PathError:
        raise
    except OSError as err:
        last = [err.filename] if isinstance(err.filename, str) else []
        raise OSError(err.errno, err.strerror, "/".join([*descent.names(), *last])) from err
    finally:
        os.close(descent.here)


def discard(path: str | os.PathLike[str]) -> None:
    """Remove a folder that a job may have filled, as far as possible; ``shutil`` fails for very deep ones."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):  # too deep for Python's stack, or for the number of open files
        above, name = os.path.split(os.path.abspath(path))
        with contextlib.suppress(OSError):
            holder = os.open(above, SEARCH & ~os.O_NOFOLLOW)
            try:
                remove_tree(name, holder)
            finally:
                os.close(holder)


@dataclass()
class _Level:
    """A folder on the way down: its name, the identity of its parent, and its subfolders that are left."""

    name: str
    above: Identity
    left: list[str] = field(default_factory=list)


class _Descent:
    """The state of a removal: the open folder, and the path to it."""

    def __init__(self, name: str, holder: int) -> None:
        self.here = os.open(name, FOLDER, dir_fd=holder)
        self._trail = [_Level(name, _identity(holder))]

    def names(self) -> list[str]:
        return [level.name for level in self._trail]

    def clear(self) -> None:
        self._trail[0].left = _remove_files(self.here)
        while self._trail:
            level = self._trail[-1]
            if level.left:
                self._enter(level.left.pop())
                continue
            self._move(self._above(level.above))
            self._trail.pop()
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(level.name, dir_fd=self.here)

    def _enter(self, name: str) -> None:
        try:
            below = os.open(name, FOLDER, dir_fd=self.here)
        except FileNotFoundError:  # another process has removed it
            return
        level = _Level(name, _identity(self.here))
        self._trail.append(level)
        self._move(below)
        level.left = _remove_files(below)

    def _above(self, expected: Identity) -> int:
        above = os.open("..", SEARCH, dir_fd=self.here)
        if _identity(above) != expected:
            os.close(above)
            raise PathError(f"{'/'.join(self.names())} was moved while it was being removed")
        return above

    def _move(self, folder: int) -> None:
        old, self.here = self.here, folder
        os.close(old)


def _remove_files(folder: int) -> list[str]:
    """Remove everything but folders; return the names of the folders."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


def _identity(folder: int) -> Identity:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino
