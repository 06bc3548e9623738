"""Common causes of failures, recognised in output lines and platform events, with advice."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.clusters.inactive_python import FOREIGN, activation, inactive_environments
from openpai_tasks.sdk.jobs import documents, lookup
from openpai_tasks.text.hints import in_this_program


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

INSTALL = "install it (`--pip-installs NAME`), use an image that has it, or send it along (`--sources`)"
_MODULE = r"No module named '?([\w.]+)"

IN_OUTPUT = (
    Symptom(
        r"^error: (the sources (?:are damaged|cannot be (?:checked|unpacked))|cannot fetch the sources)",
        "it did not get its sources: {0}",
        "submit it again, which sends missing or damaged files again, and check that the image has tar,"
        " sha256sum and, for HDFS, curl or python3",
    ),
    Symptom(
        r"^error: cannot keep the output",
        "its output could not be sent to the storage",
        "check that the image has curl or python3, and that the cluster's nodes reach the storage",
    ),
    Symptom(_MODULE, "Python found no module {0}", INSTALL),
    Symptom(
        r"(?:CUDA|HIP|GPU).{0,20}out of memory",
        "the GPU ran out of memory",
        "use a smaller batch or model, or a GPU with more memory",
    ),
    Symptom(
        r"CUDA (?:driver|error)|no CUDA-capable device|NVIDIA driver",
        "the program could not use a GPU",
        "request GPUs (`--gpu 1`), and check that the image's CUDA version suits the driver",
    ),
    Symptom(
        r"can't open file|No such file or directory",
        "a file was not found",
        "send it along with `--sources`, and check the path: a job starts in its own folder",
    ),
    Symptom(
        r"(?<![\w./-])(python|pip): (?:command )?not found",
        "command {0} was not found",
        "write `{0}3`: many systems have no {0}, unless a virtual environment is active",
    ),
    Symptom(
        r"(?<![\w./-])([\w./-]+): (?:command )?not found",
        "command {0} was not found",
        "check the spelling, and that the image has it",
    ),
    Symptom(
        r"No space left on device",
        "the disk is full",
        "write less, or write to a storage: a node's local disk is small",
    ),
    Symptom(r"MemoryError|Cannot allocate memory", "it ran out of memory", "request more (`--memoryMB`)"),
    Symptom(
        r"Permission denied",
        "permission was denied",
        "check the file's mode (`chmod +x` for scripts) and owner",
    ),
    Symptom(
        r"unbound variable|parameter not set",
        "a variable is not set, and jobs run with `set -u`",
        "set it (`--env NAME=VALUE`), or write ${{NAME-}}",
    ),
    Symptom(
        r"Address already in use",
        "a port was already in use",
        "use the ports assigned to the job (PAI_CONTAINER_HOST_*_PORT_LIST), not fixed ones",
    ),
    Symptom(
        r"Could not resolve host|Name or service not known|Temporary failure in name resolution",
        "a host name could not be resolved",
        "check the address, and whether the cluster's nodes can reach it",
    ),
    Symptom(r"^\s*SyntaxError: (.+)", "the code has an error: {0}", "fix it and submit again"),
)
"""Most specific first; the first match counts."""

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
        "wait, or use another virtual cluster (`-u defaults.virtualCluster=NAME`)",
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


def in_output(lines: Iterable[str]) -> tuple[str, str] | None:
    """Return meaning and advice for the most specific symptom, in the last line that shows it."""
    return _first(IN_OUTPUT, list(lines)[::-1])


def in_events(lines: Iterable[str]) -> tuple[str, str] | None:
    """Return meaning and advice for platform events, newest first."""
    return _first(IN_EVENTS, list(lines))


def _first(symptoms: Iterable[Symptom], lines: list[str]) -> tuple[str, str] | None:
    readings = (symptom.read(line) for symptom in symptoms for line in lines)
    return next((reading for reading in readings if reading), None)


# What a job did not find, although it is there


def explain_module(client: Backend, job: JobInfo, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return meaning and advice if the job lacked a module that is installed here; else None."""
    missing = [match[1] for line in lines if (match := re.search(_MODULE, line))]
    name = missing[-1] if missing else ""
    active = python_folder(os.environ)
    known = [Path(active)] if active else inactive_environments(Path.cwd(), own=True)
    here = next((str(one) for one in known if name and _is_installed(name, one)), "")
    if not here:
        return None
    found = f"module {name} is installed in {here}"
    if not job.environment:
        return f"{found}, but not where the job ran", INSTALL
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
    top = name.partition(".")[0]
    return any(
        any(packages.glob(f"{top}{ending}"))
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
