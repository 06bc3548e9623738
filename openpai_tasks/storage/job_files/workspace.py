"""The folder of a storage that keeps the files of a user's jobs.

``sources/<sha256>.tar.gz`` are the archives of sources, each once however many jobs use it;
``jobs/<job>/source/<sha256>.json`` records which archive a job uses and who owns the job (``none.json`` for a
job without sources); ``jobs/<job>/output`` has its outputs. A folder without a reference belongs to no job.
A job records its archive before uploading it, and an archive is removed only while no job records it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError, Conflict, Denied, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import ARCHIVES, DEADLINE, JOBS, archive_name
from openpai_tasks.protocol.document.template import OPEN
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.store import Entry, Sha256, Store, fingerprint, is_name, join

if TYPE_CHECKING:
    from openpai_tasks.storage.job_files.archive import Archive

ARCHIVE = re.compile(r"([0-9a-f]{64})\.tar\.gz")
REFERENCE = re.compile(r"([0-9a-f]{64}|none)\.json")
SOURCE, OUTPUT = "source", "output"
OWN_FILES = frozenset({SOURCE, OUTPUT, DEADLINE})
"""What a job has in its folder; anything else belongs to somebody else."""
NO_ARCHIVE = "none"
"""Name of the reference of a job without sources."""
ASIDE = ".removing-"
"""Prefix of the name of an archive that is being removed."""
LONGEST = 64 << 10  # bytes of a reference; a longer file is not a reference


@dataclass(frozen=True)
class Reference:
    """A job, its owner, and the archive that it uses (empty if none)."""

    job: str
    user: str
    cluster: str  # where the job runs
    archive: str
    size: int
    files: int
    submitted: int  # ms

    @property
    def is_sound(self) -> bool:
        texts, numbers = (
            (self.job, self.user, self.cluster, self.archive),
            (self.size, self.files, self.submitted),
        )
        return all(isinstance(one, str) for one in texts) and all(isinstance(one, int) for one in numbers)


@dataclass(frozen=True)
class WorkspaceLayout:
    """The paths in a workspace."""

    path: str

    @property
    def archives(self) -> str:
        return join(self.path, ARCHIVES)

    @property
    def jobs(self) -> str:
        return join(self.path, JOBS)

    def archive(self, sha256: str) -> str:
        return join(self.archives, archive_name(sha256))

    def job(self, name: str) -> str:
        return join(self.jobs, _plain(name))

    def source(self, name: str) -> str:
        return join(self.job(name), SOURCE)

    def output(self, name: str) -> str:
        return join(self.job(name), OUTPUT)

    def deadline(self, name: str) -> str:
        return join(self.job(name), DEADLINE)


@dataclass(frozen=True)
class Workspace(WorkspaceLayout):
    """A workspace on its store."""

    store: Store

    # Submission

    def refer(self, reference: Reference, sha256: str = NO_ARCHIVE) -> None:
        """Record the job's owner and archive; raise if the folder belongs to another job."""
        folder = self.source(reference.job)
        if there := {entry.name for entry in self._list(self.job(reference.job))}:
            self._check_owner(reference, there)
        text = json.dumps(asdict(reference), indent=2).encode() + b"\n"
        self.store.make_folder(folder)
        put(self.store, join(folder, f"{sha256}.json"), lambda: [text], len(text))

    def _check_owner(self, reference: Reference, there: set[str]) -> None:
        known = self.references_of(reference.job)
        for other in known:
            if (other.cluster, other.user) != (reference.cluster, reference.user):
                whose = f"cluster {other.cluster} has a job {other.job!r} of {other.user!r} with its files in"
                raise Conflict(f"{whose} {self.job(reference.job)}; choose another job name", 409)
        if not known and OUTPUT in there and there - OWN_FILES:  # a package of PaddleCloud with its output
            what = f"{self.job(reference.job)} already contains output that none of your jobs wrote"
            raise Conflict(f"{what}; choose another job name", 409)

    def send(self, archive: Archive) -> bool:
        """Upload the archive unless it exists; return whether it was uploaded."""
        path = self.archive(archive.sha256)
        if self._has(archive, self.store.stat(path)):
            return False
        self.store.make_folder(self.archives)
        put(self.store, path, archive.pieces, archive.size)
        return True

    def withdraw(self, job: str, archive: Archive | None, was_sent: bool) -> None:
        """Remove the files that were uploaded for a job that the cluster refused, as far as possible."""
        with contextlib.suppress(PaiError):
            self.store.remove(join(self.source(job), f"{archive.sha256 if archive else NO_ARCHIVE}.json"))
            self.store.remove(self.source(job))
            self.store.remove(self.job(job))  # fails if there is output in it
        if archive and was_sent:
            with contextlib.suppress(PaiError):
                self.discard([archive.sha256])

    def read(self, sha256: str) -> Archive:
        """Read the archive with this SHA-256."""
        from openpai_tasks.storage.job_files.archive import read_archive

        return read_archive(self.store.read(self.archive(sha256)), sha256)

    # Listing and removal

    def references(self) -> dict[str, set[str]]:
        """Return the jobs that use each archive."""
        found: dict[str, set[str]] = {}
        for job in self.job_folders():
            for entry in self._references_in(join(job.path, SOURCE)):
                found.setdefault(entry.name.removesuffix(".json"), set()).add(job.name)
        found.pop(NO_ARCHIVE, None)
        return found

    def job_folders(self) -> list[Entry]:
        return [entry for entry in self._list(self.jobs) if entry.is_folder and not entry.is_link]

    def archive_files(self) -> dict[str, Entry]:
        """Return the archives by SHA-256."""
        named = ((ARCHIVE.fullmatch(entry.name), entry) for entry in self._list(self.archives))
        return {match[1]: entry for match, entry in named if match and not entry.is_folder}

    def references_of(self, job: str) -> tuple[Reference, ...]:
        """Return the references recorded when the job was submitted; empty if the folder is not a job's."""
        found = map(self._reference, self._references_in(self.source(job)))
        return tuple(one for one in found if one is not None and one.job == job)

    def remove_job(self, name: str) -> None:
        """Remove the job's files, its references last; keep other files in its folder."""
        for path in (self.output(name), self.deadline(name), self.source(name)):
            with contextlib.suppress(NotFound):
                self.store.remove(path, recursive=True)
        if next(self._list(self.job(name)), None) is None:
            with contextlib.suppress(NotFound):
                self.store.remove(self.job(name))

    def discard(self, sums: Iterable[str] = ()) -> set[str]:
        """Remove these archives unless a job uses them; return the removed ones.

        Each archive is renamed before references are read for the last time: a job that refers to it later
        uploads it again, and if a job referred to it before, it is renamed back. So are archives that a
        killed call had renamed.
        """
        wanted, gone = set(sums), set()
        for sha256 in wanted:
            with contextlib.suppress(NotFound):
                self.store.rename(self.archive(sha256), self._aside(sha256))
        away = [entry for entry in self._list(self.archives) if entry.name.startswith(ASIDE)]
        used = self.references() if away else {}
        for entry in away:
            sha256 = entry.name.removeprefix(ASIDE).removesuffix(".tar.gz")
            with contextlib.suppress(NotFound):  # another call may handle it, too
                if sha256 in used:
                    self.store.rename(entry.path, self.archive(sha256))
                else:
                    self.store.remove(entry.path)
                    gone.add(sha256)
        return gone & wanted

    def _aside(self, sha256: str) -> str:
        return join(self.archives, ASIDE + archive_name(sha256))

    def _has(self, archive: Archive, there: Entry | None) -> bool:
        """Whether the stored file is the archive, by the server's digest or else by reading it."""
        if there is None or there.size != archive.size:
            return False
        digest = self.store.digest(there.path) if self.store.knows_digests else None
        hasher = self.store.hasher(digest.kind) if digest else None
        if hasher is not None:
            return fingerprint(hasher, archive.pieces()) == digest
        try:
            return fingerprint(Sha256(), self.store.read(there.path)).value == archive.sha256
        except NotFound:  # it was removed in the meantime
            return False

    def _references_in(self, folder: str) -> list[Entry]:
        return [entry for entry in self._list(folder) if REFERENCE.fullmatch(entry.name)]

    def _reference(self, entry: Entry) -> Reference | None:
        try:
            reference = Reference(**json.loads(b"".join(self.store.read(entry.path, 0, LONGEST))))
        except (ValueError, TypeError, RecursionError, NotFound, Denied):
            return None
        return reference if reference.is_sound else None

    def _list(self, folder: str) -> Iterator[Entry]:
        try:
            yield from self.store.list(folder)
        except NotFound:
            return


def clean_path(workspace: str) -> str:
    """Return the workspace as an absolute path that a job's document can contain."""
    names = [name for name in workspace.split("/") if name]
    if ".." in names or "." in names or "\0" in workspace:
        raise PathError(f"a workspace cannot contain '..' or '.': {workspace!r}")
    if OPEN in workspace:
        raise PathError(f"a workspace cannot contain {OPEN!r}: {workspace!r}")
    return "/" + "/".join(names)


def relative(path: str) -> str:
    return path.strip("/")


def _plain(job: str) -> str:
    if not is_name(job):
        raise ConfigError(f"{job!r} cannot be the name of a job: letters, digits, _ and - only")
    return job
