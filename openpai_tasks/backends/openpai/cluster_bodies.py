"""Virtual clusters and storages in answers, converted to the values that all kinds of clusters share."""

from __future__ import annotations

from typing import Any

from openpai_tasks.backends.base import (
    Amount,
    Capacity,
    ClusterNode,
    ClusterStorage,
    VirtualCluster,
)
from openpai_tasks.protocol.fields import mapping, number, rows, text, texts
from openpai_tasks.protocol.quantities import parse_quantity
from openpai_tasks.protocol.routes import OWN_FIELD

RESOURCES = {"gpu": ("GPUs", "gpu"), "cpu": ("vCores", "cpu"), "memoryMB": ("memory",)}
"""Resource names in job documents, and their names in the answers of the server generations."""

HDFS = ClusterStorage("hdfs", "hdfs", default=True)
"""The storage of clusters whose API has no storages: HDFS behind the cluster's own address."""


def virtual_cluster_from_body(body: dict[str, Any]) -> VirtualCluster:
    """Read a virtual cluster; without ``resourcesGuaranteed`` (0.14) all of its resources are usable."""
    sides = ("resourcesUsed", "resourcesGuaranteed", "resourcesTotal")
    found = {}
    for resource, names in RESOURCES.items():
        used, guaranteed, total = (_amount(body.get(side), names) for side in sides)
        found[resource] = Capacity(used, total if guaranteed is None else guaranteed, total)
    own = mapping(body.get(OWN_FIELD))
    types = {kind: count for kind, one in mapping(own.get("gpuTypes")).items() if (count := number(one))}
    return VirtualCluster(found, types, tuple(texts(own.get("takenGpus"))))


def node_from_body(body: dict[str, Any]) -> ClusterNode:
    """Read a node as Kubernetes describes it."""
    status = mapping(body.get("status"))
    there = mapping(status.get("capacity"))
    ready = [row for row in rows(status.get("conditions")) if row.get("type") == "Ready"]
    address = [row for row in rows(status.get("addresses")) if row.get("type") == "InternalIP"]
    gpus, cpus, memory = (
        parse_quantity(text(there.get(name))) for name in ("nvidia.com/gpu", "cpu", "memory")
    )
    return ClusterNode(
        name=text(mapping(body.get("metadata")).get("name")),
        address=text(address[0].get("address")) if address else "",
        is_ready=not ready or ready[0].get("status") == "True",
        resources={
            "gpu": gpus or 0,
            "cpu": cpus,
            "memoryMB": None if memory is None else int(memory) >> 20,
        },
    )


def storage_from_body(body: dict[str, Any], name: str, marks_default: bool = True) -> ClusterStorage:
    """Read a storage from a row of a list or from its full description."""
    data = {key: text(value) for key, value in mapping(body.get("data")).items() if text(value)}
    own = mapping(body.get(OWN_FIELD))
    is_marked = marks_default or "default" in body
    return ClusterStorage(
        name=name,
        type=text(body.get("type")),
        data=data,
        share=bool(body.get("share", True)),
        read_only=bool(body.get("readOnly")),
        default=bool(body.get("default")) if is_marked else None,
        folder=text(own.get("path")),
        mount_point=text(own.get("mountPoint")),
    )


def _amount(side: Any, names: tuple[str, ...]) -> Amount:
    found = (number(mapping(side).get(name)) for name in names)
    return next((amount for amount in found if amount is not None), None)
