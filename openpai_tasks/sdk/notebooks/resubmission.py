"""A notebook once more, with other resources: from a job as it was sent, or from a file as it is now."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, records, resubmission
from openpai_tasks.sdk.jobs.git import revision
from openpai_tasks.sdk.jobs.provenance import Origin
from openpai_tasks.sdk.jobs.records import Record
from openpai_tasks.sdk.jobs.resubmission import Original
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.sdk.jobs.unmasking import Ask
from openpai_tasks.sdk.notebooks import batch as notebook_batch
from openpai_tasks.sdk.notebooks import pull, running, serving
from openpai_tasks.sdk.notebooks.running import MARK, Mark, Notebook, Options
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect


@dataclass(frozen=True)
class Chosen:
    """What is to be run again: a job, or a notebook with the record of its last run."""

    cluster: str
    job: str
    notebook: Notebook | None = None
    record: Record | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a job that had the notebook with it, but did not run it."""
    last_run: Record | None = None
    """Where the record is of a server: the last job that ran it, as a server is given no parameters."""

    @property
    def is_new(self) -> bool:
        """Whether no job of this folder has run it yet."""
        return self.notebook is not None and self.record is None

    @property
    def told(self) -> str:
        return f"job {self.job} of {self.cluster}"


@dataclass(frozen=True)
class Prepared:
    """What to send, what it is, and what a person should know of it."""

    submission: Submission
    told: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Again:
    """The job to send once more; the notebook, where it is not the one that the job was sent with."""

    original: Original
    told: str
    notebook: Notebook | None = None
    remarks: tuple[str, ...] = ()


def choose_original(word: str, here: Path, source: str, target: str) -> Chosen:
    """A notebook if it is one, else a job; ``target`` is where the new job goes."""
    if not _is_file(word, here):
        return Chosen(source or _cluster_of(word, here, target), word)
    notebook = running.read_notebook(word, here)
    had = [record for record in records.every(here) if _has(record, notebook, here)]
    last = _last(record for record in had if _mark(record) or _serves(record))
    if last:
        ran = _last(record for record in had if _mark(record))
        return Chosen(last.cluster, last.name, notebook, last, last_run=ran)
    other = _last(had)
    return Chosen(target, "", notebook, settings=_settings(other, notebook, here) if other else {})


def _is_file(word: str, here: Path) -> bool:
    """Names of jobs have neither dots nor slashes."""
    return word.endswith(running.SUFFIX) or os.sep in word or (here / word).exists()


def prepare_rerun(
    chosen: Chosen,
    source: Backend,
    target: Backend,
    request: JobRequest,
    parameters: Mapping[str, Any],
    here: Path,
    ask: Ask,
    mounts: Mounts = (),
) -> Prepared:
    """What to send: the same command with the same parameters, unless others are given."""
    again = _again(chosen, source, here, mounts)
    original, notebook = again.original, again.notebook
    mark = running.mark_of(original.document)
    if mark is None:
        name = original.name
        raise ConfigError(f"job {name!r} runs no notebook; `job.resubmit {name}` runs it again")
    options = dataclasses.replace(mark.options, parameters={**mark.options.parameters, **parameters})
    changed = dataclasses.replace(mark, options=options)
    said = running.remarks(notebook, changed.options) if notebook else []
    document = _with_command(original.document, mark, changed)
    changes = (*_resources(document, request), *request.updates)
    request = dataclasses.replace(request, updates=changes)
    original = dataclasses.replace(original, document=document)
    submission = resubmission.prepare_resubmission(original, target, request, ask, mounts)
    return Prepared(submission, again.told, (*said, *again.remarks))


def _again(chosen: Chosen, source: Backend, here: Path, mounts: Mounts) -> _Again:
    """The job that is chosen; one that served its notebook becomes one that runs it."""
    if chosen.notebook and chosen.record:
        name, original = chosen.notebook.name, _as_it_is(source, chosen.record, chosen.notebook, here)
        told = f"{name}, as it is now, with what {chosen.told} was given"
        remarks: tuple[str, ...] = ()
        if serving.mark_of(original.document):
            before = _mark(chosen.last_run) if chosen.last_run else None
            original = notebook_batch.instead(original, name, before.options if before else None)
            remarks = (
                *_kept(chosen.last_run, before),
                *_newer(source, chosen.record, chosen.notebook, mounts),
            )
        return _Again(original, told, chosen.notebook, remarks)
    original = resubmission.clone(source, chosen.job, here, mounts)
    if not serving.mark_of(original.document):
        return _Again(original, f"{chosen.told}, as it was sent")
    batch = notebook_batch.last_kept(source, original, mounts)
    told = f"{batch.notebook.name}, as {chosen.told} has last kept it"
    return _Again(batch.original, told, batch.notebook, batch.remarks)


def _kept(run: Record | None, before: Mark | None) -> tuple[str, ...]:
    """Where that comes from which no server is given."""
    if run is None or before is None or before.options == Options():
        return ()
    return (f"parameters and other flags of notebook.run are those of job {run.name}, its last run",)


def _newer(source: Backend, last: Record, notebook: Notebook, mounts: Mounts) -> tuple[str, ...]:
    """A hint where the server has the notebook in a later state; one that is gone has none."""
    with contextlib.suppress(PaiError):
        saved = pull.find_changes(source, f"{last.user}~{last.name}", mounts)
        if pull.is_newer(saved, notebook.name, notebook.path):
            hint = f"`notebook.pull {last.name}` brings it, `notebook.resubmit {last.name}` runs it"
            return (f"job {last.name} has a newer {notebook.name}: {hint}",)
    return ()


def _as_it_is(source: Backend, last: Record, notebook: Notebook, here: Path) -> Original:
    """The recorded job, with the notebook and the sources as they are now."""
    document = documents.as_v2(protocol.read(last.document).value)
    named = _others(last, notebook, here)
    with tempfile.TemporaryDirectory() as folder:
        ours = running.files(notebook, Path(folder))
        names = {one.name for one in ours}
        archive = pack([*(one for one in collect(named, here) if one.name not in names), *ours])
    first = last.cloned_from or last.name
    origin = Origin(here, last.command, last.sources, archive.files, last.settings, revision(here), first)
    return Original(source, last.user, last.name, document, origin, archive, last.secrets)


def _has(record: Record, notebook: Notebook, here: Path) -> bool:
    return any(_is_same(here / source, notebook.path) for source in record.sources)


def _last(found: Iterable[Record]) -> Record | None:
    return max(found, key=lambda record: record.submitted, default=None)


def _mark(record: Record) -> Mark | None:
    """What a job that ran a notebook was given; nothing for any other one."""
    return running.mark_of(_document(record))


def _serves(record: Record) -> bool:
    return serving.mark_of(_document(record)) is not None


def _document(record: Record) -> dict[str, Any]:
    try:
        found = protocol.read(record.document).value
    except PaiError:
        return {}
    return found if isinstance(found, dict) else {}


def _settings(record: Record, notebook: Notebook, here: Path) -> dict[str, Any]:
    """What a job that had the notebook was given, as flags of one that runs it."""
    told = {name: record.settings.get(name) for name in ("image", "pip_installs", "python")}
    return {
        name: value for name, value in {**told, "sources": _others(record, notebook, here)}.items() if value
    }


def _others(record: Record, notebook: Notebook, here: Path) -> tuple[str, ...]:
    """The sources of the record that are not the notebook."""
    others = tuple(source for source in record.sources if not _is_same(here / source, notebook.path))
    return records.sources_of(dataclasses.replace(record, sources=others), here)


def _cluster_of(name: str, here: Path, target: str) -> str:
    """Where the job is: where it was submitted to from here, else where the new one goes."""
    if "~" in name or records.find(here, name, target):
        return target
    record = records.find(here, name)
    return record.cluster if record else target


def _is_same(path: Path, other: Path) -> bool:
    return os.path.normpath(path) == os.path.normpath(other)


def _with_command(document: dict[str, Any], before: Mark, after: Mark) -> dict[str, Any]:
    """The document with the runner called in the new way."""
    old, new = (running.call(mark.file, mark.options) for mark in (before, after))
    roles = {
        name: {**role, "commands": [_called(text, old, new) for text in role["commands"]]}
        for name, role in document["taskRoles"].items()
    }
    if old != new and roles == document["taskRoles"]:
        why = "its command was changed (-u) or made by another version; `notebook.run` takes all of them anew"
        raise ConfigError(f"the parameters of the job cannot be changed: {why}")
    extras = {**(document.get("extras") or {}), MARK: running.mark(after.file, after.options)}
    return {**document, "taskRoles": roles, "extras": extras}


def _called(text: str, old: str, new: str) -> str:
    """The command where it stands plainly, or in the quotes of a time limit."""
    return text.replace(old, new) if old in text else text.replace(_within(old), _within(new))


def _within(text: str) -> str:
    """The text as it stands inside of single quotes."""
    return shlex.quote(f"'{text}'")[len("''\"'\"'") : -len("'\"'\"''")]


def _resources(document: dict[str, Any], request: JobRequest) -> list[str]:
    """What the new job needs, as changes of its document."""
    sizes = {"cpu": request.cpu, "memoryMB": request.memory_mb}
    changes = [
        f"taskRoles.{role}.resourcePerInstance.{name}={value}"
        for role in document["taskRoles"]
        for name, value in sizes.items()
        if value is not None
    ]
    if request.image:
        changes.append(f"prerequisites.0.uri={request.image}")
    if request.virtual_cluster:
        changes.append(f"defaults.virtualCluster={request.virtual_cluster}")
    return changes
