"""Files that jobs left behind in a workspace, and the jobs they belong to."""

from __future__ import annotations

import time
from collections.abc import Iterable

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import DEADLINE
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Home, cluster_mark
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.job_files.workspace import Reference
from openpai_tasks.storage.store import Entry

GONE, ELSEWHERE, FOREIGN = "GONE", "ELSEWHERE", "FOREIGN"
"""States of jobs that cannot be looked up: unknown to the cluster, on another cluster, of another user."""


@dataclass(frozen=True)
class JobLeftovers:
    """The files of one job in the workspace; ``source`` is the size of its archives, shared or not."""

    name: str
    state: str
    modified: int  # ms: when it ended, or when a file of it was last written
    age: float  # seconds since then
    submitted: int  # ms, by its reference
    source: int
    output: int
    files: int
    notes: int  # bytes of its references and its deadline
    other: int  # bytes of what is in its folder and not the job's
    archives: tuple[str, ...]
    url: str

    @property
    def removable(self) -> int:
        """The bytes that only this job uses."""
        return self.output + self.notes


@dataclass(frozen=True)
class Folder:
    """A folder beside those of jobs that is not known to be a job's; it is never touched."""

    name: str
    size: int
    files: int
    url: str


@dataclass(frozen=True)
class ArchiveFile:
    """An archive of sources, and the jobs that use it."""

    sha256: str
    size: int
    modified: int
    jobs: tuple[str, ...]


@dataclass(frozen=True)
class Leftovers:
    """All files of jobs in one workspace; an archive counts once, however many jobs use it."""

    url: str
    jobs: tuple[JobLeftovers, ...]
    archives: tuple[ArchiveFile, ...]
    others: tuple[Folder, ...]
    total: int


def find_leftovers(client: Backend, home: Home) -> Leftovers:
    """The files of all jobs, the largest first."""
    files = home.files
    known = {job.name: job for job in client.jobs(username=client.user)}
    below = {one.name: _below(home, one.name) for one in files.job_folders()}
    archives = [
        ArchiveFile(sha256, entry.size, entry.mtime_ms, tuple(_users(sha256, below)))
        for sha256, entry in sorted(files.archive_files().items())
    ]
    sizes = {archive.sha256: archive.size for archive in archives}
    references = {name: files.references_of(name) for name in below}
    jobs = [
        _job(client, home, references[name], known.get(name), found, sizes)
        for name, found in below.items()
        if references[name]
    ]
    jobs.sort(key=lambda job: (-job.output - job.source, job.name))
    others = [_folder(home, name, found) for name, found in below.items() if not references[name]]
    others.sort(key=lambda folder: (-folder.size, folder.name))
    total = sum(_size(found.values()) for found in below.values()) + sum(sizes.values())
    return Leftovers(home.url, tuple(jobs), tuple(archives), tuple(others), total)


def _size(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries if not entry.is_folder)


def _below(home: Home, name: str) -> dict[str, Entry]:
    """Return the files in the job's folder by relative name; a folder that has just been removed is empty."""
    try:
        return {one.name: one.entry for one in walk(home.location(home.layout.job(name)), parts=True)}
    except NotFound:
        return {}


def _users(sha256: str, below: dict[str, dict[str, Entry]]) -> list[str]:
    return sorted(name for name, found in below.items() if f"source/{sha256}.json" in found)


def state_of(client: Backend, references: Iterable[Reference], known: JobInfo | None) -> str:
    """Return the state of the job; only jobs of this user on this cluster can be looked up."""
    if any(one.cluster != cluster_mark(client.cluster) for one in references):
        return ELSEWHERE
    if any(one.user != client.user for one in references):
        return FOREIGN
    return known.state if known else GONE


def _folder(home: Home, name: str, found: dict[str, Entry]) -> Folder:
    files = sum(not entry.is_folder for entry in found.values())
    return Folder(name, _size(found.values()), files, home.location(home.layout.job(name)).url)


def _job(
    client: Backend,
    home: Home,
    references: tuple[Reference, ...],
    known: JobInfo | None,
    found: dict[str, Entry],
    sizes: dict[str, int],
) -> JobLeftovers:
    output = [entry for path, entry in found.items() if path.startswith("output/")]
    notes = [entry for path, entry in found.items() if path.startswith("source/") or path == DEADLINE]
    used = tuple(sha256 for sha256 in sizes if f"source/{sha256}.json" in found)
    times = [entry.mtime_ms for entry in found.values()]
    modified = max([*times, (known.completed if known else None) or 0])
    return JobLeftovers(
        name=references[0].job,
        state=state_of(client, references, known),
        modified=modified,
        age=round(max(0.0, time.time() - modified / 1000), 1),
        submitted=max(one.submitted for one in references),
        source=sum(sizes[sha256] for sha256 in used),
        output=_size(output),
        files=sum(not entry.is_folder for entry in output),
        notes=_size(notes),
        other=_size(found.values()) - _size(output) - _size(notes),
        archives=used,
        url=home.location(home.layout.job(references[0].job)).url,
    )
