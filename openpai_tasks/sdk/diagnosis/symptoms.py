"""What events of the platform mean, and what a job did not find although it is on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from openpai_tasks import causes
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.clusters.inactive_python import FOREIGN, activation, inactive_environments
from openpai_tasks.sdk.jobs import documents, lookup
from openpai_tasks.sdk.jobs.records import find_record
from openpai_tasks.text.hints import in_this_program
from openpai_tasks.text.plain import one_line


@dataclass(frozen=True)
class Symptom:
    """A pattern, its meaning and advice; ``{0}`` is the pattern's first group."""

    pattern: str
    meaning: str
    advice: str

    def read(self, line: str) -> tuple[str, str] | None:
        found = re.search(self.pattern, line, re.IGNORECASE)
        return found and (
            self.meaning.format(*found.groups()),
            in_this_program(self.advice.format(*found.groups())),
        )


ENDINGS = ("", ".py", ".so", ".*.so")
ROOT = "$PAI_MOUNT_ROOT"
FAILURE = re.compile(r"No such file or directory|Permission denied|does not exist", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.~}/-])/[^\s'\"\u2019:;,)\]]+")

IN_EVENTS = (
    Symptom(
        r"ErrImagePull|ImagePullBackOff|pull image|manifest unknown",
        "the image cannot be pulled",
        "check the image's name and tag, and whether the cluster has access to the registry",
    ),
    Symptom(
        r"cannot start| has: it cannot",
        "it asks for more than the cluster has, so it will never start",
        "ask for less: `pai job.resubmit NAME --gpu N`, or `-u taskRoles.ROLE.resourcePerInstance.cpu=N`",
    ),
    Symptom(
        r"waits until it can run alone",
        "it asks for more than the cluster has, so it waits until nothing else runs",
        "ask for less, or wait",
    ),
    Symptom(
        r"(needs \d{1,9} GPUs?; .{1,40}: GPU \d{1,9} is used by .+)",
        "it {0}",
        "wait, or ask for less; `pai cluster.resources` shows who uses GPUs",
    ),
    Symptom(
        r"Insufficient|; free in |nodes are available|insufficient",
        "the requested resources are not free",
        "wait, or ask for less; see what is free with `pai cluster.resources`",
    ),
    Symptom(
        r"behind job (\S+)",
        "it is queued behind other jobs of its virtual cluster",
        "wait; `pai job.move NAME --first` puts it before your other waiting jobs",
    ),
    Symptom(
        r"FailedMount|MountVolume",
        "a storage cannot be mounted",
        "check the job's `extras.storages`, and ask the cluster's administrator",
    ),
    Symptom(
        r"(Slurm does not answer)",
        "{0}, so it is not in the queue yet, or nothing is known about it",
        "wait: it continues when Slurm answers; `pai cluster.status` shows the trouble",
    ),
)


def in_events(lines: Sequence[str]) -> tuple[str, str] | None:
    """Return meaning and advice for platform events, newest first."""
    readings = (symptom.read(line) for symptom in IN_EVENTS for line in lines)
    return next(filter(None, readings), None)


# What a job did not find, although it is there


def explain_missing(client: Backend, job: JobInfo, cause: causes.FoundCause) -> tuple[str, str] | None:
    """Return a fact, which may be empty, and advice if this machine has what the job lacked; else None."""
    if cause.row is causes.MISSING_MODULE:
        name = cause.groups[0].strip(".").partition(".")[0]
        if not name:
            return None
        return _explain_module(client, job, name) or _explain_file(client, job, f"{name}.py", name)
    return _explain_file(client, job, cause.groups[0]) if cause.row is causes.MISSING_FILE else None


def _explain_file(client: Backend, job: JobInfo, *paths: str) -> tuple[str, str] | None:
    """Return advice if the job was submitted from this folder, without a file that is here; else None."""
    with contextlib.suppress(ConfigError):
        record = find_record(Path.cwd(), job.name, client.cluster.alias)
        for name in (os.path.normpath(causes.task_paths_removed(path)) for path in paths if path and record):
            if name.startswith(("/", "..", "-")) or name == "." or not os.path.exists(name):
                continue
            if record and not any(f"{sent}/".startswith(f"{name}/") for sent in record.files):
                why = f"{one_line(name)} is in this folder, but was not sent with the job"
                return "", f"{why}: add `--sources {shlex.quote(name)}` to the command that submits it"
    return None


def _explain_module(client: Backend, job: JobInfo, name: str) -> tuple[str, str] | None:
    """Return a fact and advice if the module is installed in the user's environment; else None."""
    active = python_folder(os.environ)
    known = [Path(active)] if active else inactive_environments(Path.cwd(), own=True)
    here = next((str(one) for one in known if _is_installed(name, one)), "")
    if not here:
        return None
    found = f"module {name} is installed in {here}"
    if not job.environment:
        return f"{found}, but not where the job ran", in_this_program(causes.MISSING_MODULE.advise([name]))
    if job.python and os.path.realpath(job.python) == os.path.realpath(here):
        return f"{found}, but the command used another Python", "start `python` without a path before it"
    ran = f"with {job.python}" if job.python else "without a virtual environment"
    if active:
        activate = ""
    else:
        how = activation(Path(here))
        activate = f"activate it (`{how}`), then " if how else f"{FOREIGN}; then "
    again = f"`{lookup.command_for(client, 'job.resubmit', job)}` runs the job in your environment"
    return f"{found}, but the job ran {ran}", activate + again


def _is_installed(name: str, folder: Path) -> bool:
    """Whether one of the environment's folders of packages has the module."""
    return any(
        any(packages.glob(f"{name}{ending}"))
        for packages in folder.glob("lib/python3*/site-packages")
        for ending in ENDINGS
    )


def explain_mount(client: Backend, job: JobInfo, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return meaning and advice if the job looked for a storage at its path in containers; else None."""
    named = [path for line in lines if FAILURE.search(line) for path in PATH.findall(line)]
    for mount in _mounts(client, job) if named else ():
        if any(path == mount or path.startswith(f"{mount}/") for path in named):
            code = f"os.environ.get('PAI_MOUNT_ROOT', '') + '{mount}'"
            return (
                f"the storage is not at {mount} here",
                f"write ${{PAI_MOUNT_ROOT-}}{mount}; in Python, {code}",
            )
    return None


def _mounts(client: Backend, job: JobInfo) -> Iterator[str]:
    """Yield the paths in containers of storages that tasks of this cluster find below PAI_MOUNT_ROOT."""
    with contextlib.suppress(PaiError):
        points = [one.mount_point for one in client.storages() if one.mount_point.startswith(ROOT)]
        yield from (point.removeprefix(ROOT) for point in points)
        if points:
            extras = fields.mapping(documents.job_document(client, job.key)[1].get("extras"))
            paths = (fields.text(one.get("mountPath")) for one in fields.rows(extras.get("storages")))
            yield from (path.rstrip("/") for path in paths if path.startswith("/"))
