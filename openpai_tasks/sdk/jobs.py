"""Jobs as a person wants them: submit, find, wait, watch, stop."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import re
import secrets
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.client import Client
from openpai_tasks.errors import (
    ApiError,
    ConfigError,
    Conflict,
    JobFailed,
    NotFound,
    PathError,
    ProtocolError,
    TimedOut,
    Unreachable,
)
from openpai_tasks.protocol import JobSpec
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.polling import Pauses
from openpai_tasks.storage import workspace as workspaces
from openpai_tasks.storage.sources import Source, collect
from openpai_tasks.storage.workspace import Storage

UNFINISHED = "WAITING,RUNNING,STOPPING"
ALL = 50_000  # the most jobs that a server lists at once


@dataclass(frozen=True)
class Submission:
    """Exactly what will be sent, and the files that go ahead of it."""

    name: str
    text: str
    sources: tuple[Source, ...] = ()
    storage: Storage | None = None
    folder: str = ""

    @property
    def size(self) -> int:
        return sum(source.size for source in self.sources)


def prepare(client: Client, spec: JobSpec, sources: Sequence[str], workspace: str, here: Path) -> Submission:
    """Name the job, find its files, build and check the document; nothing is sent yet."""
    if not spec.command.strip():
        raise ConfigError("the command is empty: say what the job shall run")
    spec = dataclasses.replace(spec, name=new_name(spec.name, spec.command))
    files = collect(sources, here)
    storage, folder = None, ""
    if files:
        storage = default_storage(client)
        folder = workspaces.source_folder(workspace, spec.name)
        spec = dataclasses.replace(spec, storage=storage.name, sources_folder=f"/mnt/{storage.name}/{folder}")
    text = protocol.dump(protocol.document(spec))
    protocol.validate(text)
    return Submission(spec.name, text, files, storage, folder)


def read(path: Path) -> tuple[Submission, bool]:
    """A job file, v2 YAML or v1 JSON; True if it was v1 and had to be converted."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read the job file {str(path)!r}: {reason}") from err
    v1 = _as_v1(text)
    if v1 is None:
        return Submission(protocol.validate(text).name, text), False
    converted = protocol.dump(protocol.to_v2(protocol.validate_v1(v1)))
    return Submission(protocol.validate(converted).name, converted), True


def _as_v1(text: str) -> dict[str, Any] | None:
    """The document if it is of version 1, which has a ``jobName`` and no ``protocolVersion``."""
    try:
        found = json.loads(text)  # first: JSON may be indented with tabs, which YAML refuses
    except ValueError:
        found = protocol.read(text).value
    is_v1 = isinstance(found, dict) and "jobName" in found and "protocolVersion" not in found
    return found if is_v1 else None


def new_name(name: str | None, command: str) -> str:
    """The name asked for, each ``$`` in it replaced by random letters; or one that tells the command."""
    if name:
        return re.sub(r"\$", lambda _: _letters(10), name)
    words = re.findall(r"[A-Za-z0-9]+", command)[:3]
    return "-".join([*words, _letters(6)])[-255:].lower()


def _letters(count: int) -> str:
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(count))


def default_storage(client: Client) -> Storage:
    """The storage that sources go to."""
    found = client.storages(default=True) or client.storages()
    if not found:
        raise ConfigError(f"cluster {client.cluster.alias!r} grants no storage, so sources cannot be sent")
    return workspaces.open_storage(client.storage(found[0]["name"]), client.user)


def submit(client: Client, submission: Submission) -> JobInfo:
    """Upload the sources, hand in the document, return what the cluster now says."""
    key = job_key(client.user, submission.name)
    if _exists(client, key):
        where = f"cluster {client.cluster.alias!r}"
        raise Conflict(f"a job named {submission.name!r} exists on {where}; choose another name", 409)
    if submission.storage:
        workspaces.publish(submission.storage, submission.folder, submission.sources)
    try:
        client.create_job(submission.text)
    except ApiError:
        if submission.storage:
            workspaces.withdraw(submission.storage, submission.folder)
        raise
    except Unreachable:
        if not _exists(client, key):  # else only the answer was lost
            raise
    return client.job(key)


def _exists(client: Client, key: str) -> bool:
    try:
        client.job(key)
    except NotFound:
        return False
    return True


def find(client: Client, name: str) -> JobInfo:
    """The job by its name, or ``user~name`` for somebody else's."""
    try:
        return client.job(key_of(client, name))
    except NotFound as err:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(f"no job named {name!r} on {where}; `job.list` shows them", 404, err.code) from err


def describe(client: Client, name: str) -> JobInfo:
    """The job with what the platform noted about it; servers before 1.3 note nothing."""
    job = find(client, name)
    with contextlib.suppress(NotFound):
        return dataclasses.replace(job, events=client.job_events(job.key))
    return job


def key_of(client: Client, name: str) -> str:
    if not name.strip():
        raise ConfigError("the job name is empty")
    return name if "~" in name else job_key(client.user, name)


def watch(client: Client, name: str, timeout: float | None = None) -> Iterator[JobInfo]:
    """The job whenever it has changed, until it is over."""
    pauses = Pauses(client, timeout)
    job, shown = find(client, name), None
    while True:
        if job != shown:
            yield job
        if job.final:
            return
        if pauses.over:
            raise TimedOut(f"job {job.name!r} is still {job.state} after {timeout:g} s; it goes on")
        pauses.wait()
        job, shown = client.job(job.key), job


def wait(client: Client, name: str, timeout: float | None = None) -> JobInfo:
    """The job when it is over."""
    *_, last = watch(client, name, timeout)
    return last


def check(job: JobInfo) -> None:
    """Raise what makes the command end as the job did, unless it succeeded."""
    if job.exit_status:
        reason = f" ({job.message})" if job.message else ""
        raise JobFailed(f"job {job.name!r} is {job.state}{reason}", job.exit_status)


def stop(client: Client, names: Sequence[str]) -> list[JobInfo]:
    """Ask jobs to stop, by name or pattern; nothing is stopped if one of them is unknown."""
    if not names:
        raise ConfigError("which job? give names or patterns such as 'train-*'")
    jobs = {job.key: job for name in names for job in _matching(client, name)}
    for key, job in jobs.items():
        if not job.final:
            client.set_execution(key, "STOP")
    return [client.job(key) for key in jobs]


def _matching(client: Client, name: str) -> list[JobInfo]:
    if not set("*?[") & set(name):
        return [find(client, name)]
    user, _, pattern = name.rpartition("~")
    active = client.jobs(username=user or client.user, state=UNFINISHED, limit=ALL)
    found = [job for job in active if fnmatch.fnmatchcase(job.name, pattern)]
    if not found:
        raise NotFound(f"no unfinished job matches {name!r}", 404)
    return found


def config(client: Client, name: str) -> dict[str, Any]:
    """The document the job was submitted as; the server has masked its secrets."""
    import yaml

    found = yaml.safe_load(client.job_config(find(client, name).key))
    return found if isinstance(found, dict) else {"text": found}


@dataclass(frozen=True)
class Verdict:
    """What a server would say of a job file."""

    file: str
    valid: bool
    problem: str = ""
    problems: tuple[object, ...] = ()


def verdict(path: Path) -> Verdict:
    try:
        read(path)
    except ProtocolError as err:
        return Verdict(str(path), False, str(err), err.problems)
    return Verdict(str(path), True)


def check_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Raise unless every file is valid."""
    wrong = [verdict.file for verdict in verdicts if not verdict.valid]
    if wrong:
        raise ProtocolError(f"{len(wrong)} of {len(verdicts)} job files are not valid: {', '.join(wrong)}")
