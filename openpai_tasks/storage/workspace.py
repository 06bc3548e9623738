"""The folder of a storage in which a user's jobs keep their files.

``sources/<sha256>.tar.gz`` are the archives of sources, each once however many jobs use it;
``jobs/<job>/source/<sha256>.json`` says which of them a job uses; ``jobs/<job>/output`` is what it wrote.
A job says what it uses before the archive is sent, and an archive goes only while nobody says so.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from openpai_tasks.errors import ConfigError, Conflict, NotFound, PaiError, PathError
from openpai_tasks.protocol.homes import ARCHIVES, JOBS, archive_name
from openpai_tasks.protocol.template import OPEN
from openpai_tasks.storage.archive import Archive, received
from openpai_tasks.storage.store import Entry, Store, fingerprint, join
from openpai_tasks.storage.transfer import put

ARCHIVE = re.compile(r"([0-9a-f]{64})\.tar\.gz")
REFERENCE = re.compile(r"([0-9a-f]{64})\.json")
ASIDE = ".removing-"
"""What the name of an archive begins with while it is on its way out."""
READ_BACK = 64 << 20
"""An archive of so many bytes is compared with what is there even if the store has to read it for that."""


@dataclass(frozen=True)
class Reference:
    """What a job says of the archive it uses."""

    job: str
    user: str
    cluster: str  # where it runs
    archive: str
    size: int
    files: int
    submitted: int  # ms


@dataclass(frozen=True)
class Layout:
    """What is where in a workspace."""

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
        return join(self.job(name), "source")

    def output(self, name: str) -> str:
        return join(self.job(name), "output")


@dataclass(frozen=True)
class Workspace(Layout):
    """A workspace on its store."""

    store: Store

    # What a job is sent with

    def refer(self, reference: Reference, sha256: str) -> None:
        """Note that the job uses the archive; what another cluster's job of that name uses stays."""
        folder = self.source(reference.job)
        for old in self._references_in(folder):
            told = self._reference(old)
            if told is not None and told.cluster != reference.cluster:
                where = f"cluster {told.cluster} has a job {told.job!r} with its sources in {folder}"
                raise Conflict(f"{where}; choose another job name", 409)
        text = json.dumps(asdict(reference), indent=2).encode() + b"\n"
        self.store.make_folder(folder)
        put(self.store, join(folder, f"{sha256}.json"), [text], len(text))

    def send(self, archive: Archive) -> bool:
        """Put the archive where it belongs, unless it is there; whether it was sent."""
        path = self.archive(archive.sha256)
        if self._has(archive, self.store.stat(path)):
            return False
        self.store.make_folder(self.archives)
        put(self.store, path, archive.pieces(), archive.size)
        return True

    def withdraw(self, job: str, archive: Archive, was_sent: bool) -> None:
        """Take back what was put here for a job that the cluster refused, as far as that goes."""
        with contextlib.suppress(PaiError):
            self.store.remove(join(self.source(job), f"{archive.sha256}.json"))
            self.store.remove(self.source(job))
            self.store.remove(self.job(job))  # unless there is output in it
        if was_sent:
            with contextlib.suppress(PaiError):
                self.discard([archive.sha256])

    def read(self, sha256: str) -> Archive:
        """The archive of that name."""
        return received(self.store.read(self.archive(sha256)), sha256)

    # What is left

    def references(self) -> dict[str, set[str]]:
        """Which jobs use each archive."""
        found: dict[str, set[str]] = {}
        for job in self.job_folders():
            for entry in self._references_in(join(job.path, "source")):
                found.setdefault(entry.name.removesuffix(".json"), set()).add(job.name)
        return found

    def job_folders(self) -> list[Entry]:
        return [entry for entry in self._listed(self.jobs) if entry.is_folder and not entry.is_link]

    def archive_files(self) -> dict[str, Entry]:
        """The archives by their SHA-256."""
        named = ((ARCHIVE.fullmatch(entry.name), entry) for entry in self._listed(self.archives))
        return {match[1]: entry for match, entry in named if match and not entry.is_folder}

    def cluster_of(self, job: str) -> str:
        """Which cluster the job was sent to, where that is known."""
        told = map(self._reference, self._references_in(self.source(job)))
        return next((reference.cluster for reference in told if reference), "")

    def discard(self, sums: Iterable[str] = ()) -> set[str]:
        """Remove these archives, but for those that a job uses; which are gone.

        Each is put aside before the one last look: a job that names it from then on sends it again, and for
        one that had named it before it is put back; so is what a call that was killed had put aside.
        """
        wanted, gone = set(sums), set()
        for sha256 in wanted:
            with contextlib.suppress(NotFound):
                self.store.rename(self.archive(sha256), self._aside(sha256))
        away = [entry for entry in self._listed(self.archives) if entry.name.startswith(ASIDE)]
        used = self.references() if away else {}
        for entry in away:
            sha256 = entry.name.removeprefix(ASIDE).removesuffix(".tar.gz")
            with contextlib.suppress(NotFound):  # another call is at it too
                if sha256 in used:
                    self.store.rename(entry.path, self.archive(sha256))
                else:
                    self.store.remove(entry.path)
                    gone.add(sha256)
        return gone & wanted

    def _aside(self, sha256: str) -> str:
        return join(self.archives, ASIDE + archive_name(sha256))

    def _has(self, archive: Archive, there: Entry | None) -> bool:
        """Whether what is there is the archive; what cannot be compared must have its length at least."""
        if there is None or there.size != archive.size:
            return False
        if not self.store.knows_digests and archive.size > READ_BACK:
            return True
        told = self.store.digest(there.path)
        hasher = self.store.hasher(told.kind) if told else None
        return hasher is None or fingerprint(hasher, archive.pieces()) == told

    def _references_in(self, folder: str) -> list[Entry]:
        return [entry for entry in self._listed(folder) if REFERENCE.fullmatch(entry.name)]

    def _reference(self, entry: Entry) -> Reference | None:
        try:
            return Reference(**json.loads(b"".join(self.store.read(entry.path))))
        except (ValueError, TypeError, NotFound):
            return None

    def _listed(self, folder: str) -> Iterator[Entry]:
        try:
            yield from self.store.list(folder)
        except NotFound:
            return


def clean_path(workspace: str) -> str:
    """The workspace as an absolute path, if it can stand in a job's document."""
    names = [name for name in workspace.split("/") if name]
    if ".." in names or "." in names or "\0" in workspace:
        raise PathError(f"a workspace cannot hold '..' or '.': {workspace!r}")
    if OPEN in workspace:
        raise PathError(f"a workspace cannot hold {OPEN!r}: {workspace!r}")
    return "/" + "/".join(names)


def relative(path: str) -> str:
    return path.strip("/")


def _plain(job: str) -> str:
    if job in ("", ".", "..") or "/" in job or "\0" in job:
        raise ConfigError(f"{job!r} cannot be the name of a job: letters, digits, _ and - only")
    return job
