"""What a virtual cluster has, how much of it works and is taken, and whether a job can ever fit into it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol.fields import count, mapping, number, rows
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.settings.registry import LOCAL

Amount = int | float | None

KINDS = {"gpu": ("GPUs", "gpu"), "cpu": ("vCores", "cpu"), "memoryMB": ("memory",)}
"""What a job asks for, and the names that generations of servers have for it."""

WORDS = {"gpu": "GPUs", "cpu": "CPUs", "memoryMB": "MB of memory"}
RUNS_ALONE = "run alone"  # in notes of the embedded cluster, which may let a job have more than there is


@dataclass(frozen=True)
class Capacity:
    """One kind of resource of a virtual cluster; ``total`` counts nodes that are down, too."""

    used: Amount = None
    usable: Amount = None
    total: Amount = None

    @property
    def unavailable(self) -> Amount:
        return None if self.total is None or self.usable is None else max(0, self.total - self.usable)


@dataclass(frozen=True)
class Need:
    """What all tasks of a job ask for, and the least that must be free at once; by the keys of KINDS."""

    all: dict[str, int]
    at_once: dict[str, int]

    def __str__(self) -> str:
        return f"{self.all['gpu']} GPUs, {self.all['cpu']} CPUs and {self.all['memoryMB']} MB of memory"


def capacity(record: Mapping[str, Any], kind: str) -> Capacity:
    """One kind of a virtual cluster's record; without ``resourcesGuaranteed``, as on 0.14, all is usable."""
    sides = ("resourcesUsed", "resourcesGuaranteed", "resourcesTotal")
    used, guaranteed, total = (_amount(record.get(side), KINDS[kind]) for side in sides)
    return Capacity(used, total if guaranteed is None else guaranteed, total)


def need(document: Mapping[str, Any]) -> Need:
    """What the roles of a document ask for; without gang allocation a job begins with one task."""
    roles = rows(list(mapping(document.get("taskRoles")).values()))
    tasks = [(count(role.get("instances", 1)), mapping(role.get("resourcePerInstance"))) for role in roles]
    every = {kind: sum(instances * count(one.get(kind)) for instances, one in tasks) for kind in KINDS}
    if mapping(document.get("extras")).get("gangAllocation") is False:
        largest = {kind: max((count(one.get(kind)) for _, one in tasks), default=0) for kind in KINDS}
        return Need(every, largest)
    return Need(every, every)


def record_of(client: Backend, job: JobInfo) -> Mapping[str, Any]:
    """What the cluster tells of the job's virtual cluster; nothing if it does not."""
    with contextlib.suppress(PaiError):
        return mapping(client.virtual_clusters().get(job.virtual_cluster or "default"))
    return {}


def never_fits(
    client: Backend, job: JobInfo, asked: Need, record: Mapping[str, Any], notes: list[str]
) -> tuple[str, str] | None:
    """Why the job cannot start however long it waits, and what to do; nothing if it may."""
    if client.cluster.alias == LOCAL or any(RUNS_ALONE in note for note in notes):
        return None
    for kind in KINDS:
        have, wanted = capacity(record, kind), asked.at_once[kind]
        if have.usable is None or wanted <= have.usable:
            continue
        where = f"virtual cluster {job.virtual_cluster or 'default'}"
        advice = f"ask for less: `pai job.resubmit {job.name} {_flag(kind)}`"
        words = f"it asks for {wanted} {WORDS[kind]}, and {where} has"
        if have.total is None or wanted > have.total:
            return f"{words} {have.total or have.usable:g} in all: it can never start as it is", advice
        words += f" {have.usable:g} that can be used: {have.unavailable:g} of {have.total:g} are unavailable,"
        return f"{words} and it cannot start until they are back", f"{advice}, or ask the administrator"
    return None


def not_free(asked: Need, record: Mapping[str, Any]) -> tuple[str, str] | None:
    """What the job asks for and others have now; GPUs are what lacks."""
    have, wanted = capacity(record, "gpu"), asked.at_once["gpu"]
    if have.usable is None or wanted <= (free := max(0, have.usable - (have.used or 0))):
        return None
    meaning = f"it asks for {wanted} GPUs, and {free:g} of {have.usable:g} are free"
    return meaning, "wait, or ask for less; `cluster.resources` shows what is free"


def _flag(kind: str) -> str:
    return "--gpu N" if kind == "gpu" else f"-u taskRoles.ROLE.resourcePerInstance.{kind}=N"


def _amount(side: Any, names: tuple[str, ...]) -> Amount:
    """The amount under the first of these names that has one."""
    found = (number(mapping(side).get(name)) for name in names)
    return next((amount for amount in found if amount is not None), None)
