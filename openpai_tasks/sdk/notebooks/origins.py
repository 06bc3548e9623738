"""Where the files of a Jupyter server came from, and where pulled files may be written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from openpai_tasks.storage.job_files.sources import SourceFile

SUFFIX = ".ipynb"


@dataclass(frozen=True)
class Origins:
    """Local paths of files, by their names in the job."""

    folder: str = ""
    """The folder of the rest; empty if unknown."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Paths of files and folders outside of it, or behind a link that leads out of it."""
    sent: Mapping[str, str] = field(default_factory=dict)
    """Digests of the files that were sent, or empty texts: of other files, only notebooks are written."""


class Target(NamedTuple):
    """Where a job's file is written; no link may lead it out of the root."""

    path: Path
    root: Path


def find_origins(sources: Iterable[SourceFile], here: Path) -> Origins:
    """Return where the files to send come from."""
    paths = {source.name: Path(os.path.normpath(here / source.path)) for source in sources}
    elsewhere: dict[str, str] = {}
    for name, path in paths.items():
        if not _resolves_to(name, path, here, elsewhere):
            elsewhere.update(_root(name, path, here, elsewhere))
    for name, path in paths.items():  # local files in a folder whose other files are elsewhere
        if not _resolves_to(name, path, here, elsewhere):
            elsewhere[name] = str(path)
    from openpai_tasks.sdk.payloads.notebook_runner import digest_of  # these load much
    from openpai_tasks.sdk.payloads.notebook_server import LARGEST

    # a job does not send larger files back
    small = {name: path.stat().st_size <= LARGEST for name, path in paths.items()}
    digests = {name: digest_of(path) if small[name] else "" for name, path in paths.items()}
    return Origins(str(here), elsewhere, digests)


def _root(name: str, path: Path, here: Path, elsewhere: Mapping[str, str]) -> dict[str, str]:
    """Map the highest folder that resolves to the file's path, or the file itself."""
    before = str(path)[: -len(name)]
    for key in reversed(list(_with_parents(name))):
        found = {key: f"{before}{key}"}
        if key not in elsewhere and _resolves_to(name, path, here, {**elsewhere, **found}):
            return found
    return {name: str(path)}


def _resolves_to(name: str, path: Path, here: Path, elsewhere: Mapping[str, str]) -> bool:
    try:
        return _resolve(name, here, elsewhere).path == path
    except PathError:
        return False


def without_missing(known: Origins) -> Origins:
    """Drop paths whose folder is gone; it is not created again."""
    left = {name: path for name, path in known.elsewhere.items() if os.path.isdir(os.path.dirname(path))}
    return dataclasses.replace(known, elsewhere=left)


def find_target(name: str, root: Path, known: Origins) -> Target:
    """Return where to write a job's file: where it came from, else below ``root``.

    Refuse names that leave the folder, and hidden files that were not sent: a job must not write there.
    """
    check_name(name, root)
    is_hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
    if is_hidden and not _was_sent(name, known.sent):
        raise PathError("it is hidden and was not sent from here")
    return _resolve(name, root, known.elsewhere)


def check_name(name: str, root: Path | str) -> None:
    """Refuse an invalid name and one that leaves ``root``."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or "\0" in name or os.pardir in parts:
        raise PathError(f"its name leads out of {root}")


def safe_notebook_name(value: object) -> str:
    """Return the notebook name from a job's document; empty unless it is a safe ``.ipynb`` name."""
    if not isinstance(value, str) or not value.endswith(SUFFIX):
        return ""
    try:
        check_name(value, "")
    except PathError:
        return ""
    return value


def _resolve(name: str, root: Path, elsewhere: Mapping[str, str]) -> Target:
    key = next((one for one in _with_parents(name) if one in elsewhere), "")
    start = Path(elsewhere[key]) if key else root
    path = start / name[len(key) :].lstrip("/")
    if key == name:
        return Target(path, path.parent)
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(start)):
        raise PathError(f"{path.parent} is a link that leads out of {start}")
    return Target(path, start)


def _with_parents(name: str) -> Iterator[str]:
    """Yield the name, then its parent folders, nearest first."""
    while name:
        yield name
        name = os.path.dirname(name)


def _was_sent(name: str, sent: Collection[str]) -> bool:
    """Return whether the file was sent, or is a new notebook in a hidden folder from which files were."""
    folder, last = os.path.split(name)
    is_new = last.endswith(SUFFIX) and not last.startswith(".")
    return name in sent or (is_new and any(folder in _with_parents(os.path.dirname(one)) for one in sent))
