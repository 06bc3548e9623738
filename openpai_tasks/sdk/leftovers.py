"""What jobs left behind in a workspace, and its removal: never of a job that is not over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.registry import LOCAL
from openpai_tasks.sdk.places import Home
from openpai_tasks.storage.store import Entry
from openpai_tasks.storage.walk import walk
from openpai_tasks.storage.workspace import Workspace

GONE, ELSEWHERE = "GONE", "ELSEWHERE"
"""The cluster does not know the job any more; or it was sent to another cluster, which may."""
REMOVABLE = (*sorted(FINAL), GONE)
GRACE = 3600.0
"""Seconds for which files of an unknown job are left alone: it may be on its way to the cluster."""
ALL = 50_000  # the most jobs that a server lists at once


@dataclass(frozen=True)
class JobFiles:
    """What one job has in the workspace; ``source`` is what its archives take up, shared or not."""

    name: str
    state: str
    modified: int  # ms: when it ended, or when a file of it was last written
    age: float  # seconds since then
    source: int
    output: int
    files: int
    archives: tuple[str, ...]
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
    """All that jobs keep in one workspace; an archive counts once, however many use it."""

    url: str
    jobs: tuple[JobFiles, ...]
    archives: tuple[ArchiveFile, ...]
    total: int


@dataclass(frozen=True)
class Cleaning:
    """What is to be removed: folders of jobs, and the archives that nobody uses then."""

    jobs: tuple[JobFiles, ...]
    archives: tuple[ArchiveFile, ...]
    size: int


@dataclass(frozen=True)
class Kept:
    """Something that was to go and is still there."""

    name: str
    reason: str


@dataclass(frozen=True)
class Cleaned:
    """What became of it."""

    jobs: tuple[str, ...]
    archives: tuple[str, ...]
    size: int
    kept: tuple[Kept, ...] = ()
    preview: bool = False


def usage(client: Client, home: Home) -> Leftovers:
    """What there is, the largest first."""
    files = home.files
    known = {job.name: job for job in client.jobs(username=client.user, limit=ALL)}
    below = {one.name: _below(home, one.name) for one in files.job_folders()}
    archives = _archives(files, below)
    sizes = {archive.sha256: archive.size for archive in archives}
    jobs = [_job(client, home, name, known.get(name), found, sizes) for name, found in below.items()]
    jobs.sort(key=lambda job: (-job.output - job.source, job.name))
    total = sum(job.output for job in jobs) + sum(sizes.values())
    return Leftovers(home.url, tuple(jobs), tuple(archives), total)


def _below(home: Home, name: str) -> dict[str, Entry]:
    """What is in the job's folder, by its name from there; one that has just gone has nothing."""
    try:
        return {one.name: one.entry for one in walk(home.location(home.layout.job(name)))}
    except NotFound:
        return {}


def _archives(files: Workspace, below: dict[str, dict[str, Entry]]) -> list[ArchiveFile]:
    return [
        ArchiveFile(sha256, entry.size, entry.mtime_ms, tuple(_users(sha256, below)))
        for sha256, entry in sorted(files.archive_files().items())
    ]


def _users(sha256: str, below: dict[str, dict[str, Entry]]) -> list[str]:
    return sorted(name for name, found in below.items() if f"source/{sha256}.json" in found)


def _job(
    client: Client,
    home: Home,
    name: str,
    known: JobInfo | None,
    found: dict[str, Entry],
    sizes: dict[str, int],
) -> JobFiles:
    output = [entry for path, entry in found.items() if path.startswith("output/")]
    used = tuple(sha256 for sha256 in sizes if f"source/{sha256}.json" in found)
    times = [entry.mtime_ms for entry in found.values()]
    modified = max([*times, (known.completed if known else None) or 0])
    return JobFiles(
        name=name,
        state=known.state if known else _unknown(client, home, name),
        modified=modified,
        age=round(max(0.0, time.time() - modified / 1000), 1),
        source=sum(sizes[sha256] for sha256 in used),
        output=sum(entry.size for entry in output),
        files=sum(not entry.is_folder for entry in output),
        archives=used,
        url=home.location(home.layout.job(name)).url,
    )


def _unknown(client: Client, home: Home, name: str) -> str:
    cluster = client.cluster
    here = cluster.alias if cluster.alias == LOCAL else cluster.uri
    return GONE if home.files.cluster_of(name) in ("", here) else ELSEWHERE


def plan(found: Leftovers, older_than: float, states: Iterable[str] = ()) -> Cleaning:
    """What can go: files of jobs that are over for so long, and archives that no other job uses."""
    wanted = _states(states)
    jobs = tuple(job for job in found.jobs if job.state in wanted and _is_old(job, older_than))
    names = {job.name for job in jobs}
    archives = tuple(one for one in found.archives if set(one.jobs) <= names and _may_go(one, older_than))
    size = sum(job.output for job in jobs) + sum(one.size for one in archives)
    return Cleaning(jobs, archives, size)


def _is_old(job: JobFiles, older_than: float) -> bool:
    return job.age >= (max(older_than, GRACE) if job.state == GONE else older_than)


def _may_go(archive: ArchiveFile, older_than: float) -> bool:
    """One that nobody uses is as old as it is; one whose jobs all go, goes with them."""
    return bool(archive.jobs) or time.time() - archive.modified / 1000 >= older_than


def _states(given: Iterable[str]) -> set[str]:
    names = {name.strip().upper() for text in given for name in text.split(",") if name.strip()}
    for name in sorted(names - set(REMOVABLE)):
        known = ", ".join(REMOVABLE)
        raise ConfigError(f"--state {name}: only files of jobs that are over can be removed ({known})")
    return names or set(REMOVABLE)


def clean(client: Client, home: Home, cleaning: Cleaning, preview: bool = False) -> Cleaned:
    """Remove it, after another look at each job: one that was started again keeps its files."""
    files = home.files

    def remove_job(job: JobFiles) -> str:
        if reason := _reason_to_stay(client, job):
            return reason
        files.store.remove(files.job(job.name), recursive=True)
        return ""

    kept: dict[str, str] = {}
    if not preview:
        kept |= {job.name: why for job in cleaning.jobs if (why := _tried(remove_job, job))}
        kept |= _discarded(files, [one.sha256 for one in cleaning.archives])
    jobs = [job for job in cleaning.jobs if job.name not in kept]
    archives = [one for one in cleaning.archives if one.sha256 not in kept]
    size = sum(job.output for job in jobs) + sum(one.size for one in archives)
    names, sums = tuple(job.name for job in jobs), tuple(one.sha256 for one in archives)
    return Cleaned(names, sums, size, tuple(Kept(*one) for one in kept.items()), preview)


def _tried(remove: Callable[[JobFiles], str], job: JobFiles) -> str:
    """Why its files are still there; nothing when they are gone."""
    try:
        return remove(job)
    except PaiError as err:
        return str(err)


def _discarded(files: Workspace, sums: list[str]) -> dict[str, str]:
    """Why archives are still there."""
    try:
        gone = files.discard(sums)
    except PaiError as err:
        return dict.fromkeys(sums, str(err))
    return {sha256: "a job uses it" for sha256 in sums if sha256 not in gone}


def _reason_to_stay(client: Client, job: JobFiles) -> str:
    try:
        now = client.job(job_key(client.user, job.name))
    except NotFound:
        return ""
    return "" if now.final else f"it is {now.state} now"


def check(cleaned: Cleaned) -> None:
    """The error that ends a command that could not remove all."""
    if cleaned.kept:
        told = ", ".join(f"{one.name} ({one.reason})" for one in cleaned.kept[:3])
        raise ConfigError(f"{len(cleaned.kept)} could not be removed: {told}")
