"""Files that a browser sends to travel with a job: a private folder for each form, until it is submitted."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.portal.starting import portal_folder
from openpai_tasks.settings.home import make_private

FOLDER = "uploads"
MOST_FILES = 10_000
MOST_BYTES = 512 << 20
LONGEST_NAME = 255
UNUSED_SECONDS = 12 * 3600.0
PIECE = 1 << 20
FORBIDDEN = re.compile("[\\\\\x00-\x1f\x7f\ud800-\udfff]")

_lock = threading.Lock()


@dataclass(frozen=True)
class Entry:
    """A file or folder at the top of an upload, with its number of files and bytes."""

    name: str
    is_folder: bool
    files: int
    size: int


class Upload:
    """The files of one form; only the session that sent them finds them again."""

    def __init__(self, request: PortalRequest) -> None:
        draft = request.form.get("draft", "")
        if not draft:
            raise ConfigError("this form is incomplete: reload the page and try again")
        digest = hashlib.sha256(f"{request.session.id} {draft}".encode()).hexdigest()
        self.folder = _root(request.project) / digest[:32]

    def entries(self) -> list[Entry]:
        """Return what was sent so far, by name; another request may remove it at the same time."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.folder.iterdir()):
                found.append(_entry(path))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names at the top, as they are given to ``--sources``."""
        return tuple(entry.name for entry in self.entries())

    def add(self, files: Sequence[tuple[str, BinaryIO]]) -> None:
        """Keep files under their relative names; refuse names that lead elsewhere, and too much."""
        _remove_unused(self.folder.parent)
        targets = [(self.folder.joinpath(*_parts(name)), content) for name, content in files]
        make_private(self.folder)
        os.utime(self.folder)
        known = self.entries()
        count = sum(entry.files for entry in known) + len(targets)
        if count > MOST_FILES:
            raise ConfigError(f"a job takes at most {MOST_FILES} files this way; put the rest on a storage")
        room = MOST_BYTES - sum(entry.size for entry in known)
        for target, content in targets:
            room -= _write(target, content, room)

    def remove(self, name: str) -> None:
        """Forget a file or folder at the top."""
        target = self.folder / _parts(name)[0]
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _root(project: Path) -> Path:
    with _lock:
        return _new_root(project)


@functools.cache
def _new_root(project: Path) -> Path:
    """Return the folder of all uploads, without those of an earlier process, which nobody can use."""
    root = portal_folder(project) / FOLDER
    shutil.rmtree(root, ignore_errors=True)
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return make_private(root)


def _remove_unused(root: Path) -> None:
    for folder in root.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _parts(name: str) -> list[str]:
    """Return the parts of a relative name."""
    parts = name.split("/")
    for part in parts:
        if part in ("", ".", "..") or FORBIDDEN.search(part):
            raise PathError(f"the name {name!r} cannot be a source's; refused")
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise PathError(f"the name {part[:40]!r}... is too long")
    return parts


def _entry(path: Path) -> Entry:
    sizes = list(_sizes(path))
    return Entry(path.name, path.is_dir(), len(sizes), sum(sizes))


def _sizes(path: Path) -> Iterator[int]:
    if not path.is_dir():
        yield path.stat().st_size
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.stat(os.path.join(folder, name)).st_size


def _write(target: Path, content: BinaryIO, room: int) -> int:
    """Write a file and return its size; programs stay programs, though browsers do not send modes."""
    size = content.seek(0, os.SEEK_END)
    if size > room:
        raise ConfigError(f"a job takes at most {MOST_BYTES >> 20} MB this way; put the rest on a storage")
    content.seek(0)
    mode = 0o755 if content.read(2) == b"#!" else 0o644  # in the job; here, the folder above is private
    content.seek(0)
    try:
        make_private(target.parent)
        target.unlink(missing_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            shutil.copyfileobj(content, file, PIECE)
    except (OSError, ConfigError) as err:
        raise PathError(f"cannot keep {target.name!r} beside the other files") from err
    return size
