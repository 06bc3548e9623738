"""Remove files that jobs left behind; never those of a job that is still running, or of anything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.files.job_folders import Home
from openpai_tasks.sdk.files.leftovers import GONE, ArchiveFile, JobLeftovers, Leftovers, state_of
from openpai_tasks.storage.job_files.workspace import Workspace

REMOVABLE = (*sorted(FINAL), GONE)
GRACE = 3600.0
"""Seconds for which files of an unknown job are left alone: it may be on its way to the cluster."""


@dataclass(frozen=True)
class Cleaning:
    """What to remove: folders of jobs, and the archives that nobody uses afterwards."""

    jobs: tuple[JobLeftovers, ...]
    archives: tuple[ArchiveFile, ...]
    size: int


@dataclass(frozen=True)
class KeptFile:
    """Something that could not be removed, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Cleaned:
    """The result of a cleaning."""

    jobs: tuple[str, ...]
    archives: tuple[str, ...]
    size: int
    kept: tuple[KeptFile, ...] = ()
    preview: bool = False


def plan_cleanup(found: Leftovers, older_than: float, states: Iterable[str] = ()) -> Cleaning:
    """What can be removed: files of jobs that ended long enough ago, and archives that no other job uses."""
    wanted = _states(states)
    jobs = tuple(job for job in found.jobs if job.state in wanted and _is_old(job, older_than))
    names = {job.name for job in jobs}
    archives = tuple(one for one in found.archives if set(one.jobs) <= names and _may_go(one, older_than))
    size = sum(job.removable for job in jobs) + sum(one.size for one in archives)
    return Cleaning(jobs, archives, size)


def _is_old(job: JobLeftovers, older_than: float) -> bool:
    return job.age >= (max(older_than, GRACE) if job.state == GONE else older_than)


def _may_go(archive: ArchiveFile, older_than: float) -> bool:
    """Whether an archive can be removed: unused for long enough, or used only by jobs that are removed."""
    return bool(archive.jobs) or time.time() - archive.modified / 1000 >= older_than


def _states(given: Iterable[str]) -> set[str]:
    names = {name.strip().upper() for text in given for name in text.split(",") if name.strip()}
    for name in sorted(names - set(REMOVABLE)):
        known = ", ".join(REMOVABLE)
        raise ConfigError(f"--state {name}: only files of jobs that are over can be removed ({known})")
    return names or set(REMOVABLE)


def clean_up(client: Backend, home: Home, cleaning: Cleaning, preview: bool = False) -> Cleaned:
    """Remove it, after another look at each job: a job that was started again keeps its files."""
    files = home.files

    def remove_job(job: JobLeftovers) -> str:
        if reason := _reason_to_stay(client, files, job):
            return reason
        files.remove_job(job.name)
        return ""

    kept: dict[str, str] = {}
    if not preview:
        kept |= {job.name: why for job in cleaning.jobs if (why := _tried(remove_job, job))}
        kept |= _discarded(files, [one.sha256 for one in cleaning.archives])
    jobs = [job for job in cleaning.jobs if job.name not in kept]
    archives = [one for one in cleaning.archives if one.sha256 not in kept]
    size = sum(job.removable for job in jobs) + sum(one.size for one in archives)
    names, sums = tuple(job.name for job in jobs), tuple(one.sha256 for one in archives)
    return Cleaned(names, sums, size, tuple(KeptFile(*one) for one in kept.items()), preview)


def _tried(remove: Callable[[JobLeftovers], str], job: JobLeftovers) -> str:
    """Why the job's files are still there; empty when they are gone."""
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


def _reason_to_stay(client: Backend, files: Workspace, job: JobLeftovers) -> str:
    try:
        now = client.job(job_key(client.user, job.name))
        if not now.final:
            return f"it is {now.state} now"
    except NotFound:
        pass
    references = files.references_of(job.name)
    if not references:
        return "its owner is unknown" if files.store.stat(files.job(job.name)) else ""
    is_same = (
        max(one.submitted for one in references) == job.submitted
        and state_of(client, references, None) == GONE
    )
    return "" if is_same else "it was submitted again"


def check_cleaned(cleaned: Cleaned) -> None:
    """Raise an error unless everything was removed."""
    if cleaned.kept:
        examples = ", ".join(f"{one.name} ({one.reason})" for one in cleaned.kept[:3])
        raise PathError(f"{len(cleaned.kept)} could not be removed: {examples}")
