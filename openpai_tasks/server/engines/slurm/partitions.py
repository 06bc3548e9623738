"""The nodes and partitions of Slurm, and the qualities of service that the user may choose in each."""

from __future__ import annotations

import functools
import getpass
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from openpai_tasks.server.engines.base import Node
from openpai_tasks.server.engines.slurm import programs
from openpai_tasks.server.resources import NOTHING, ResourceAmount

_NODES = "%N|%o|%c|%m|%G|%T|%P|%l"
_ANY = frozenset({"", "ALL"})
SEPARATOR = ":"  # of partition and QOS in the name of a virtual cluster


class NodeSize(NamedTuple):
    """What a node has when it is up."""

    amount: ResourceAmount
    gpus: Mapping[str, int]  # by type; those without a type have an empty one
    is_up: bool = True


class SlurmPartition(NamedTuple):
    amount: ResourceAmount = NOTHING  # of the nodes that are up
    sizes: tuple[NodeSize, ...] = ()
    most_minutes: int | None = None  # for a job


class SlurmNodes(NamedTuple):
    nodes: tuple[Node, ...]
    partitions: dict[str, SlurmPartition]
    default: str


def node_list() -> str:
    """Return the machines and their partitions, for ``parse_nodes``."""
    return programs.run(["sinfo", "-h", "-N", "-o", _NODES])


def parse_nodes(text: str) -> SlurmNodes:
    """Return the machines and the partitions; machines that are down count for nothing."""
    found: dict[str, Node] = {}
    members: dict[str, list[NodeSize]] = {}
    limits: dict[str, str] = {}
    default = ""
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != 8:
            continue
        name, address, cpus, memory, gres, state, partition, limit = cells
        size = _size(cpus, memory, gres)._replace(is_up=_is_up(state))
        found[name] = Node(name, size.amount if size.is_up else NOTHING, address)
        if partition.endswith("*"):
            partition = default = partition[:-1]
        members.setdefault(partition, []).append(size)
        limits[partition] = limit
    known = {name: _partition(sizes, limits[name]) for name, sizes in sorted(members.items())}
    return SlurmNodes(tuple(found.values()), known, default or next(iter(members), ""))


@functools.cache
def _size(cpus: str, memory: str, gres: str) -> NodeSize:
    gpus = parse_gpus(gres)
    return NodeSize(ResourceAmount(_number(cpus), _number(memory), sum(gpus.values())), gpus)


def _partition(sizes: list[NodeSize], limit: str) -> SlurmPartition:
    up = sum((size.amount for size in sizes if size.is_up), NOTHING)
    return SlurmPartition(up, tuple(sizes), parse_minutes(limit))


def gpu_types(partition: SlurmPartition) -> dict[str, int]:
    """Return the number of GPUs of each type."""
    found: dict[str, int] = {}
    for size in partition.sizes:
        for kind, count in size.gpus.items():
            if kind:
                found[kind] = found.get(kind, 0) + count
    return found


def skus(partition: SlurmPartition) -> dict[str, ResourceAmount]:
    """Return what a GPU of each type has of its node; nodes with several types share evenly."""
    found: dict[str, ResourceAmount] = {}
    for amount, gpus, _ in partition.sizes:
        for kind in filter(gpus.get, filter(None, gpus)):  # those of which it has some
            found.setdefault(
                kind, ResourceAmount(amount.cpu // amount.gpu, amount.memory_mb // amount.gpu, 1)
            )
    return found


def _is_up(state: str) -> bool:
    return state.rstrip("*~#!%$@^-+") in ("idle", "mixed", "allocated", "completing", "planned", "reserved")


def _number(text: str) -> int:
    match = re.match(r"\d{1,12}", text, re.ASCII)
    return int(match[0]) if match else 0


def parse_gpus(gres: str) -> dict[str, int]:
    """Return the GPUs by type in ``gpu:2``, ``gpu:a100:4(S:0-1)``, ``gpu:a:1,gpu:b:1``."""
    found: dict[str, int] = {}
    for kind, count in re.findall(r"(?:^|,)gpu(?::([^,:(]+))??:(\d{1,6})", gres, re.ASCII):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def parse_minutes(text: str) -> int | None:
    """Return the minutes in ``1-00:00:00``, ``4:00:00`` or ``10:00``; None without a limit."""
    match = re.fullmatch(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})", text, re.ASCII)
    if not match:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


# Quality of service


def choices(partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the qualities of service that the user may choose in each partition, beside the default one."""
    try:
        shown = programs.run(["scontrol", "-o", "show", "partition"])
    except programs.SlurmRefusal:
        return {}
    return parse_choices(partitions, shown, _associations())


def _associations() -> str:
    """Return the user's rows of the accounting; empty if there is none."""
    if shutil.which("sacctmgr") is None:
        return ""
    words = ["sacctmgr", "-nP", "show", "assoc", f"user={getpass.getuser()}"]
    try:
        return programs.run([*words, "format=partition,qos,defaultqos"])
    except (programs.SlurmRefusal, programs.SlurmDown):
        return ""


def parse_choices(partitions: Iterable[str], shown: str, associations: str) -> dict[str, tuple[str, ...]]:
    """Combine what partitions allow with what the user's associations have."""
    rows = [cells for line in associations.splitlines() if len(cells := line.split("|")) == 3]
    rules = {name: rule for rule in map(_fields, shown.splitlines()) if (name := rule.get("PartitionName"))}
    found: dict[str, tuple[str, ...]] = {}
    for partition in partitions:
        rule = rules.get(partition, {})
        allowed = _names(rule.get("AllowQos", ""))
        own = [(_names(qos), default) for where, qos, default in rows if where in ("", partition)]
        granted = set().union(*(names for names, _ in own)) if rows else allowed - _ANY
        usable = granted if not allowed - _ANY else granted & allowed
        defaults = {default for _, default in own} or {"normal"}
        names = usable - _names(rule.get("DenyQos", "")) - defaults - _ANY
        if names:
            found[partition] = tuple(sorted(names))
    return found


def _fields(line: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs}


def _names(text: str) -> set[str]:
    return {name for name in re.split(r"[,+]", text) if name not in ("", "(null)", "N/A")}


def virtual_clusters(
    known: SlurmNodes, qualities: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, SlurmPartition]]:
    """Yield the virtual clusters: ``default``, the partitions, and ``PARTITION:QOS``."""
    if known.default:
        yield "default", known.partitions[known.default]
    for name, partition in known.partitions.items():
        yield name, partition
        yield from ((f"{name}{SEPARATOR}{quality}", partition) for quality in qualities.get(name, ()))
