"""List and download the files in a job's output folder, and find its checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.scripts import OUTPUT as VARIABLE
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.jobs import documents
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying.copy import Copied
from openpai_tasks.storage.copying.plan import CopyItem
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, join
from openpai_tasks.text.hints import command

RUNTIME_FOLDER = ".pai"  # as in runtime.py, which travels alone
MANIFEST = re.compile(r"(\d{8,})\.json")
"""The files without which a checkpoint does not count, as in runtime.py."""


@dataclass(frozen=True)
class Output:
    """A file, by its name below the output folder."""

    name: str
    size: int
    modified: int  # ms


@dataclass(frozen=True)
class Outputs:
    """The files a job has written so far, and their folder."""

    job: str
    folder: Location
    files: dict[str, Entry]  # by name below the folder
    left_out: tuple[str, ...] = ()
    """Links that lead out of the folder or nowhere, and special files."""

    @property
    def without_runtime_files(self) -> Outputs:
        """Without the files of the runtime: checkpoints, metrics, log records and results of calls."""
        own = f"{RUNTIME_FOLDER}/"
        kept = {name: entry for name, entry in self.files.items() if not name.startswith(own)}
        return dataclasses.replace(self, files=kept)

    @property
    def rows(self) -> list[Output]:
        return [Output(name, entry.size, entry.mtime_ms) for name, entry in self.files.items()]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())

    def read(self, name: str, most: int) -> bytes:
        """Return a file's content; raise if it has more bytes, which would not fit into memory."""
        content = bytearray()
        for piece in self.folder.store.read(self.files[name].path):
            content += piece
            if len(content) > most:
                raise PathError(f"{name} of job {self.job!r} is larger than {most >> 20} MB")
        return bytes(content)


def find_outputs(client: Backend, name: str | JobInfo, mounts: Mounts = ()) -> Outputs:
    """Find the job's outputs, at the place that its stamp names."""
    job, folder = output_folder(client, name, mounts)
    if folder is None:
        who = f"only jobs submitted by `{command('job.sub')}` on a cluster with a storage have one"
        raise ConfigError(f"job {job.name!r} has no output folder: {who}")
    return list_outputs(job.name, folder)


OutputPlace = tuple[JobInfo, Location | None]
"""A job and its output folder; None if it has none."""


def output_folder(client: Backend, name: str | JobInfo, mounts: Mounts = ()) -> OutputPlace:
    """Return the job, if only its name is known, and its output folder."""
    job, document = documents.job_document(client, name)
    return job, output_folder_of(client, job, document, mounts)


def output_folder_of(
    client: Backend, job: JobInfo, document: Mapping[str, Any], mounts: Mounts = ()
) -> Location | None:
    """Return the output folder of a job whose document is known."""
    stamp = read_stamp(document)
    if not stamp.storage:
        return None
    home = job_folders.at(client, stamp.storage, stamp.workspace, job.user, mounts)
    return home.location(home.layout.output(job.name))


def list_outputs(job: str, folder: Location) -> Outputs:
    """List all files below the folder; a link counts as its target if that is in the folder too."""
    there = folder.store.stat(folder.path)
    if there is None:
        return Outputs(job, folder, {})
    if there.is_link or not there.is_folder:
        raise PathError(f"{folder.url} is a link or a file instead of the output folder")
    root = folder.store.address(folder.path)
    files: dict[str, Entry] = {}
    left_out: list[str] = []
    for found in walk(folder):
        entry = found.entry
        if entry.is_folder and not entry.is_link:
            continue
        if entry.is_link and not entry.is_folder:
            entry = _follow_inside(folder, entry, root) or entry
        if entry.is_link or entry.is_special:
            left_out.append(found.name)
        else:
            files[found.name] = entry
    return Outputs(job, folder, files, tuple(left_out))


def _follow_inside(folder: Location, link: Entry, root: str) -> Entry | None:
    """Return the target of a link, if it is a file in the folder."""
    leads = folder.store.address(link.path)
    if not leads.startswith(root + "/"):
        return None
    with contextlib.suppress(PaiError):
        found = folder.store.stat(join(folder.path, leads[len(root) + 1 :]))
        return found if found and not (found.is_folder or found.is_link) else None
    return None


def download_outputs(outputs: Outputs, target: Path, watch: Watch | None = None) -> Copied:
    """Copy all files to a local folder, skipping those already there; refuse links that lead out of it."""
    if not outputs.files:
        raise NotFound(f"job {outputs.job!r} has not written anything to ${VARIABLE}", 404)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise PathError(f"cannot create folder {target}: {err.strerror}") from err
    root = target.resolve()
    for folder in {(root / name).parent for name in outputs.files}:
        if not folder.resolve().is_relative_to(root):  # through an existing link
            raise PathError(f"{folder} is a link that leads out of {root}; remove it")
    here, store = LocalStore(str(root)), outputs.folder.store
    items = [
        CopyItem(Location(store, entry.path, name), entry, Location(here, f"/{name}", str(root / name)))
        for name, entry in outputs.files.items()
    ]
    return copying.copy(items, watch=watch)


@dataclass(frozen=True)
class SavedCheckpoint:
    """The newest checkpoint that a job has saved with ``runtime.checkpoint(series)``."""

    job: str
    series: str
    number: int
    saved: int  # ms
    folder: str

    def __str__(self) -> str:
        return f"checkpoint {self.number} ({self.series}) of job {self.job}"


def newest_checkpoint(home: Home, jobs: Iterable[str]) -> SavedCheckpoint | None:
    """Return the last checkpoint of the first job that has one, as a program would find it."""
    for job in jobs:
        folder = join(home.layout.output(job), f"{RUNTIME_FOLDER}/checkpoints")
        found = [
            SavedCheckpoint(job, series.name, number, saved, home.location(series.path).url)
            for series in _entries(home, folder)
            if series.is_folder
            for number, saved in _complete(_entries(home, series.path))
        ]
        if found:
            return max(found, key=lambda one: (one.saved, one.number))
    return None


def _complete(entries: list[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the numbers and times of manifests whose data is there."""
    names = [entry.name for entry in entries]
    for entry in entries:
        match = MANIFEST.fullmatch(entry.name)
        if match and any(name.startswith(f"{match[1]}-") for name in names):
            yield int(match[1]), entry.mtime_ms


def _entries(home: Home, folder: str) -> list[Entry]:
    try:
        return list(home.store.list(folder))
    except NotFound:
        return []
