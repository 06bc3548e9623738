"""From a wish or a file to a job on the cluster: exactly one, whatever happens to the connection."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import string
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from openpai_tasks import protocol
from openpai_tasks.client import Client
from openpai_tasks.errors import (
    ApiError,
    ConfigError,
    Conflict,
    NotFound,
    PathError,
    ProtocolError,
    Unreachable,
)
from openpai_tasks.protocol import JobSpec, Problem
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.problems import refuse
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk import records, updates
from openpai_tasks.sdk.names import saw_jobs
from openpai_tasks.sdk.places import default_storage, output_storage
from openpai_tasks.sdk.provenance import Origin, origin_of_file, origin_of_spec, stamped
from openpai_tasks.sdk.validation import as_v1
from openpai_tasks.storage import workspace as workspaces
from openpai_tasks.storage.sources import Source, collect
from openpai_tasks.storage.workspace import Storage

LOOKS = (0.0, 0.5, 1.5, 3.0)
"""Pauses before looking whether a job whose submission was not answered is there after all."""


@dataclass(frozen=True)
class Submission:
    """Exactly what will be sent, and the files that go ahead of it."""

    name: str
    text: str = field(repr=False)
    sources: tuple[Source, ...] = ()
    storage: Storage | None = None
    folder: str = ""
    origin: Origin | None = field(default=None, repr=False)
    v1: dict[str, Any] | None = field(default=None, repr=False)  # for a server that takes it as it is
    converted: bool = False
    renamed: tuple[str, ...] = ()  # what version 2 does not allow of the names of version 1

    @property
    def shown(self) -> str:
        """The text for other eyes: its secrets are masked."""
        return self.text if self.v1 else protocol.validate(self.text).masked()


@dataclass(frozen=True)
class Draft:
    """A spec with a name, and where its files are and go."""

    spec: JobSpec
    sources: tuple[Source, ...]
    storage: Storage | None
    folder: str
    workspace: str
    origin: Origin = field(repr=False)
    base: dict[str, Any] | None = field(default=None, repr=False)  # a template, filled in

    def submission(self, changes: Sequence[str] = ()) -> Submission:
        text = protocol.dump(self.document(changes))
        return Submission(_name(text), text, self.sources, self.storage, self.folder, self.origin)

    def document(self, changes: Sequence[str] = ()) -> dict[str, Any]:
        """The document, with the changes of ``-u``."""
        if self.base is None:
            made = protocol.document(self.spec)
        else:
            made = protocol.dressed({**self.base, "name": self.spec.name}, self.spec)
        made = stamped(made, self.origin, self.spec.storage or "", self.workspace, self.folder)
        return updates.apply(made, changes)


def draft(
    client: Client,
    spec: JobSpec,
    sources: Sequence[str],
    workspace: str,
    here: Path,
    base: dict[str, Any] | None = None,
) -> Draft:
    """Name the job and find its files; nothing is sent yet."""
    spec = dataclasses.replace(spec, name=new_name(spec.name, spec.command))
    files = collect(sources, here)
    storage, folder = None, ""
    if files:
        storage = default_storage(client)
        folder = workspaces.source_folder(workspace, spec.name)
        spec = dataclasses.replace(spec, storage=storage.name, sources_folder=f"/mnt/{storage.name}/{folder}")
    output = output_storage(client)
    if output:
        jobs_folder = f"/mnt/{output}/{workspaces.jobs_folder(workspace)}"
        spec = dataclasses.replace(spec, storage=output, jobs_folder=jobs_folder)
    origin = origin_of_spec(here, spec, sources, files)
    return Draft(spec, files, storage, folder, workspace, origin, base)


def read(path: Path, changes: Sequence[str] = (), takes_v1: bool = False) -> Submission:
    """A job file, v2 YAML or v1 JSON, with the changes of ``-u``; v1 is converted unless it is taken."""
    origin = origin_of_file(path)
    document, is_v1 = load(path)
    document = updates.apply(document, changes)
    if is_v1 and takes_v1:
        v1 = protocol.validate_v1(document)
        return Submission(v1["jobName"], json.dumps(v1, indent=2) + "\n", origin=origin, v1=v1)
    renamed: tuple[str, ...] = ()
    if is_v1:
        fitting, renamed = protocol.fit_names(protocol.validate_v1(document))
        document = protocol.to_v2(fitting)
    text = protocol.dump(stamped(document, origin))
    return Submission(_name(text), text, origin=origin, converted=is_v1, renamed=renamed)


def _name(text: str) -> str:
    """The name of a document that is valid; the lines of one that we wrote ourselves are told to nobody."""
    try:
        return protocol.validate(text).name
    except ProtocolError as err:
        raise refuse(Problem(one.path, one.rule) for one in cast(Iterable[Problem], err.problems)) from err


def load(path: Path) -> tuple[dict[str, Any], bool]:
    """The document in a file, and whether it is of version 1; one of version 2 is valid."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read the job file {str(path)!r}: {reason}") from err
    v1 = as_v1(text)
    return (protocol.validate(text).source.value, False) if v1 is None else (v1, True)


def new_name(name: str | None, command: str) -> str:
    """The name asked for, each ``$`` in it replaced by random letters; or one that tells the command."""
    if name:
        return re.sub(r"\$", lambda _: _letters(10), name)
    return f"{told_by(command)}-{_letters(6)}"


def told_by(command: str) -> str:
    """A few words of the command, as names have them."""
    return "-".join(re.findall(r"[A-Za-z0-9]+", command)[:3])[-200:].lower() or "job"


def _letters(count: int) -> str:
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(count))


def submit(client: Client, submission: Submission) -> JobInfo:
    """Upload the sources, hand in the document, return what the cluster now says."""
    name, key = submission.name, job_key(client.user, submission.name)
    if exists(client, key):
        where = f"cluster {client.cluster.alias!r}"
        raise Conflict(f"a job named {name!r} exists on {where}; choose another name", 409)
    if submission.storage:
        workspaces.publish(submission.storage, submission.folder, submission.sources)
    try:
        hand_in(client, submission)
    except (ApiError, Missed):
        if submission.storage:
            workspaces.withdraw(submission.storage, submission.folder)
        raise
    records.keep(client, submission.text, submission.origin)
    try:
        job = _settled(client, key)
        saw_jobs(client, [job])
        return job
    except Unreachable as err:
        raise Unreachable(f"job {name!r} is submitted, but then there was {err}") from err


def _settled(client: Client, key: str) -> JobInfo:
    """The job as the cluster tells it; the oldest servers know it a moment after they took it."""
    for pause in LOOKS[1:]:
        try:
            return client.job(key)
        except NotFound:
            time.sleep(pause)
    return client.job(key)


class Missed(Unreachable):
    """The submission was not answered, and the cluster has no such job."""


def hand_in(client: Client, submission: Submission) -> None:
    """Send the document once; without an answer, look whether it arrived: it is never sent twice blindly."""
    try:
        if submission.v1:
            client.create_job_v1(submission.v1)
        else:
            client.create_job(submission.text)
    except Unreachable as err:
        if not _arrived(client, submission.name, err):
            raise Missed(f"job {submission.name!r} is not submitted: {err}") from err


def _arrived(client: Client, name: str, cause: Unreachable) -> bool:
    """Whether the job is there; a slow server may still be at it, so a no counts only after a while."""
    for pause in LOOKS:
        time.sleep(pause)
        try:
            if exists(client, job_key(client.user, name)):
                return True
        except Unreachable as err:
            unsure = f"whether job {name!r} was submitted is not known: `job.status {name}` will tell"
            raise Unreachable(f"{cause}; {unsure}") from err
    return False


def exists(client: Client, key: str) -> bool:
    try:
        client.job(key)
    except NotFound:
        return False
    return True


def tag(client: Client, job: JobInfo, tags: Sequence[str]) -> JobInfo:
    """The job with the tags put on it; a tag that the cluster refuses does not undo the job."""
    try:
        for name in tags:
            client.add_tag(job.key, name)
    except (ApiError, Unreachable) as err:
        raise type(err)(f"job {job.name!r} is submitted, but not tagged: {err}") from err
    return client.job(job.key) if tags else job


def check_tags(client: Client, tags: Sequence[str]) -> None:
    """Before anything is sent: what no server takes, or what this one knows nothing of."""
    if tags and not client.dialect.tag:
        where = f"cluster {client.cluster.alias!r} (OpenPAI {client.dialect.generation})"
        raise ConfigError(f"{where} knows no tags: leave --tag out")
    for name in tags:
        if not name.strip() or "," in name:
            raise ConfigError(f"--tag needs a word without commas, got {name!r}")
