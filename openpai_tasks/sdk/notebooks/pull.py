"""What was changed in a Jupyter server, brought back; nothing that was changed here is written over.

The job says of each file what it was when it was sent and what it has been since. A file here that is one of
these has no changes of its own, and is replaced; beside any other one the job's is written as ``*.remote.*``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, NotFound, PaiError, PathError
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, outputs
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.sdk.notebooks import downloads
from openpai_tasks.sdk.notebooks import origins as notebook_origins
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.sdk.notebooks.results import when_it_ends
from openpai_tasks.sdk.notebooks.serving import check_mark
from openpai_tasks.sdk.notebooks.sessions import kept
from openpai_tasks.sdk.payloads.notebook_runner import replacing, visible
from openpai_tasks.sdk.payloads.notebook_server import MANIFEST, SAVED, digest, digest_of
from openpai_tasks.storage.copying.copy import CopyFailure

LONGEST_WAIT = 10.0  # seconds for what was saved a moment ago
LOOKS = (0.0, 0.3, 1.0)  # pauses before reading again what is just being written
NEW, UPDATED, SAME, CONFLICT = "new", "updated", "unchanged", "conflict"


@dataclass(frozen=True)
class Change:
    """A file as the job says it is now, and all that it has been."""

    name: str
    now: str
    before: frozenset[str]


@dataclass(frozen=True)
class Saved:
    """What a server has kept until now."""

    job: JobInfo
    outputs: Outputs
    changes: tuple[Change, ...]
    origins: Origins = field(default_factory=Origins)
    large: tuple[str, ...] = ()
    """Sources that were changed, and are too large to be kept."""

    @property
    def folder(self) -> Path | None:
        """The one that it was served from, if that is known here and still there."""
        found = Path(self.origins.folder)
        return found if self.origins.folder and found.is_dir() else None


@dataclass(frozen=True)
class Pulled:
    """What became of a file: where it is now, and why there."""

    name: str
    change: str
    path: str
    size: int
    remark: str = ""
    """Of a conflict: what is so with the file here."""


@dataclass(frozen=True)
class Pull:
    """All that were brought, and those that could not be."""

    files: list[Pulled]
    failed: tuple[CopyFailure, ...] = ()


def find(client: Client, name: str, mounts: Mounts = ()) -> Saved:
    """The changes that the job has on the storage; of one that runs, those of a moment ago too."""
    job, document = documents.of_job(client, name)
    mark = check_mark(job, document)
    found = outputs.find(client, job.key, mounts)
    if not job.final and MANIFEST in found.files:
        time.sleep(min(1.5 * _period(_manifest(found)), LONGEST_WAIT))
        found = outputs.find(client, job.key, mounts)
    if MANIFEST not in found.files:
        late = when_it_ends(found, job)
        raise NotFound(f"job {job.name!r} is {job.state} and has kept nothing yet{late}", 404)
    manifest = _manifest(found)
    return Saved(job, found, _changes(manifest), _origins(client, job, mark.file), _large(manifest))


def _origins(client: Client, job: JobInfo, file: str) -> Origins:
    """What is known here; that the notebook was sent, the job's own document says too."""
    here = kept(client, job)
    known = here.origins if here else Origins()
    own = {here.file: here.path} if here and here.file else {}
    return dataclasses.replace(
        known, elsewhere={**known.elsewhere, **own}, hidden=(*known.hidden, *([file] if file else []))
    )


def pull(saved: Saved, here: Path, target: Path | None = None) -> Pull:
    """Write what has changed below ``target``, or where it came from; what became of each file."""
    root = (target or saved.folder or here).resolve()
    if not root.is_dir():
        raise PathError(f"no such folder: {target or here}")
    known = notebook_origins.still_there(saved.origins)
    if target:
        known = dataclasses.replace(known, elsewhere={})
    files, failed = [], []
    for change in saved.changes:
        try:
            files.append(_bring(saved, change, notebook_origins.place(change.name, root, known)))
        except PaiError as err:
            failed.append(CopyFailure(change.name, str(err)))
    return Pull(files, tuple(failed))


def check(pulled: Pull) -> None:
    """The error that ends a command which could not bring everything."""
    if pulled.failed:
        raise PathError(f"{len(pulled.failed)} of {len(pulled.failed) + len(pulled.files)} did not arrive")


def contents(saved: Saved) -> dict[str, bytes]:
    """What has changed, by the names that it has in the job."""
    for change in saved.changes:
        try:
            notebook_origins.check(change.name, "the job's folder")
        except PathError as err:
            raise PathError(f"the job names a file {visible(change.name)!r}: {err}") from err
    return {change.name: _content(saved, change) for change in saved.changes}


def is_newer(saved: Saved, name: str, path: Path) -> bool:
    """Whether the job has changed the file since, and nobody has changed it here."""
    here = _digest_of(path)
    return any(one.name == name and here != one.now and here in one.before for one in saved.changes)


# What the job says


def _manifest(found: Outputs) -> dict[str, Any]:
    for pause in LOOKS:
        time.sleep(pause)
        with contextlib.suppress(ValueError, NotFound):
            told = parse(found.read(MANIFEST))
            if isinstance(told, dict):
                return told
    raise ApiError(f"what job {found.job!r} says of its notebooks ({MANIFEST}) cannot be read")


def _period(manifest: dict[str, Any]) -> float:
    told = manifest.get("period")
    return float(told) if isinstance(told, (int, float)) and 0 <= told < 3600 else 1.0


def _changes(manifest: dict[str, Any]) -> tuple[Change, ...]:
    files = manifest.get("files")
    found = [_change(name, told) for name, told in (files.items() if isinstance(files, dict) else ())]
    return tuple(sorted((one for one in found if one), key=lambda one: one.name))


def _large(manifest: dict[str, Any]) -> tuple[str, ...]:
    told = manifest.get("large")
    return tuple(str(name) for name in told) if isinstance(told, list) else ()


def _change(name: str, told: Any) -> Change | None:
    versions = told.get("versions") if isinstance(told, dict) else None
    if not isinstance(versions, list) or not versions or not all(isinstance(one, str) for one in versions):
        return None
    base = told.get("base")
    return Change(name, versions[-1], frozenset([*versions, *([base] if isinstance(base, str) else [])]))


# Where it goes


def _bring(saved: Saved, change: Change, path: Path) -> Pulled:
    content = _content(saved, change)
    here = _digest_of(path)
    if here == change.now:
        return Pulled(change.name, SAME, str(path), len(content))
    if here is None and not os.path.lexists(path):
        _write(path, content)
        return Pulled(change.name, NEW, str(path), len(content))
    if here in change.before and not path.is_symlink():
        _write(path, content)
        return Pulled(change.name, UPDATED, str(path), len(content))
    beside = _beside(path, change)
    if _digest_of(beside) != change.now:
        _write(beside, content)
    return Pulled(change.name, CONFLICT, str(beside), len(content), _why_beside(path))


def _why_beside(path: Path) -> str:
    if path.is_symlink():
        return "is a link here"
    return "was changed here too" if path.is_file() else "is no file here"


def _content(saved: Saved, change: Change) -> bytes:
    """The file as it was told; one that is just being replaced is read again."""
    name = f"{SAVED}/{change.name}"
    for pause in LOOKS:
        time.sleep(pause)
        with contextlib.suppress(NotFound, KeyError):
            content = saved.outputs.read(name)
            if digest(content) == change.now:
                return content
    told = f"the copy of {visible(change.name)!r} that job {saved.job.name!r} has kept"
    raise NotFound(f"{told} is just being written, or is not there; pull again", 404)


def _beside(path: Path, change: Change) -> Path:
    """The first name of its kind that is free, or taken by what an earlier call has put there."""
    return downloads.free(
        path, lambda there: not there.is_symlink() and _digest_of(there) in change.before, 1
    )


def _digest_of(path: Path) -> str | None:
    """Of what is there; nothing for no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        return digest_of(path)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise PathError(f"cannot read {path}: {err.strerror}") from err


def _write(path: Path, content: bytes) -> None:
    """Put the file in its place as a whole, with the mode of the one that was there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
    except OSError as err:
        raise PathError(f"cannot write {path}: {err.strerror}") from err
