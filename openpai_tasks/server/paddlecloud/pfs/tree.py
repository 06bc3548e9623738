"""Files below one folder of a user, in which the user's jobs may change anything at any time.

Symlinks are followed only inside the folder. Each path is resolved first and then opened name by name without
following links, so that a link that a job puts there in between leads to an error, never outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from openpai_tasks.files.removal import remove_tree
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text import wildcards

READ, WRITE = os.O_RDONLY, os.O_RDWR
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe that nobody reads must not block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o700
PIECE = 1 << 20
MAGIC = frozenset("*?[\\")

Names = tuple[str, ...]


@dataclass(frozen=True)
class TreeEntry:
    """A file or folder: its names below the tree's folder, and what a listing shows."""

    names: Names
    mtime_ns: int
    size: int
    is_folder: bool


class Tree:
    """One folder, and everything in it. Names have been checked: none is empty, ``.`` or ``..``."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def stat(self, names: Names) -> TreeEntry:
        real = self._real(names)
        with self._folder(real[:-1]) as folder:
            return _facts(names, os.stat(real[-1] if real else ".", dir_fd=folder, follow_symlinks=False))

    def list(self, names: Names, recursive: bool = False) -> Iterator[TreeEntry]:
        """Yield what is in the folder, in order; links that lead outside are left out."""
        waiting = [names]
        while waiting:
            above = waiting.pop()
            found = self._entries(above)
            yield from found
            if recursive:
                waiting += [one.names for one in reversed(found) if one.is_folder]

    def names(self, names: Names) -> Sequence[str]:
        """Return the names in the folder, also of links that lead outside."""
        with self._folder(self._real(names)) as folder:
            return os.listdir(folder)

    def make_folder(self, names: Names) -> None:
        """Create the folder and its missing parents."""
        with self._folder(self._real(names), create=True):
            pass

    def resize(self, names: Names, size: int, mtime_ns: int | None = None) -> None:
        """Give the file this size, and create it if missing; the bytes that fit are kept."""
        with self.open(names, WRITE, create=True) as file:
            if os.fstat(file).st_size != size:
                os.ftruncate(file, size)
            if mtime_ns is not None:
                os.utime(file, ns=(mtime_ns, mtime_ns))

    def set_time(self, names: Names, mtime_ns: int) -> None:
        with self.open(names, WRITE) as file:
            os.utime(file, ns=(mtime_ns, mtime_ns))

    @contextlib.contextmanager
    def open(self, names: Names, mode: int = READ, create: bool = False) -> Iterator[int]:
        """Open a regular file; with ``create``, make it and its folders if they are missing."""
        real, mode = self._real(names), mode | os.O_CREAT if create else mode
        with self._folder(real[:-1], create) as folder, _open_file(real[-1:], mode, folder) as file:
            yield file

    def move(self, names: Names, target: Names) -> None:
        """Rename a file; one that it replaces passes on its mode."""
        real, to = (*self._real(names[:-1]), *names[-1:]), self._real(target)
        if not names or not to:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with (
            self._folder(real[:-1]) as here,
            self._folder(to[:-1], create=True) as there,
            _open_file(real[-1:], READ, here) as file,
        ):
            with contextlib.suppress(FileNotFoundError):
                old = os.stat(to[-1], dir_fd=there, follow_symlinks=False).st_mode
                if not stat.S_ISREG(old):
                    raise IsADirectoryError(errno.EISDIR, "not a regular file")
                os.fchmod(file, stat.S_IMODE(old))
            os.rename(real[-1], to[-1], src_dir_fd=here, dst_dir_fd=there)

    def copy(self, names: Names, target: Names) -> None:
        """Copy a file inside the machine, replacing the content of the target."""
        with self.open(names) as source, self.open(target, WRITE, create=True) as file:
            os.ftruncate(file, 0)
            offset = 0
            while piece := os.pread(source, PIECE, offset):
                offset += os.pwrite(file, piece, offset)

    def remove(self, names: Names, recursive: bool = False) -> None:
        """Remove a file or a link; a folder, with everything in it, only if recursive."""
        if not names:
            raise PermissionError(errno.EPERM, "the home folder itself cannot be removed")
        with self._folder(self._real(names[:-1])) as folder:
            if not stat.S_ISDIR(os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(names[-1], dir_fd=folder)
            elif not recursive:
                raise IsADirectoryError(errno.EISDIR, "can't del directory")
            else:
                remove_tree(names[-1], folder)

    def is_link(self, names: Names) -> bool:
        """Whether the last name is a link, wherever it leads."""
        try:
            with self._folder(self._real(names[:-1])) as folder:
                return stat.S_ISLNK(os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _entries(self, names: Names) -> Sequence[TreeEntry]:
        with self._folder(self._real(names)) as folder:
            found = []
            for name in sorted(os.listdir(folder)):
                with contextlib.suppress(OSError):  # removed in between, or a link that leads outside
                    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    is_link = stat.S_ISLNK(facts.st_mode)
                    found.append(self.stat((*names, name)) if is_link else _facts((*names, name), facts))
        return found

    def _real(self, names: Names) -> Names:
        """Return the names after following all links; raise if one leads outside."""
        path = os.path.realpath(os.path.join(self._root, *names))
        if path != self._root and not path.startswith(self._root.rstrip("/") + "/"):
            raise PermissionError(errno.EACCES, "a link that leads out of your folder")
        return tuple(name for name in path[len(self._root) :].split("/") if name)

    @contextlib.contextmanager
    def _folder(self, real: Names, create: bool = False) -> Iterator[int]:
        """Open a folder by its names, none of which may be a link now."""
        folder = os.open(self._root, _FOLDER)
        try:
            for name in real:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, FOLDER_MODE, dir_fd=folder)
                above, folder = folder, _open_folder(name, folder, create)
                os.close(above)
            yield folder
        finally:
            os.close(folder)


def _open_folder(name: str, above: int, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except NotADirectoryError as err:
        if create:
            raise FileExistsError(errno.EEXIST, "a file is there, not a folder") from err
        raise


@contextlib.contextmanager
def _open_file(name: Names, mode: int, folder: int) -> Iterator[int]:
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    file = os.open(name[0], mode | _SAFE, 0o666, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a regular file")
        yield file
    finally:
        os.close(file)


def _facts(names: Names, facts: os.stat_result) -> TreeEntry:
    is_folder = stat.S_ISDIR(facts.st_mode)
    return TreeEntry(names, facts.st_mtime_ns, 0 if is_folder else facts.st_size, is_folder)


# Patterns of names by the rules of PaddleCloud's server: `*`, `?`, `[a-z]`, `[^a]`; `\` takes the next
# character as it is. A name that exists is never a pattern.


def matches(tree: Tree, names: Names) -> Iterator[Names]:
    """Yield the files and folders that the names mean, in order."""
    if _exists(tree, names):
        yield names
    elif any(MAGIC & set(name) for name in names):
        yield from _expand(tree, (), names)


def _exists(tree: Tree, names: Names) -> bool:
    try:
        tree.stat(names)
    except OSError:
        return False
    return True


def _expand(tree: Tree, above: Names, rest: Names) -> Iterator[Names]:
    if not rest:
        yield above
        return
    name, below = rest[0], rest[1:]
    if not MAGIC & set(name):
        if _exists(tree, (*above, name)):
            yield from _expand(tree, (*above, name), below)
        return
    wanted = compile_name(name)
    try:
        found = [facts.names[-1] for facts in tree.list(above)]
    except OSError:
        return
    for one in found:
        if wanted.fullmatch(one):
            yield from _expand(tree, (*above, one), below)


def compile_name(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of one name; raise ValueError for a malformed pattern."""
    return wildcards.compile_name(pattern, _group)


def _group(pattern: str, at: int) -> tuple[str, int]:
    text = "["
    if pattern[at : at + 1] == "^":
        text, at = "[^", at + 1
    begun = at
    while pattern[at : at + 1] != "]" or at == begun:
        first, at = _member(pattern, at)
        text += re.escape(first)
        if pattern[at : at + 1] == "-":
            last, at = _member(pattern, at + 1)
            if last < first:
                raise ValueError("syntax error in pattern")
            text += f"-{re.escape(last)}"
    return f"{text}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at : at + 1]
    if letter in ("", "-", "]"):
        raise ValueError("syntax error in pattern")
    return wildcards.read_letter(pattern, at + 1) if letter == "\\" else (letter, at + 1)
