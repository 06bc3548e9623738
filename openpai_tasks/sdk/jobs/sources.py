"""The files that a job was submitted with: listed, written to a folder, and compared with another job's."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PathError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk import git
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.git import Revision
from openpai_tasks.sdk.jobs import documents
from openpai_tasks.sdk.jobs.documents import Difference
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.storage.job_files.archive import Archive, hash_file, iter_own_files
from openpai_tasks.storage.job_files.workspace import ARCHIVE
from openpai_tasks.storage.store import PIECE, is_name
from openpai_tasks.text.hints import command

LARGEST, MOST = 1 << 20, 64 << 20
"""Bytes of a file, and of all files of a job, whose differences are shown line by line."""
MOST_LINES = 10_000


@dataclass(frozen=True)
class Source:
    """A file that was sent with a job."""

    name: str
    size: int


@dataclass(frozen=True)
class Sources:
    """The archive of a job's sources, and the commit that they were made from."""

    job: str
    archive: Archive
    revision: Revision

    @property
    def rows(self) -> list[Source]:
        return [Source(member.name, member.size) for member in self.archive.members]

    @property
    def origin(self) -> str:
        """A line about the commit; empty if there was none."""
        changed = ", with uncommitted changes" if self.revision.dirty else ""
        return f"submitted from commit {self.revision.commit}{changed}" if self.revision.commit else ""


def find_sources(client: Backend, name: str, mounts: Mounts = ()) -> Sources:
    """Read the archive of a job's sources from the storage that its stamp names."""
    job, document = documents.job_document(client, name)
    stamp = read_stamp(document)
    named = ARCHIVE.fullmatch(stamp.source_archive.rpartition("/")[2])
    if not named:
        how = f"only jobs submitted by `{command('job.sub', '--sources', 'FILE')}` and the like have them"
        raise ConfigError(f"job {job.name!r} was sent without sources: {how}")
    try:
        home = job_folders.at(client, stamp.storage, stamp.workspace, job.user, mounts)
        there = home.location(home.layout.archive(named[1]))
        archive = home.files.read(named[1]) if there.store.stat(there.path) else None
    except Unreachable as err:
        where = f"storage {stamp.storage!r}, which this machine cannot reach"
        raise Unreachable(f"the sources of job {job.name!r} are on {where}: {err}") from err
    if archive is None:
        raise NotFound(f"the sources of job {job.name!r} are gone: {there.url} was removed", 404)
    return Sources(job.name, archive, Revision(stamp.commit, stamp.dirty))


def write_sources(sources: Sources, target: Path) -> None:
    """Write the files to a new or empty folder, all or none; a folder that has just them stays as it is."""
    try:
        folder = target.resolve()
        if folder.is_dir() and any(folder.iterdir()):
            if _hashes(folder) != sources.archive.files:
                raise PathError(f"{target} is not empty, and has other files: choose a new folder")
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
        part.mkdir()
        try:
            _unpack(sources.archive, str(part))
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as err:
        if isinstance(err, PathError):
            raise
        raise PathError(f"cannot write the sources to {target}: {err.strerror or err}") from err


def _unpack(archive: Archive, folder: str) -> None:
    """Write the files of an archive, which somebody may have crafted, into an empty folder of our own."""
    for info, file in iter_own_files(archive.content):
        if not all(map(is_name, info.name.split("/"))):
            raise PathError(f"the archive has the name {info.name!r}, which leads out of the folder; refused")
        path = os.path.join(folder, info.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = 0o777 if info.mode & 0o100 else 0o666
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            shutil.copyfileobj(file, out, PIECE)


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hash of each file in the folder, as an archive has it; links and the like have none."""
    found: dict[str, str] = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = Path(top, name)
            relative = path.relative_to(folder).as_posix()
            found[relative] = "" if path.is_symlink() or not path.is_file() else _hash(path)
    return found


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hash_file(file, bool(os.fstat(file.fileno()).st_mode & 0o100))


# Comparison


def compare_sources(left: Backend, a: str, right: Backend, b: str, mounts: Mounts = ()) -> Difference:
    """Compare the sources of two jobs line by line; binary and very large files are only named."""
    labels = (f"{left.cluster.alias}:{a}", f"{right.cluster.alias}:{b}")
    pair = [find_sources(client, name, mounts).archive for client, name in ((left, a), (right, b))]
    before, after = (one.files for one in pair)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    texts = [_texts(one, set(names)) for one in pair]
    lines = [line for name in names for line in _compare(name, labels, texts)]
    return Difference(*labels, not names, tuple(lines))


def compare_with_commit(sources: Sources, here: Path) -> Difference:
    """Compare the sources of a job with the commit that they were made from, in a folder's repository."""
    commit = sources.revision.commit
    if not commit:
        raise ConfigError(f"job {sources.job!r} was not submitted from a git commit")
    names = sorted(sources.archive.files)
    known = git.read_files(here, commit, names)
    if known is None:
        raise ConfigError(
            f"commit {commit} of job {sources.job!r} is not in this folder's repository:"
            " change to the project's folder, and fetch the commit with git"
        )
    after = _texts(sources.archive, set(names))
    before: Texts = {name: (after[name][0], text) for name, text in known.items() if name in after}
    labels = (f"commit {commit[:10]}", sources.job)
    changed = [name for name in names if before.get(name) != after[name]]
    lines = [line for name in changed for line in _compare(name, labels, (before, after))]
    return Difference(*labels, not lines, tuple(lines))


Texts = dict[str, tuple[bool, bytes | None]]
"""Whether a file is executable, and its content; None if it is too large."""


def _texts(archive: Archive, wanted: set[str]) -> Texts:
    found, left = Texts(), MOST
    for info, file in iter_own_files(archive.content):
        if info.name in wanted:
            fits = info.size <= min(LARGEST, left)
            left -= info.size if fits else 0
            found[info.name] = bool(info.mode & 0o100), file.read() if fits else None
    return found


def _compare(name: str, labels: Sequence[str], texts: Sequence[Texts]) -> Iterator[str]:
    import difflib

    ends = [
        f"{label}/{name}" if name in known else "/dev/null"
        for label, known in zip(labels, texts, strict=True)
    ]
    modes = [known[name][0] for known in texts if name in known]
    if len(set(modes)) > 1:
        yield f"{name} is {'executable' if modes[1] else 'not executable'} in {labels[1]}"
    contents = [known.get(name, (False, b""))[1] for known in texts]
    if contents[0] is not None and contents[0] == contents[1]:
        if len(modes) == 1:
            yield f"{name} (empty) is only in {labels[0] if name in texts[0] else labels[1]}"
        return
    lines = [_lines(content) for content in contents]
    if lines[0] is None or lines[1] is None:
        yield f"binary or large files {ends[0]} and {ends[1]} differ"
    else:
        for line in difflib.unified_diff(lines[0], lines[1], ends[0], ends[1], lineterm=""):
            yield from line.split("\n")


def _lines(content: bytes | None) -> list[str] | None:
    """Return the lines of a text; None if it is binary or too large."""
    if content is None or b"\0" in content:
        return None
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if lines[-1] == "":
        lines.pop()
    elif lines:
        lines[-1] += "\n\\ No newline at end of file"
    return lines if len(lines) <= MOST_LINES else None
