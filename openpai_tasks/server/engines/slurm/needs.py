"""What one task asks Slurm for, and whether its partition can ever give it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobDocument, TaskRole
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.policy import NORMAL, priority_rank, read_priority
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.slurm.partitions import SEPARATOR, NodeSize, SlurmNodes, SlurmPartition
from openpai_tasks.server.engines.slurm.site import SlurmSite, merge_options, parse_option
from openpai_tasks.server.resources import ResourceAmount, task_demand

EXTRA_SECONDS = 300  # beside a job's time limit, to fetch its sources and install packages before it counts
OPTIONS = "extras.slurm.options"
LOW = "--nice=10000"  # the option of jobs with a low priority
_GPU_TYPE = re.compile(r"[\w.-]+", re.ASCII)


class SlurmNeed(NamedTuple):
    virtual_cluster: str
    cpu: int
    memory_mb: int
    gpu: int
    gpu_type: str = ""
    seconds: int = 0  # its time limit; 0 is the partition's default
    options: tuple[str, ...] = ()  # of sbatch, for this job
    rank: int = NORMAL  # its priority


def need(launch: Launch) -> SlurmNeed:
    wanted = launch.container
    kind = wanted.gpu_type if wanted.gpu and _GPU_TYPE.fullmatch(wanted.gpu_type) else ""
    try:
        options = options_of(launch.extras)
    except ConfigError:  # accepted by another engine
        options = ()
    resources = (max(1, wanted.cpu), wanted.memory_mb, wanted.gpu, kind)
    return SlurmNeed(
        launch.virtual_cluster,
        *resources,
        launch.seconds,
        options,
        priority_rank(read_priority(launch.extras)),
    )


def options_of(extras: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options of sbatch in a document's extras; ConfigError if one of them is not allowed."""
    section = extras.get("slurm")
    given = section.get("options") if isinstance(section, dict) else None
    if given is None:
        return ()
    given = given.split() if isinstance(given, str) else given
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{OPTIONS} must be options of sbatch, such as --account=lab")
    return merge_options(parse_option(one, OPTIONS)[1] for one in given)


def resource_options(wanted: SlurmNeed, count: int, is_step: bool = False) -> Iterator[str]:
    """Yield the options of ``sbatch``, or of ``srun`` in its script, for several such tasks.

    A step does not name the type of its GPUs, all of which have it: if it did, its tasks would see none.
    """
    yield f"--ntasks={count}"
    yield f"--cpus-per-task={wanted.cpu}"
    if wanted.memory_mb:
        yield f"--mem-per-cpu={math.ceil(wanted.memory_mb / wanted.cpu)}M"
    if wanted.gpu:
        kind = f"{wanted.gpu_type}:" if wanted.gpu_type and not is_step else ""
        yield f"--gpus-per-task={kind}{wanted.gpu}"


def site_options(wanted: SlurmNeed, site: SlurmSite, nodes: SlurmNodes) -> tuple[str, ...]:
    """Return partition, QOS, time limit, and the options of the site and of the job, which count more."""
    priority = [LOW] if wanted.rank < NORMAL else []
    priority += [f"--qos={site.high_qos}"] if wanted.rank > NORMAL and site.high_qos else []
    partition, _, quality = wanted.virtual_cluster.partition(SEPARATOR)
    partition = partition if partition in nodes.partitions else nodes.default
    own = [f"--qos={quality}"] if quality else []
    own += [f"--partition={partition}"] if partition else []
    limit = []
    if wanted.seconds:
        most = nodes.partitions.get(partition, SlurmPartition()).most_minutes
        minutes = math.ceil((wanted.seconds + EXTRA_SECONDS) / 60)
        limit = [f"--time={minutes if most is None else min(minutes, most)}"]
    return merge_options(site.options, limit, priority, wanted.options, own)


def priority_note(document: JobDocument, site: SlurmSite) -> str:
    """Return in one line why the priority of a job is not raised; empty if it is as asked."""
    if priority_rank(document.priority) <= NORMAL:
        return ""
    if SEPARATOR in document.virtual_cluster:
        return f"the priority has no effect: the virtual cluster {document.virtual_cluster} has its own QOS"
    why = "Slurm lets users only lower a priority; if you may use a QOS for urgent jobs"
    return "" if site.high_qos else f"the priority has no effect: {why}, set local.slurm-high-qos to its name"


def problem(document: JobDocument, name: str, partition: SlurmPartition) -> str:
    """Return why the partition can never run the job; empty if it can, or if nothing is known."""
    try:
        options_of(document.extras)
    except ConfigError as err:
        return str(err)
    if not partition.sizes:
        return ""
    found = (_role_problem(document, role, name, partition) for role in document.roles)
    return next(filter(None, found), "") or _total_problem(document, name, partition)


def _role_problem(document: JobDocument, role: TaskRole, name: str, partition: SlurmPartition) -> str:
    seconds = scripts.time_limit(document.entrypoint(role.name)) or 0
    if partition.most_minutes is not None and seconds > partition.most_minutes * 60:
        return f"its time limit is {_hours(seconds)}, {name} allows {_hours(partition.most_minutes * 60)}"
    wanted, kinds = _demand(role), {kind for size in partition.sizes for kind in size.gpus}
    if wanted.gpu and role.sku_type and not (role.sku_type in kinds and _GPU_TYPE.fullmatch(role.sku_type)):
        known = ", ".join(sorted(filter(None, kinds))) or "none with a type"
        return f"{name} has no GPUs of type {role.sku_type!r} (there are: {known})"
    if any(_fits(wanted, role.sku_type, size) for size in partition.sizes):
        return ""
    largest = max(partition.sizes, key=lambda size: (size.amount.gpu, size.amount.cpu, size.amount.memory_mb))
    kind = f" of type {role.sku_type}" if role.sku_type else ""
    return f"a task of {role.name} asks for {wanted}{kind}, the largest node of {name} has {largest.amount}"


def _total_problem(document: JobDocument, name: str, partition: SlurmPartition) -> str:
    whole = sum((size.amount for size in partition.sizes), ResourceAmount())
    wanted = sum((_demand(role) * role.instances for role in document.roles), ResourceAmount())
    if not document.gang or wanted.fits(whole):
        return ""
    return f"its tasks, which start together, ask for {wanted}, all nodes of {name} have {whole}"


def _demand(role: TaskRole) -> ResourceAmount:
    wanted = task_demand(role)
    return ResourceAmount(max(1, wanted.cpu), wanted.memory_mb, role.sku_number or wanted.gpu)


def _fits(wanted: ResourceAmount, kind: str, size: NodeSize) -> bool:
    gpus = size.gpus.get(kind, 0) if kind else size.amount.gpu
    return wanted.fits(ResourceAmount(size.amount.cpu, size.amount.memory_mb, gpus))


def _hours(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02} h"
