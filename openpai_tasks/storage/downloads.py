"""Files of a folder on a storage, brought here: each one whole or not at all, and none outside the target."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.errors import PathError
from openpai_tasks.storage.sources import Source


@dataclass(frozen=True)
class Listing:
    """The files below a folder by name; ``left_out`` are links and things that are no files of its."""

    files: tuple[Source, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def listing(folder: Path) -> Listing:
    """Everything below the folder; a link counts as the file it leads to, if that is in the folder too."""
    root = folder.resolve()
    files: list[Source] = []
    left_out: list[str] = []
    for path in _walk(root):
        name = str(path.relative_to(root))
        real = path.resolve()
        if real.is_file() and real.is_relative_to(root):
            files.append(Source(real, name, real.stat().st_size))
        else:
            left_out.append(name)
    return Listing(tuple(files), tuple(left_out))


def _walk(folder: Path) -> Iterator[Path]:
    """Every path that is not a folder, in order; links to folders are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as err:
        raise PathError(f"cannot read the folder {folder}: {err.strerror}") from err
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name)
        else:
            yield folder / entry.name


def download(files: Iterable[Source], target: Path) -> list[Path]:
    """Copy the files into ``target``; what was there under the same name is replaced as a whole."""
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise PathError(f"cannot make the folder {target}: {err.strerror}") from err
    root = target.resolve()
    return [_bring(file, root) for file in files]


def _bring(file: Source, root: Path) -> Path:
    place = root / file.name
    if os.path.isabs(file.name) or os.pardir in Path(file.name).parts:
        raise PathError(f"the name {file.name!r} leads out of {root}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.parent.resolve().is_relative_to(root):  # by a link that was there before
            raise PathError(f"{place.parent} is a link that leads out of {root}; remove it")
        _replace(file.path, place)
    except PathError:
        raise
    except OSError as err:
        raise PathError(f"cannot write {place}: {err.strerror}") from err
    return place


def _replace(source: Path, place: Path) -> None:
    """Write beside it, then give it its name: readers see the old file or the new one."""
    handle, name = tempfile.mkstemp(prefix=".download-", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as out, open(source, "rb") as into:
            shutil.copyfileobj(into, out, 1 << 20)
        shutil.copystat(source, name)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
