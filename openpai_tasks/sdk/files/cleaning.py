"""Remove files that ended jobs and copies left behind, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.files import operations
from openpai_tasks.sdk.files.job_folders import Home
from openpai_tasks.sdk.files.leftovers import GONE, ArchiveFile, JobLeftovers, Leftovers, state_of
from openpai_tasks.storage.copying.claims import is_running
from openpai_tasks.storage.copying.resume import is_resumed
from openpai_tasks.storage.copying.transfer import idle_time
from openpai_tasks.storage.copying.walk import stream
from openpai_tasks.storage.job_files.workspace import Workspace
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import Entry, join

REMOVABLE = (*sorted(FINAL), GONE)
GRACE = 3600.0
"""Seconds for which files of an unknown job are left alone: it may be on its way to the cluster."""


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
    """What can be removed: files of jobs that ended long enough ago, and archives that no other job uses."""
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
    """Remove it, after another look at each job: a job that was started again keeps its files."""
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
