"""Batches: the tasks that become one job of Slurm, and the script that starts them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from openpai_tasks.protocol.states import role_key
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.ports import counts
from openpai_tasks.server.engines.slurm import needs, programs
from openpai_tasks.server.engines.slurm.needs import SlurmNeed, need
from openpai_tasks.server.engines.slurm.partitions import SlurmNodes
from openpai_tasks.server.engines.slurm.site import SlurmSite

COMMENT = "openpai-tasks:"
MOST_IN_ARRAY = 1000


class SlurmBatch(NamedTuple):
    """The tasks of one job of Slurm; those of a ``gang`` start together, others form an array."""

    name: str
    launches: tuple[Launch, ...]
    gang: bool

    @property
    def has_steps(self) -> bool:
        """Whether its script starts the tasks, rather than becoming the only one."""
        return self.gang and len(self.launches) > 1

    @property
    def components(self) -> list[tuple[SlurmNeed, int]]:
        """The needs in order, with the number of tasks that follow each other with the same need."""
        return [(wanted, len(list(same))) for wanted, same in groupby(self.launches, key=need)]

    def ids(self, job: str) -> list[str]:
        """Return the id of each task, given the id of the job."""
        if not self.gang:
            return [f"{job}_{number}" for number in range(len(self.launches))]
        if len(self.components) == 1:
            return [job] * len(self.launches)
        counts = [count for _, count in self.components]
        return [f"{job}+{number}" for number, count in enumerate(counts) for _ in range(count)]

    def halves(self) -> list[SlurmBatch]:
        """Return the two halves of an array."""
        middle = len(self.launches) // 2
        parts = (self.launches[:middle], self.launches[middle:])
        return [SlurmBatch(_new_name(), part, gang=len(part) == 1) for part in parts]


def make_batches(launches: Iterable[Launch]) -> Iterator[SlurmBatch]:
    """Group launches: the tasks of an attempt, or many attempts of one task with the same need."""
    alone: dict[SlurmNeed, list[Launch]] = {}
    for _, found in groupby(launches, key=lambda launch: launch.folder.parent):
        tasks = tuple(found)
        if len(tasks) > 1:
            yield SlurmBatch(_new_name(), tuple(sorted(tasks, key=need)), gang=True)
        else:
            alone.setdefault(need(tasks[0]), []).extend(tasks)
    for same in alone.values():
        for first in range(0, len(same), MOST_IN_ARRAY):
            part = tuple(same[first : first + MOST_IN_ARRAY])
            yield SlurmBatch(_new_name(), part, gang=len(part) == 1)


def _new_name() -> str:
    return uuid.uuid4().hex


def describe(batch: SlurmBatch, nodes: Mapping[str, str]) -> str:
    """Return the file that the tasks of a batch read on their machines."""
    kind = "gang" if batch.gang else "array"
    plain = re.compile(r"[\w.:-]+", re.ASCII)
    pairs = (pair for pair in nodes.items() if all(map(plain.fullmatch, pair)))
    addresses = " ".join(f"{name}={address}" for name, address in pairs)
    return "".join(f"{line}\n" for line in (kind, addresses, *map(_line, batch.launches)))


def _line(launch: Launch) -> str:
    folder = str(launch.folder.absolute())
    if "\n" in folder:
        raise programs.SlurmRefusal("the folder of jobs on Slurm needs a name without line breaks")
    ports = ",".join(f"{label}={count}" for label, count in counts(launch.ports).items())
    known = "known" if launch.shared else ""
    return "\t".join([launch.uid, role_key(launch.role), str(launch.index), ports, known, folder])


def folders(text: str) -> list[Path]:
    """Return the folders of the tasks in the file of a batch."""
    return [Path(line.split("\t", 5)[-1]) for line in text.split("\n")[2:-1]]


def script(batch: SlurmBatch, path: Path, start: Sequence[str], site: SlurmSite, nodes: SlurmNodes) -> str:
    """Return the batch script; ``path`` is the batch's file, ``start`` begins the command of each task."""
    heads = [
        " ".join(
            [
                *needs.site_options(wanted, site, nodes),
                *needs.resource_options(wanted, count if batch.gang else 1),
            ]
        )
        for wanted, count in batch.components[: None if batch.gang else 1]
    ]
    lines = ["#!/bin/sh", *(f"#SBATCH {option}" for option in _job_options(batch, path))]
    lines += [f"#SBATCH {heads[0]}", *(f"#SBATCH hetjob\n#SBATCH {head}" for head in heads[1:])]
    if conf := os.environ.get("SLURM_CONF"):
        lines.append(f"export SLURM_CONF={shlex.quote(conf)}")
    command = shlex.join([*start, str(path)])
    if not batch.gang:
        lines.append(f'exec {command} "$SLURM_ARRAY_TASK_ID" batch')
    elif batch.has_steps:
        lines += _steps(batch, command)
    else:
        lines.append(f"exec {command} 0 batch")
    return "\n".join(lines) + "\n"


def _steps(batch: SlurmBatch, command: str) -> Iterator[str]:
    """Yield one step for each component; tasks that fail leave the others running."""
    srun, first = shlex.quote(shutil.which("srun") or "srun"), 0
    is_het = len(batch.components) > 1
    for number, (wanted, count) in enumerate(batch.components):
        group = f"--het-group={number} " if is_het else ""
        options = " ".join(needs.resource_options(wanted, count, is_step=True))
        yield f"{srun} {group}{options} --kill-on-bad-exit=0 --quiet {command} {first} step &"
        first += count
    yield "wait"


def _job_options(batch: SlurmBatch, path: Path) -> Iterator[str]:
    label = batch.launches[0].container.labels.get("openpai-tasks.job", "") or "openpai-tasks"
    name = re.sub(r"[^\w.~-]", "_", label, flags=re.ASCII)
    yield f"--job-name={name}"
    yield f"--comment={COMMENT}{batch.name}"
    yield f'--output="{path.with_suffix(".log")}"'
    yield "--open-mode=append"
    yield "--requeue"  # if a node cannot start it; a task that has begun does not run again
    yield f'--chdir="{path.parent}"'
    if not batch.gang:
        yield f"--array=0-{len(batch.launches) - 1}"


def base_id(id: str) -> str:
    """Return the id of the whole job, without the component or the element of an array."""
    return re.split(r"[_+]", id)[0]


def is_of_other(row: programs.QueueRow, name: str, folder: Path) -> bool:
    """Whether a job is not of this batch: a controller that was killed may give out an id a second time.

    A site may replace comments; ``folder`` has the files of all our batches.
    """
    found = name_of(row)
    return found != name if found else row.folder != str(folder)


def name_of(row: programs.QueueRow) -> str:
    """Return the name of a job's batch; empty if the job is not ours."""
    return row.comment.removeprefix(COMMENT) if row.comment.startswith(COMMENT) else ""


def find_by_comment(rows: Iterable[programs.QueueRow]) -> dict[str, str]:
    """Return the ids of jobs by the name of their batch."""
    return {name: base_id(row.id) for row in rows if (name := name_of(row))}
