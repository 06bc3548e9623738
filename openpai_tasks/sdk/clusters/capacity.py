"""Capacity of a virtual cluster: total, usable and used, and whether a job can ever fit."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from openpai_tasks.backends.base import Backend, VirtualCluster
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import count, mapping, rows
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

RESOURCES = {"gpu": "GPUs", "cpu": "CPUs", "memoryMB": "MB of memory"}
"""Resources in a job document, with their names for users."""

RUNS_ALONE = "run alone"  # in notes of the embedded cluster, which may let a job have more than there is


@dataclass(frozen=True)
class RequestedResources:
    """Resources of all tasks of a job, and the minimum to be free at once, by the keys of RESOURCES."""

    all: dict[str, int]
    at_once: dict[str, int]

    def __str__(self) -> str:
        gpus, cpus = counted(self.all["gpu"], "GPU"), counted(self.all["cpu"], "CPU")
        return f"{gpus}, {cpus} and {self.all['memoryMB']} MB of memory"


def requested_resources(document: Mapping[str, Any]) -> RequestedResources:
    """Return what the roles of a document request; without gang allocation, a job can start with one task."""
    roles = rows(list(mapping(document.get("taskRoles")).values()))
    tasks = [(count(role.get("instances", 1)), mapping(role.get("resourcePerInstance"))) for role in roles]
    every = {kind: sum(instances * count(one.get(kind)) for instances, one in tasks) for kind in RESOURCES}
    if mapping(document.get("extras")).get("gangAllocation") is False:
        largest = {kind: max((count(one.get(kind)) for _, one in tasks), default=0) for kind in RESOURCES}
        return RequestedResources(every, largest)
    return RequestedResources(every, every)


def find_virtual_cluster(client: Backend, job: JobInfo) -> VirtualCluster:
    """The virtual cluster of the job; an empty one if the cluster does not describe it."""
    with contextlib.suppress(PaiError):
        return client.virtual_clusters().get(job.virtual_cluster or "default", VirtualCluster())
    return VirtualCluster()


def explain_never_fits(
    client: Backend, job: JobInfo, asked: RequestedResources, there: VirtualCluster, notes: list[str]
) -> tuple[str, str] | None:
    """Return why the job can never start, and what to do; None if it may start."""
    if client.cluster.is_embedded or any(RUNS_ALONE in note for note in notes):
        return None
    for kind in RESOURCES:
        have, wanted = there.capacity(kind), asked.at_once[kind]
        if have.usable is None or wanted <= have.usable:
            continue
        where = f"virtual cluster {job.virtual_cluster or 'default'}"
        flag = "--gpu N" if kind == "gpu" else f"-u taskRoles.ROLE.resourcePerInstance.{kind}=N"
        advice = f"ask for less: `{command('job.resubmit', job.name)} {flag}`"
        words = f"it asks for {wanted} {RESOURCES[kind]}, and {where} has"
        if have.total is None or wanted > have.total:
            return f"{words} {have.total or have.usable:g} in all: it can never start as it is", advice
        words += f" {have.usable:g} that can be used: {have.unavailable:g} of {have.total:g} are unavailable,"
        return f"{words} and it cannot start until they are back", f"{advice}, or ask the administrator"
    return None


def explain_not_free(asked: RequestedResources, there: VirtualCluster) -> tuple[str, str] | None:
    """Return that too few GPUs are free, and what to do; None if GPUs are not the reason."""
    have, wanted = there.capacity("gpu"), asked.at_once["gpu"]
    if have.usable is None or wanted <= (free := max(0, have.usable - (have.used or 0))):
        return None
    meaning = f"it asks for {counted(wanted, 'GPU')}, and {free:g} of {have.usable:g} are free"
    return meaning, f"wait, or ask for less; `{command('cluster.resources')}` shows what is free"
