"""What lines of output and notes of the platform usually mean, and what to do then; data and two searches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """A pattern, what it means, and what helps; ``{0}`` is the first group of the pattern."""

    pattern: re.Pattern[str]
    meaning: str
    advice: str

    def read(self, line: str) -> tuple[str, str] | None:
        found = self.pattern.search(line)
        return found and (self.meaning.format(*found.groups()), self.advice.format(*found.groups()))


def _symptom(pattern: str, meaning: str, advice: str) -> Symptom:
    return Symptom(re.compile(pattern, re.IGNORECASE), meaning, advice)


IN_OUTPUT = (
    _symptom(
        r"^error: (the sources (?:are damaged|cannot be (?:checked|unpacked))|cannot fetch the sources)",
        "it did not get its sources: {0}",
        "submit it again, which sends anew what is missing or damaged, and check that the image has tar,"
        " sha256sum and, for HDFS, curl",
    ),
    _symptom(
        r"^error: cannot keep the output",
        "its output could not be sent to the storage",
        "check that the image has curl, and that the cluster's nodes reach the storage",
    ),
    _symptom(
        r"No module named '?([\w.]+)",
        "Python found no module {0}",
        "install it (`--pip-installs NAME`), choose an image that has it, or take it along (`--sources`)",
    ),
    _symptom(
        r"(?:CUDA|HIP|GPU).{0,20}out of memory",
        "the memory of the GPU was not enough",
        "make the batch or the model smaller, or ask for a GPU with more memory",
    ),
    _symptom(
        r"CUDA (?:driver|error)|no CUDA-capable device|NVIDIA driver",
        "the program could not use a GPU",
        "ask for GPUs (`--gpu 1`), and check that the image's CUDA fits the driver",
    ),
    _symptom(
        r"can't open file|No such file or directory",
        "a file was not there",
        "take it along with `--sources`, and check the path: a job starts in a folder of its own",
    ),
    _symptom(
        r"([\w./-]+): (?:command )?not found",
        "the command {0} is not there",
        "check its spelling, and that the image has it",
    ),
    _symptom(
        r"No space left on device",
        "the disk is full",
        "write less, or write to a storage; the local disk of a node is small",
    ),
    _symptom(
        r"MemoryError|Cannot allocate memory", "the memory was not enough", "ask for more (`--memoryMB`)"
    ),
    _symptom(
        r"([\w./-]+: )?Permission denied",
        "something may not be read, written or run",
        "check the file's mode (`chmod +x` for scripts) and who may write there",
    ),
    _symptom(
        r"unbound variable|parameter not set",
        "a variable was used that is not set, and jobs run with `set -u`",
        "set it (`--env NAME=VALUE`), or write ${{NAME-}}",
    ),
    _symptom(
        r"Address already in use",
        "a port was taken",
        "use the ports that the job is given (PAI_CONTAINER_HOST_*_PORT_LIST), not fixed ones",
    ),
    _symptom(
        r"Could not resolve host|Name or service not known|Temporary failure in name resolution",
        "a host name could not be looked up",
        "check the address, and whether the cluster's nodes may reach it",
    ),
    _symptom(r"^\s*SyntaxError: (.+)", "the code has an error: {0}", "mend it, and submit again"),
)
"""From the most telling to the least; the first that fits counts."""

IN_EVENTS = (
    _symptom(
        r"ErrImagePull|ImagePullBackOff|pull image|manifest unknown",
        "the image cannot be pulled",
        "check the image's name and tag, and whether the cluster may read that registry",
    ),
    _symptom(
        r"cannot start|more than .* has: it cannot",
        "it asks for more than there is, so it will never start as it is",
        "ask for less: `job.resubmit NAME --gpu N`, or `-u taskRoles.ROLE.resourcePerInstance.cpu=N`",
    ),
    _symptom(
        r"waits until it can run alone",
        "it asks for more than there is, so it waits until nothing else runs",
        "ask for less, or wait",
    ),
    _symptom(
        r"Insufficient|needs .*; free in|nodes are available|insufficient",
        "what it asks for is not free now",
        "wait, or ask for less; `cluster.resources` shows what is free",
    ),
    _symptom(
        r"behind job (\S+)",
        "it stands in line behind other jobs of its virtual cluster",
        "wait, or use another virtual cluster (`-u defaults.virtualCluster=NAME`)",
    ),
    _symptom(
        r"FailedMount|MountVolume",
        "a storage cannot be mounted",
        "check `extras.storages` of the job, and ask the cluster's administrator",
    ),
)


def in_output(lines: Iterable[str]) -> tuple[str, str] | None:
    """The meaning and the advice of the most telling line; of several, the last."""
    return _first(IN_OUTPUT, list(lines)[::-1])


def in_events(lines: Iterable[str]) -> tuple[str, str] | None:
    """The same for what the platform noted, newest first."""
    return _first(IN_EVENTS, list(lines))


def _first(symptoms: Iterable[Symptom], lines: list[str]) -> tuple[str, str] | None:
    readings = (symptom.read(line) for symptom in symptoms for line in lines)
    return next((reading for reading in readings if reading), None)
