"""Common causes of failures, recognised in output lines and platform events, with advice."""

from __future__ import annotations

import re
from collections.abc import Iterable

from openpai_tasks.hints import in_this_program
from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Symptom:
    """A pattern, its meaning and advice; ``{0}`` is the pattern's first group."""

    pattern: re.Pattern[str]
    meaning: str
    advice: str

    def read(self, line: str) -> tuple[str, str] | None:
        found = self.pattern.search(line)
        return found and (
            self.meaning.format(*found.groups()),
            in_this_program(self.advice.format(*found.groups())),
        )


def _new_symptom(pattern: str, meaning: str, advice: str) -> Symptom:
    return Symptom(re.compile(pattern, re.IGNORECASE), meaning, advice)


INSTALL = "install it (`--pip-installs NAME`), use an image that has it, or send it along (`--sources`)"
_MODULE = r"No module named '?([\w.]+)"

IN_OUTPUT = (
    _new_symptom(
        r"^error: (the sources (?:are damaged|cannot be (?:checked|unpacked))|cannot fetch the sources)",
        "it did not get its sources: {0}",
        "submit it again, which sends missing or damaged files again, and check that the image has tar,"
        " sha256sum and, for HDFS, curl or python3",
    ),
    _new_symptom(
        r"^error: cannot keep the output",
        "its output could not be sent to the storage",
        "check that the image has curl or python3, and that the cluster's nodes reach the storage",
    ),
    _new_symptom(_MODULE, "Python found no module {0}", INSTALL),
    _new_symptom(
        r"(?:CUDA|HIP|GPU).{0,20}out of memory",
        "the GPU ran out of memory",
        "use a smaller batch or model, or a GPU with more memory",
    ),
    _new_symptom(
        r"CUDA (?:driver|error)|no CUDA-capable device|NVIDIA driver",
        "the program could not use a GPU",
        "request GPUs (`--gpu 1`), and check that the image's CUDA version suits the driver",
    ),
    _new_symptom(
        r"can't open file|No such file or directory",
        "a file was not found",
        "send it along with `--sources`, and check the path: a job starts in its own folder",
    ),
    _new_symptom(
        r"(?<![\w./-])(python|pip): (?:command )?not found",
        "command {0} was not found",
        "write `{0}3`: many systems have no {0}, unless a virtual environment is active",
    ),
    _new_symptom(
        r"(?<![\w./-])([\w./-]+): (?:command )?not found",
        "command {0} was not found",
        "check the spelling, and that the image has it",
    ),
    _new_symptom(
        r"No space left on device",
        "the disk is full",
        "write less, or write to a storage: a node's local disk is small",
    ),
    _new_symptom(
        r"MemoryError|Cannot allocate memory", "it ran out of memory", "request more (`--memoryMB`)"
    ),
    _new_symptom(
        r"Permission denied",
        "permission was denied",
        "check the file's mode (`chmod +x` for scripts) and owner",
    ),
    _new_symptom(
        r"unbound variable|parameter not set",
        "a variable is not set, and jobs run with `set -u`",
        "set it (`--env NAME=VALUE`), or write ${{NAME-}}",
    ),
    _new_symptom(
        r"Address already in use",
        "a port was already in use",
        "use the ports assigned to the job (PAI_CONTAINER_HOST_*_PORT_LIST), not fixed ones",
    ),
    _new_symptom(
        r"Could not resolve host|Name or service not known|Temporary failure in name resolution",
        "a host name could not be resolved",
        "check the address, and whether the cluster's nodes can reach it",
    ),
    _new_symptom(r"^\s*SyntaxError: (.+)", "the code has an error: {0}", "fix it and submit again"),
)
"""Most specific first; the first match counts."""

IN_EVENTS = (
    _new_symptom(
        r"ErrImagePull|ImagePullBackOff|pull image|manifest unknown",
        "the image cannot be pulled",
        "check the image's name and tag, and whether the cluster has access to the registry",
    ),
    _new_symptom(
        r"cannot start| has: it cannot",
        "it asks for more than the cluster has, so it will never start",
        "ask for less: `pai job.resubmit NAME --gpu N`, or `-u taskRoles.ROLE.resourcePerInstance.cpu=N`",
    ),
    _new_symptom(
        r"waits until it can run alone",
        "it asks for more than the cluster has, so it waits until nothing else runs",
        "ask for less, or wait",
    ),
    _new_symptom(
        r"Insufficient|; free in |nodes are available|insufficient",
        "the requested resources are not free",
        "wait, or ask for less; see what is free with `pai cluster.resources`",
    ),
    _new_symptom(
        r"behind job (\S+)",
        "it is queued behind other jobs of its virtual cluster",
        "wait, or use another virtual cluster (`-u defaults.virtualCluster=NAME`)",
    ),
    _new_symptom(
        r"FailedMount|MountVolume",
        "a storage cannot be mounted",
        "check the job's `extras.storages`, and ask the cluster's administrator",
    ),
    _new_symptom(
        r"(Slurm does not answer)",
        "{0}, so it is not in the queue yet, or nothing is known about it",
        "wait: it continues when Slurm answers; `pai cluster.status` shows the trouble",
    ),
)


def missing_module(lines: Iterable[str]) -> str:
    """Return the module that Python did not find, of the last line about one; empty if there is none."""
    found = [match[1] for line in lines if (match := re.search(_MODULE, line))]
    return found[-1] if found else ""


def in_output(lines: Iterable[str]) -> tuple[str, str] | None:
    """Return meaning and advice for the most specific symptom, in the last line that shows it."""
    return _first(IN_OUTPUT, list(lines)[::-1])


def in_events(lines: Iterable[str]) -> tuple[str, str] | None:
    """Return meaning and advice for platform events, newest first."""
    return _first(IN_EVENTS, list(lines))


def _first(symptoms: Iterable[Symptom], lines: list[str]) -> tuple[str, str] | None:
    readings = (symptom.read(line) for symptom in symptoms for line in lines)
    return next((reading for reading in readings if reading), None)
