"""Download files changed on a Jupyter server, without overwriting local changes.

A local file that is as it was sent or last pulled, by the digests kept on this machine, is replaced;
otherwise the job's file is written beside it as ``*.remote.*``. Of other files, only notebooks are
written: the next command could run a new program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import time
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, outputs
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.sdk.notebooks import downloads
from openpai_tasks.sdk.notebooks import origins as notebook_origins
from openpai_tasks.sdk.notebooks.downloads import local_digest
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.sdk.notebooks.results import late_upload_note
from openpai_tasks.sdk.notebooks.serving import require_server_mark
from openpai_tasks.sdk.notebooks.sessions import load_session
from openpai_tasks.sdk.payloads.notebook_runner import digest, replacing, visible
from openpai_tasks.sdk.payloads.notebook_server import LOOKED, MANIFEST, SAVED
from openpai_tasks.storage.copying.copy import CopyFailure
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import join
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

LOOK_SECONDS, LOOK_PAUSE = 30.0, 0.2  # wait for the server to save its latest changes; between two requests
READ_PAUSES = (0.0, 0.3, 1.0)  # seconds before each attempt to read a file that may be being written
WAITED = 60.0  # seconds of a pull, after which no file gets another attempt
LARGEST_FILE, LARGEST_MANIFEST = 1 << 30, 64 << 20  # bytes
NEW, UPDATED, SAME, CONFLICT = "new", "updated", "unchanged", "conflict"


@dataclass(frozen=True)
class ChangedFile:
    """A changed file's current digest and all its digests so far."""

    name: str
    now: str
    before: frozenset[str]


@dataclass(frozen=True)
class SavedChanges:
    """What a server has saved so far."""

    job: JobInfo
    outputs: Outputs
    changes: tuple[ChangedFile, ...]
    origins: Origins = field(default_factory=Origins)
    large: tuple[str, ...] = ()
    """Changed sources that are too large to be saved."""
    is_latest: bool = True
    """Whether the server has looked for changes since."""

    @property
    def folder(self) -> Path | None:
        """The folder it was served from, if known here and still there."""
        found = Path(self.origins.folder)
        return found if self.origins.folder and found.is_dir() else None


@dataclass(frozen=True)
class PulledFile:
    """A pulled file: what was done, and where it is."""

    name: str
    change: str
    path: str
    size: int
    remark: str = ""
    """Why there is a conflict."""


@dataclass(frozen=True)
class PullResult:
    """The files that were pulled and those that failed."""

    files: list[PulledFile]
    failed: tuple[CopyFailure, ...] = ()


def find_changes(client: Backend, name: str, mounts: Mounts = ()) -> SavedChanges:
    """Read the changes that the job has saved; if it runs, wait for the latest ones."""
    job, document = documents.job_document(client, name)
    mark = require_server_mark(job, document)
    found = outputs.find_outputs(client, job.key, mounts)
    is_latest = True
    if not job.final and MANIFEST in found.files:
        is_latest = _wait_for_look(found)
        found = outputs.find_outputs(client, job.key, mounts)
    if MANIFEST not in found.files:
        late = late_upload_note(found, job)
        raise NotFound(f"job {job.name!r} is {job.state} and has saved nothing yet{late}", 404)
    manifest = _manifest(found)
    large = fields.texts(manifest.get("large"))
    origins = _origins(client, job, mark.file)
    return SavedChanges(job, found, parse_changes(manifest), origins, large, is_latest)


def _wait_for_look(found: Outputs) -> bool:
    """Wait until the server has looked for changes from now on; return whether it has in time."""
    store, path = found.folder.store, join(found.folder.path, LOOKED)
    end, looks = time.monotonic() + LOOK_SECONDS, set[int]()
    while time.monotonic() < end:
        entry = store.stat(path)
        looks.add(entry.mtime_ms if entry else 0)
        if len(looks) > 2:  # the first look to end may have begun before
            return True
        time.sleep(LOOK_PAUSE)
    return False


def _origins(client: Backend, job: JobInfo, file: str) -> Origins:
    """Return the recorded origins, with the notebook that the job's document names."""
    here = load_session(client, job)
    known = here.origins if here else Origins()
    notebook = {here.file: here.path} if here and here.file else {}
    return dataclasses.replace(
        known, elsewhere={**known.elsewhere, **notebook}, sent={**({file: ""} if file else {}), **known.sent}
    )


def pull_changes(saved: SavedChanges, here: Path, target: Path | None = None) -> PullResult:
    """Write the changed files below ``target``, or where they came from."""
    root = (target or saved.folder or here).resolve()
    if not root.is_dir():
        raise PathError(f"no such folder: {target or here}")
    known = notebook_origins.without_missing(saved.origins)
    if target:
        known = dataclasses.replace(known, elsewhere={})
    files, failed = [], []
    end = time.monotonic() + WAITED
    for change in saved.changes:
        try:
            target_file = notebook_origins.find_target(change.name, root, known)
            if not change.name.endswith(notebook_origins.SUFFIX) and change.name not in saved.origins.sent:
                hint = f"download it with `{command('job.outputs', saved.job.name)} --to FOLDER`"
                raise PathError(f"it is not a notebook and was not sent from here; {hint}")
            files.append(_pull_file(change, _content(saved, change, end), saved, *target_file))
        except PaiError as err:
            failed.append(CopyFailure(change.name, str(err)))
    downloads.remember(Path(one.path) for one in files if one.change != SAME)
    return PullResult(files, tuple(failed))


def check_pulled(pulled: PullResult) -> None:
    """Raise if any file could not be pulled."""
    if pulled.failed:
        of_all = counted(len(pulled.failed) + len(pulled.files), "file")
        raise PathError(f"{len(pulled.failed)} of {of_all} could not be pulled")


def read_changes(saved: SavedChanges) -> dict[str, bytes]:
    """Return the contents of changed files, by their names in the job."""
    for change in saved.changes:
        try:
            notebook_origins.check_name(change.name, "the job's folder")
        except PathError as err:
            raise PathError(f"invalid file name {visible(change.name)!r} from the job: {err}") from err
    end = time.monotonic() + WAITED
    return {change.name: _content(saved, change, end) for change in saved.changes}


def is_newer(saved: SavedChanges, name: str, path: Path) -> bool:
    """Return whether the file was changed in the job and not here."""
    here = local_digest(path)
    return any(one.name == name and here != one.now and _is_known(saved, one, path) for one in saved.changes)


# The job's manifest


def _manifest(found: Outputs) -> dict[str, Any]:
    for pause in READ_PAUSES:
        time.sleep(pause)
        with contextlib.suppress(ValueError, NotFound):
            manifest = parse(found.read(MANIFEST, LARGEST_MANIFEST))
            if isinstance(manifest, dict):
                return manifest
    raise ApiError(f"cannot read the list of saved notebooks ({MANIFEST}) of job {found.job!r}")


def parse_changes(manifest: dict[str, Any]) -> tuple[ChangedFile, ...]:
    """Return the changed files of a manifest; invalid entries are left out."""
    entries = fields.mapping(manifest.get("files")).items()
    found = [change for name, entry in entries if (change := _change(name, entry))]
    return tuple(sorted(found, key=lambda change: change.name))


def _change(name: str, entry: Any) -> ChangedFile | None:
    versions = entry.get("versions") if isinstance(entry, dict) else None
    if not isinstance(versions, list) or not versions or not all(isinstance(one, str) for one in versions):
        return None
    base = entry.get("base")
    return ChangedFile(name, versions[-1], frozenset([*versions, *([base] if isinstance(base, str) else [])]))


# Writing


def _pull_file(
    change: ChangedFile, content: bytes, saved: SavedChanges, path: Path, root: Path
) -> PulledFile:
    here = local_digest(path)
    if here == change.now:
        return PulledFile(change.name, SAME, str(path), len(content))
    is_new = not os.path.lexists(path)
    if is_new or _is_known(saved, change, path):
        _write(path, root, content)
        return PulledFile(change.name, NEW if is_new else UPDATED, str(path), len(content))
    beside = _beside(path, change)
    if local_digest(beside) != change.now:
        _write(beside, root, content)
    return PulledFile(change.name, CONFLICT, str(beside), len(content), _why_beside(saved, change, path))


def _is_known(saved: SavedChanges, change: ChangedFile, path: Path) -> bool:
    """Whether the local file is one that was sent or pulled, and that the job has changed since."""
    here = local_digest(path)
    if path.is_symlink() or here not in change.before:
        return False
    return here == saved.origins.sent.get(change.name) or downloads.is_ours(path)


def _why_beside(saved: SavedChanges, change: ChangedFile, path: Path) -> str:
    if path.is_symlink():
        return "is a link here"
    if not path.is_file():
        return "is not a regular file here"
    return "was changed here too" if saved.origins.sent.get(change.name) else "exists here, but was not sent"


def _content(saved: SavedChanges, change: ChangedFile, end: float) -> bytes:
    """Read the file with the manifest's digest, trying again while it is being replaced, until ``end``."""
    name = f"{SAVED}/{change.name}"
    for pause in READ_PAUSES if name in saved.outputs.files else ():
        if pause and time.monotonic() > end:
            break
        time.sleep(pause)
        with contextlib.suppress(NotFound):
            content = saved.outputs.read(name, LARGEST_FILE)
            if digest(content) == change.now:
                return content
    copy = f"the copy of {visible(change.name)!r} that job {saved.job.name!r} saved"
    raise NotFound(f"{copy} is missing or being written; pull again", 404)


def _beside(path: Path, change: ChangedFile) -> Path:
    """Return the first ``*.remote.*`` name that is free, from an earlier pull, or has this content."""

    def is_ours(there: Path) -> bool:
        return not there.is_symlink() and (local_digest(there) == change.now or downloads.is_ours(there))

    return downloads.free_path(path, is_ours, 1)


def _write(path: Path, root: Path, content: bytes) -> None:
    """Replace the file atomically, in an open folder, so that links set meanwhile are not followed."""
    store, above, name = LocalStore(str(root)), f"/{path.parent.relative_to(root)}", Path(path.name)
    try:
        store.make_folder(above)
        folder = store.open_folder(above)
        try:
            with replacing(name, folder) as file:
                file.write(content)
                with contextlib.suppress(FileNotFoundError):
                    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                    if stat.S_ISREG(mode):
                        os.fchmod(file.fileno(), stat.S_IMODE(mode))
        finally:
            os.close(folder)
    except PaiError as err:
        raise PathError(f"cannot write {path}: {err}") from err
    except OSError as err:
        raise PathError(f"cannot write {path}: {err.strerror}") from err
