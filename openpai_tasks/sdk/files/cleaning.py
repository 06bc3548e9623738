"""Find files that jobs and copies left behind; remove those of ended ones, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import DEADLINE
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.files import operations
from openpai_tasks.sdk.files.job_folders import Home, cluster_mark
from openpai_tasks.storage.copying.claims import is_running
from openpai_tasks.storage.copying.resume import is_resumed
from openpai_tasks.storage.copying.transfer import idle_time
from openpai_tasks.storage.copying.walk import stream, walk
from openpai_tasks.storage.job_files.workspace import Reference, Workspace
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import Entry, join

GONE, ELSEWHERE, FOREIGN = "GONE", "ELSEWHERE", "FOREIGN"
"""States of jobs that cannot be looked up: unknown to the cluster, on another cluster, of another user."""
REMOVABLE = (*sorted(FINAL), GONE)
GRACE = 3600.0
"""Seconds for which files of an unknown job are left alone: it may be on its way to the cluster."""


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
    """Return the files of all jobs, the largest first."""
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


# Files of jobs


@dataclass(frozen=True)
class CleanupPlan:
    """What to remove: folders of jobs, and archives that no other job uses."""

    jobs: tuple[JobLeftovers, ...]
    archives: tuple[ArchiveFile, ...]
    size: int


@dataclass(frozen=True)
class KeptFile:
    """Something that could not be removed, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class CleanupResult:
    """The result of a cleaning."""

    jobs: tuple[str, ...]
    archives: tuple[str, ...]
    size: int
    kept: tuple[KeptFile, ...] = ()
    preview: bool = False


def plan_cleanup(found: Leftovers, older_than: float, states: Iterable[str] = ()) -> CleanupPlan:
    """Return what can be removed: files of jobs that ended long ago, and archives that no other job uses."""
    wanted = _states(states)
    jobs = tuple(job for job in found.jobs if job.state in wanted and _is_old(job, older_than))
    names = {job.name for job in jobs}
    unused = (one for one in found.archives if set(one.jobs) <= names)
    archives = tuple(one for one in unused if _is_removable(one, older_than))
    size = sum(job.removable for job in jobs) + sum(one.size for one in archives)
    return CleanupPlan(jobs, archives, size)


def _is_old(job: JobLeftovers, older_than: float) -> bool:
    return job.age >= (max(older_than, GRACE) if job.state == GONE else older_than)


def _is_removable(archive: ArchiveFile, older_than: float) -> bool:
    """Whether an archive can be removed: unused for long enough, or used only by jobs that are removed."""
    return bool(archive.jobs) or time.time() - archive.modified / 1000 >= older_than


def _states(given: Iterable[str]) -> set[str]:
    names = {name.strip().upper() for text in given for name in text.split(",") if name.strip()}
    for name in sorted(names - set(REMOVABLE)):
        known = ", ".join(REMOVABLE)
        raise ConfigError(f"--state {name}: only files of jobs that are over can be removed ({known})")
    return names or set(REMOVABLE)


def clean_up(client: Backend, home: Home, cleaning: CleanupPlan, preview: bool = False) -> CleanupResult:
    """Remove what is planned, after another look at each job: one that was started again keeps its files."""
    files, kept = home.files, dict[str, str]()
    if not preview:
        kept |= {job.name: why for job in cleaning.jobs if (why := _remove_job(client, files, job))}
        kept |= _remove_archives(files, [one.sha256 for one in cleaning.archives])
    jobs = [job for job in cleaning.jobs if job.name not in kept]
    archives = [one for one in cleaning.archives if one.sha256 not in kept]
    size = sum(job.removable for job in jobs) + sum(one.size for one in archives)
    names, sums = tuple(job.name for job in jobs), tuple(one.sha256 for one in archives)
    return CleanupResult(names, sums, size, tuple(KeptFile(*one) for one in kept.items()), preview)


def _remove_job(client: Backend, files: Workspace, job: JobLeftovers) -> str:
    """Remove the files of a job; return why they are kept, if they are."""
    try:
        reason = _reason_to_keep(client, files, job)
        if not reason:
            files.remove_job(job.name)
        return reason
    except PaiError as err:
        return str(err)


def _remove_archives(files: Workspace, sums: list[str]) -> dict[str, str]:
    """Remove archives; return why some are kept."""
    try:
        gone = files.discard(sums)
    except PaiError as err:
        return dict.fromkeys(sums, str(err))
    return {sha256: "a job uses it" for sha256 in sums if sha256 not in gone}


def _reason_to_keep(client: Backend, files: Workspace, job: JobLeftovers) -> str:
    try:
        now = client.job(job_key(client.user, job.name))
        if not now.final:
            return f"it is {now.state} now"
    except NotFound:
        pass
    references = files.references_of(job.name)
    if not references:
        return "its owner is unknown" if files.store.stat(files.job(job.name)) else ""
    newest = max(one.submitted for one in references)
    is_same = newest == job.submitted and state_of(client, references, None) == GONE
    return "" if is_same else "it was submitted again"


def check_cleaned(cleaned: CleanupResult) -> None:
    """Raise an error unless everything was removed."""
    if cleaned.kept:
        examples = ", ".join(f"{one.name} ({one.reason})" for one in cleaned.kept[:3])
        raise PathError(f"{len(cleaned.kept)} could not be removed: {examples}")


# Unfinished files of copies


@dataclass(frozen=True)
class PartsCleanup:
    """What was removed of the unfinished files of copies; ``kept`` may still be in use."""

    removed: tuple[str, ...]
    size: int
    kept: tuple[KeptFile, ...] = ()
    failed: tuple[KeptFile, ...] = ()
    preview: bool = False


def clean_parts(
    places: Sequence[Location], older_than: float | None = None, preview: bool = False
) -> PartsCleanup:
    """Remove what interrupted copies left below the folders.

    A part whose copy this machine knows is removed if that copy has ended. Any other one is removed if it has
    not changed for ``older_than`` seconds, by default for as long as copies wait before they remove it.
    """
    removed, size, kept, failed = list[str](), 0, list[KeptFile](), list[KeptFile]()
    for place in places:
        for url, part in _parts(place):
            if reason := _reason_in_use(part, older_than):
                kept.append(KeptFile(url, reason))
                continue
            try:
                if not preview:
                    place.store.remove(part.path)
            except PaiError as err:
                failed.append(KeptFile(url, str(err)))
            else:
                removed.append(url)
                size += part.size
    return PartsCleanup(tuple(removed), size, tuple(kept), tuple(failed), preview)


def check_parts(cleaned: PartsCleanup) -> None:
    """Raise an error if a leftover could not be removed."""
    if cleaned.failed:
        first = cleaned.failed[0]
        raise PathError(f"{len(cleaned.failed)} could not be removed, such as {first.name}: {first.reason}")


def _parts(place: Location) -> Iterator[tuple[str, Entry]]:
    operations.require_folder(place)
    with naming(place):
        for found in stream(place, parts=True):
            if is_part(found.entry):
                yield join(place.url, found.name), found.entry


def _reason_in_use(part: Entry, older_than: float | None) -> str:
    """Return why the part may be in use; empty if it is a leftover."""
    is_claimed, is_noted = is_running(part.name), is_resumed(part.name)
    if is_claimed or is_noted:
        return "a copy is writing it"
    if is_claimed is False or is_noted is False:
        return ""
    idle, limit = idle_time(part)
    if idle >= (limit if older_than is None else older_than):
        return ""
    return f"a copy on another machine may be writing it: it changed {idle / 3600:.1f} h ago"
