"""Run a notebook again with other resources, from a job as sent or from a file as it is now.

A job that serves a notebook becomes one that runs it: the same document with another command.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.roles import PLUGINS
from openpai_tasks.protocol.document.ssh_plugin import SSH
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.git import revision
from openpai_tasks.sdk.jobs import documents, records, resubmission, unmasking
from openpai_tasks.sdk.jobs.provenance import Origin
from openpai_tasks.sdk.jobs.records import Record
from openpai_tasks.sdk.jobs.resubmission import Original
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.sdk.jobs.unmasking import Ask
from openpai_tasks.sdk.jobs.updates import Update
from openpai_tasks.sdk.notebooks import pull, running, serving
from openpai_tasks.sdk.notebooks.notebook_file import SUFFIX, Notebook, read_notebook
from openpai_tasks.sdk.notebooks.running import MARK, RunMark, RunOptions
from openpai_tasks.sdk.notebooks.serving import FOLDER, SERVER
from openpai_tasks.sdk.payloads.notebook_runner import visible
from openpai_tasks.sdk.payloads.notebook_server import PORT, TOKEN
from openpai_tasks.storage.job_files.archive import iter_files, pack
from openpai_tasks.storage.job_files.sources import SourceFile, collect
from openpai_tasks.text.hints import command, option

_SERVER_CALL = re.compile(
    rf"{re.escape(FOLDER)}/{re.escape(SERVER.name)}(?: --(?:idle|limit) \d+| --direct)*"
)
_TOKEN_EXPORTS = {scripts.step(scripts.export_secret(TOKEN, sample)) for sample in ("plain", "'")}


@dataclass(frozen=True)
class RerunSource:
    """What to run again: a job, or a notebook with the record of its last run."""

    cluster: str
    job: str
    notebook: Notebook | None = None
    record: Record | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a job that had the notebook among its sources but did not run it."""
    last_run: Record | None = None
    """If ``record`` is of a server, which has no parameters: the last job that ran the notebook."""

    @property
    def is_new(self) -> bool:
        """Whether no job from this folder has run the notebook yet."""
        return self.notebook is not None and self.record is None

    @property
    def description(self) -> str:
        return f"job {self.job} of {self.cluster}"


@dataclass(frozen=True)
class Batch:
    """A job to run, and the notebook it runs if it is not the one that the job was sent with."""

    original: Original
    description: str
    notebook: Notebook | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedRerun:
    """A submission, what it runs, and remarks for the user."""

    submission: Submission
    description: str
    remarks: tuple[str, ...]


def choose_original(word: str, here: Path, source: str, target: str) -> RerunSource:
    """Take ``word`` as a notebook file, else as a job name; ``target`` is the new job's cluster."""
    is_file = word.endswith(SUFFIX) or os.sep in word or (here / word).exists()
    if not is_file:  # a job's name has neither dots nor slashes
        return RerunSource(source or _cluster_of(word, here, target), word)
    notebook = read_notebook(word, here)
    had = [
        record
        for record in records.read_all(here)
        if any(_is_same(here / source, notebook.path) for source in record.sources)
    ]
    runs = [record for record in had if _run_mark(record)]
    servers = [record for record in had if serving.read_server_mark(_document(record))]
    last = _latest([*runs, *servers])
    if last:
        ran = _latest(runs)
        return RerunSource(last.cluster, last.name, notebook, last, last_run=ran)
    other = _latest(had)
    return RerunSource(target, "", notebook, settings=_settings(other, notebook, here) if other else {})


def check_first_run(chosen: RerunSource, resume: bool | None) -> None:
    """Raise if a notebook that no job has run should resume."""
    if resume and chosen.notebook:
        name = chosen.notebook.name
        raise ConfigError(
            f"no job from this folder has run {name}, so it cannot resume; leave out {option('resume')}"
        )


def prepare_rerun(
    chosen: RerunSource,
    source: Backend,
    target: Backend,
    request: JobRequest,
    parameters: Mapping[str, Any],
    here: Path,
    ask: Ask,
    mounts: Mounts = (),
    resume: bool | None = None,
) -> PreparedRerun:
    """Prepare the same command with the same parameters, updated by the given ones."""
    batch = _batch(chosen, source, here, mounts)
    original, notebook = batch.original, batch.notebook
    mark = running.read_run_mark(original.document)
    if mark is None:
        name = original.name
        raise ConfigError(
            f"job {name!r} runs no notebook; run it again with `{command('job.resubmit', name)}`"
        )
    options = dataclasses.replace(mark.options, parameters={**mark.options.parameters, **parameters})
    changed = dataclasses.replace(mark, options=options)
    remarks = running.remarks(notebook, changed.options) if notebook else []
    document = _with_command(original.document, mark, changed)
    changes = (*_resource_updates(document, request), *request.updates)
    request = dataclasses.replace(request, updates=changes)
    original = dataclasses.replace(original, document=document)
    submission = resubmission.prepare_resubmission(original, target, request, ask, mounts, resume)
    return PreparedRerun(submission, batch.description, (*remarks, *batch.remarks))


def _batch(chosen: RerunSource, source: Backend, here: Path, mounts: Mounts) -> Batch:
    """Return the chosen job; a server becomes a job that runs its notebook."""
    if chosen.notebook and chosen.record:
        name = chosen.notebook.name
        original = _with_current_files(source, chosen.record, chosen.notebook, here)
        description = f"{name}, as it is now, with the settings of {chosen.description}"
        remarks: list[str] = []
        if serving.read_server_mark(original.document):
            before = _run_mark(chosen.last_run) if chosen.last_run else None
            options = before.options if before else RunOptions()
            original = run_instead_of_serve(original, name, options)
            if chosen.last_run and options != RunOptions():
                run = f"its last run, job {chosen.last_run.name}"
                remarks.append(f"parameters and other flags of notebook.run are taken from {run}")
            remarks += _newer_remark(source, chosen.record, chosen.notebook, mounts)
        return Batch(original, description, chosen.notebook, tuple(remarks))
    original = resubmission.original_from_cluster(source, chosen.job, here, mounts)
    if serving.read_server_mark(original.document) is None:
        return Batch(original, f"{chosen.description}, as it was sent")
    return _batch_from_server(source, original, chosen.description, mounts)


def _newer_remark(source: Backend, last: Record, notebook: Notebook, mounts: Mounts) -> list[str]:
    """Say that the server has a newer version of the notebook, if it can be read."""
    with contextlib.suppress(PaiError):
        saved = pull.find_changes(source, f"{last.user}~{last.name}", mounts)
        if pull.is_newer(saved, notebook.name, notebook.path):
            pull_it = f"`{command('notebook.pull', last.name)}`"
            run_it = f"`{command('notebook.resubmit', last.name)}`"
            hint = f"download it with {pull_it} or run it with {run_it}"
            return [f"job {last.name} has a newer {notebook.name}: {hint}"]
    return []


def _with_current_files(source: Backend, last: Record, notebook: Notebook, here: Path) -> Original:
    """Return the recorded job with the notebook and sources as they are now."""
    document = documents.recorded_document(last)
    named = _other_sources(last, notebook, here)
    ours = running.job_files(notebook)
    names = {one.name for one in ours}
    collected = collect(named, here)
    archive = pack([*(one for one in collected.files if one.name not in names), *ours])
    first = last.cloned_from or last.name
    origin = Origin(here, last.command, last.sources, archive.files, last.settings, revision(here), first)
    chosen = records.chosen_secrets(source, last.user, last.name, last.text)
    user, notes = last.user, collected.notes
    return Original(source, user, last.name, document, origin, archive, last.secrets, chosen, notes=notes)


def _latest(found: Iterable[Record]) -> Record | None:
    return max(found, key=lambda record: record.submitted, default=None)


def _run_mark(record: Record) -> RunMark | None:
    """Return how the recorded job ran its notebook; None if it ran none."""
    return running.read_run_mark(_document(record))


def _document(record: Record) -> dict[str, Any]:
    try:
        found = protocol.read(record.document).value
    except PaiError:
        return {}
    return found if isinstance(found, dict) else {}


def _settings(record: Record, notebook: Notebook, here: Path) -> dict[str, Any]:
    """Return the settings of a job that had the notebook, as flags for a run."""
    settings = {name: record.settings.get(name) for name in ("image", "pip_installs", "python")}
    settings["sources"] = _other_sources(record, notebook, here)
    return {name: value for name, value in settings.items() if value}


def _other_sources(record: Record, notebook: Notebook, here: Path) -> tuple[str, ...]:
    """Return the record's sources without the notebook."""
    others = tuple(source for source in record.sources if not _is_same(here / source, notebook.path))
    return records.trusted_sources(dataclasses.replace(record, sources=others), here)


def _cluster_of(name: str, here: Path, target: str) -> str:
    """Return the cluster that the job was submitted to from here, else the new job's."""
    if "~" in name or records.find_record(here, name, target):
        return target
    record = records.find_record(here, name)
    return record.cluster if record else target


def _is_same(path: Path, other: Path) -> bool:
    return os.path.normpath(path) == os.path.normpath(other)


def _with_command(document: dict[str, Any], before: RunMark, after: RunMark) -> dict[str, Any]:
    """Replace the runner's arguments in the document."""
    old, new = (running.runner_call(mark.file, mark.options) for mark in (before, after))

    def changed(text: str) -> str:
        """Replace the call, plain or inside the quotes of a time limit."""
        before, after = (old, new) if old in text else (_inside_quotes(old), _inside_quotes(new))
        return text.replace(before, after)

    roles = {
        name: {**role, "commands": list(map(changed, role["commands"]))}
        for name, role in document["taskRoles"].items()
    }
    if old != new and roles == document["taskRoles"]:
        why = "its command was changed with -u or made by another version"
        raise ConfigError(
            f"cannot change the job's parameters: {why}; use `{command('notebook.run')}` instead"
        )
    extras = {**(document.get("extras") or {}), MARK: running.run_mark(after.file, after.options)}
    return {**document, "taskRoles": roles, "extras": extras}


def _inside_quotes(text: str) -> str:
    """Escape text as it appears inside single quotes."""
    return shlex.quote(f"'{text}'")[len("''\"'\"'") : -len("'\"'\"''")]


def _resource_updates(document: dict[str, Any], request: JobRequest) -> list[Update]:
    """Return the requested resources as changes to the document."""
    sizes = {"cpu": request.cpu, "memoryMB": request.memory_mb}
    changes: list[Update] = [
        (f"taskRoles.{role}.resourcePerInstance.{name}", value)
        for role in document["taskRoles"]
        for name, value in sizes.items()
        if value is not None
    ]
    if request.image:
        changes.append(("prerequisites.0.uri", request.image))
    if request.virtual_cluster:
        changes.append(("defaults.virtualCluster", request.virtual_cluster))
    return changes


# A server as a batch job


def _batch_from_server(source: Backend, original: Original, description: str, mounts: Mounts) -> Batch:
    """Make a batch job of a server job, with notebook and sources as it last saved them."""
    ways = f"`{command('notebook.pull', original.name)}`, then `{command('notebook.resubmit')} FILE`"
    try:
        saved = pull.find_changes(source, f"{original.user}~{original.name}", mounts)
    except NotFound as err:
        raise ConfigError(f"{err}; once it has: {ways}") from err
    if original.archive is None:
        raise ConfigError(f"cannot read the sources of job {original.name!r} here; use {ways}")
    saved_files = pull.read_changes(saved)
    file = _notebook_file(original, saved_files, ways)
    with tempfile.TemporaryDirectory() as folder:
        sent = (
            (info.name, content, info.mode)
            for info, content in iter_files(original.archive.content)
            if not info.name.startswith(f"{FOLDER}/")  # the server's
        )
        changed = ((name, io.BytesIO(content), 0o644) for name, content in saved_files.items())
        sources = _write_sources(sent, Path(folder, "sent"))
        sources |= _write_sources(changed, Path(folder, "saved"))
        found = read_notebook(str(sources[file].path), Path(folder))
        notebook = dataclasses.replace(found, name=file)
        sources |= {one.name: one for one in running.job_files(notebook)}
        archive = pack(list(sources.values()))
    origin = dataclasses.replace(original.origin, files=archive.files)
    batch = dataclasses.replace(original, archive=archive, origin=origin)
    note = "is too large to be saved; it runs without its latest changes"
    remarks = tuple(f"{visible(name)} {note}" for name in saved.large)
    if not saved.is_latest:
        remarks += (f"job {original.name} is not answering; it runs without its latest changes",)
    batch = run_instead_of_serve(batch, file, RunOptions())
    return Batch(batch, f"{file}, as {description} last saved it", notebook, remarks)


def run_instead_of_serve(original: Original, file: str, given: RunOptions) -> Original:
    """Replace the server call by a run of the notebook, and drop what only the server needs."""
    known = tuple(name for name in original.secrets if name != TOKEN)
    document, call = original.document, running.runner_call(file, given)
    roles = {name: _role(role, call) for name, role in document["taskRoles"].items()}
    if all(role["commands"] == document["taskRoles"][name]["commands"] for name, role in roles.items()):
        raise ConfigError(f"cannot run job {original.name!r} as a batch job: its command was changed with -u")
    document = {**document, "taskRoles": roles, "extras": _extras(document["extras"], file, given)}
    document["deployments"] = _without_token(document.get("deployments") or [])
    if not unmasking.secret_names(document, known):
        document.pop("secrets", None)
    return dataclasses.replace(original, document=document, secrets=known)


def _role(role: dict[str, Any], call: str) -> dict[str, Any]:
    needs = dict(role["resourcePerInstance"])
    ports = {name: count for name, count in (needs.pop("ports", None) or {}).items() if name != PORT}
    commands = [_SERVER_CALL.sub(lambda _: call, text) for text in role["commands"]]
    return {**role, "resourcePerInstance": needs | ({"ports": ports} if ports else {}), "commands": commands}


def _extras(extras: dict[str, Any], file: str, given: RunOptions) -> dict[str, Any]:
    """Replace the server's mark by that of a run, and drop the ssh plugin."""
    rest = {name: value for name, value in extras.items() if name not in (serving.MARK, PLUGINS)}
    plugins = [one for one in extras.get(PLUGINS) or () if one.get("plugin") != SSH]
    if plugins:
        rest[PLUGINS] = plugins
    return {**rest, running.MARK: running.run_mark(file, given)}


def _without_token(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_token(item) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _without_token(item) for item in value if not (isinstance(item, str) and item in _TOKEN_EXPORTS)
        ]
    return value


def _notebook_file(original: Original, saved_files: dict[str, bytes], ways: str) -> str:
    """Return the notebook that was opened, else the only notebook that was saved."""
    mark = serving.read_server_mark(original.document)
    if mark and mark.file:
        return mark.file
    found = [name for name in saved_files if name.endswith(SUFFIX)]
    if len(found) != 1:
        saved = ", ".join(found) or "no notebook"
        raise ConfigError(f"job {original.name!r} has saved {saved}; choose one: {ways}")
    return found[0]


def _write_sources(files: Iterable[tuple[str, IO[bytes], int]], folder: Path) -> dict[str, SourceFile]:
    """Write files, given by name, content and mode, to a new folder; return them by name."""
    folder.mkdir()
    sources = {}
    for number, (name, content, mode) in enumerate(files):
        path = folder / str(number)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(mode & 0o777 | 0o600)
        sources[name] = running.source_file(path, name)
    return sources
