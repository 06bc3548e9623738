"""Where the files of a Jupyter server came from, and where what comes back may be written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from openpai_tasks.errors import PathError

if TYPE_CHECKING:
    from openpai_tasks.storage.job_files.sources import SourceFile

SUFFIX = ".ipynb"


@dataclass(frozen=True)
class Origins:
    """Where files were, by the names that they have in the job."""

    folder: str = ""
    """The one that all others came from; empty where it is not known."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Files and folders that were not below it, or by a link that leads out of it, and their paths."""
    hidden: tuple[str, ...] = ()
    """Names with a dot before a part of them: no other hidden file is written."""


def origins(sources: Iterable[SourceFile], here: Path) -> Origins:
    """What to remember of the files that are sent."""
    paths = {source.name: Path(os.path.normpath(here / source.path)) for source in sources}
    elsewhere: dict[str, str] = {}
    for name, path in paths.items():
        if not _is_found(name, path, here, elsewhere):
            elsewhere.update(_root(name, path, here, elsewhere))
    for name, path in paths.items():  # one of here, in a folder of which others are elsewhere
        if not _is_found(name, path, here, elsewhere):
            elsewhere[name] = str(path)
    return Origins(str(here), elsewhere, tuple(name for name in paths if _is_hidden(name)))


def _root(name: str, path: Path, here: Path, elsewhere: Mapping[str, str]) -> dict[str, str]:
    """The highest folder by which the file is found, or the file itself."""
    before = str(path)[: -len(name)]
    for key in reversed(list(_above(name))):
        found = {key: f"{before}{key}"}
        if key not in elsewhere and _is_found(name, path, here, {**elsewhere, **found}):
            return found
    return {name: str(path)}


def _is_found(name: str, path: Path, here: Path, elsewhere: Mapping[str, str]) -> bool:
    try:
        return _below(name, here, elsewhere) == path
    except PathError:
        return False


def still_there(known: Origins) -> Origins:
    """Without places whose folder has gone, which is not made again."""
    left = {name: path for name, path in known.elsewhere.items() if os.path.isdir(os.path.dirname(path))}
    return dataclasses.replace(known, elsewhere=left)


def place(name: str, root: Path, known: Origins) -> Path:
    """The path of a file of the job: where it came from, else below ``root``.

    A name that leads out is refused, and so is a hidden one that was not sent: a job has no business there.
    """
    check(name, root)
    if _is_hidden(name) and not _was_sent(name, known.hidden):
        raise PathError("it is hidden, and nothing here tells that it was sent")
    return _below(name, root, known.elsewhere)


def check(name: str, root: Path | str) -> None:
    """Refuse a name that is none, or that leads out."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or "\0" in name or os.pardir in parts:
        raise PathError(f"its name would lead out of {root}")


def notebook_name(told: object) -> str:
    """The name of a job's notebook as its document tells it; nothing for what could be another file."""
    if not isinstance(told, str) or not told.endswith(SUFFIX):
        return ""
    try:
        check(told, "")
    except PathError:
        return ""
    return told


def _below(name: str, root: Path, elsewhere: Mapping[str, str]) -> Path:
    key = next((one for one in _above(name) if one in elsewhere), "")
    start = Path(elsewhere[key]) if key else root
    path = start / name[len(key) :].lstrip("/")
    if key == name:
        return path
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(start)):
        raise PathError(f"{path.parent} is a link that leads out of {start}")
    return path


def _above(name: str) -> Iterator[str]:
    """The name itself, and the folders that it is in, the nearest first."""
    while name:
        yield name
        name = os.path.dirname(name)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _was_sent(name: str, hidden: Iterable[str]) -> bool:
    """Whether it was, or is a new notebook in a hidden folder of which files were."""
    sent = set(hidden)
    folder, last = os.path.split(name)
    is_new = last.endswith(SUFFIX) and not last.startswith(".")
    return name in sent or (is_new and any(folder in _above(os.path.dirname(one)) for one in sent))
