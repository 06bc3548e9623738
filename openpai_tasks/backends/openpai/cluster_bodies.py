"""Virtual clusters and storages of answers, as values that all kinds of clusters share."""

from __future__ import annotations

from typing import Any

from openpai_tasks.backends.base import Amount, Capacity, ClusterStorage, VirtualCluster
from openpai_tasks.protocol.fields import mapping, number, text
from openpai_tasks.protocol.routes import OWN_FIELD

RESOURCES = {"gpu": ("GPUs", "gpu"), "cpu": ("vCores", "cpu"), "memoryMB": ("memory",)}
"""Resources as job documents name them, and the names that generations of servers have for them."""

HDFS = ClusterStorage("hdfs", "hdfs", default=True)
"""The storage of a cluster from before there were storages: the HDFS behind its own address."""


def virtual_cluster_from_body(body: dict[str, Any]) -> VirtualCluster:
    """Read a virtual cluster; without ``resourcesGuaranteed``, as on 0.14, all of it is usable."""
    sides = ("resourcesUsed", "resourcesGuaranteed", "resourcesTotal")
    found = {}
    for resource, names in RESOURCES.items():
        used, guaranteed, total = (_amount(body.get(side), names) for side in sides)
        found[resource] = Capacity(used, total if guaranteed is None else guaranteed, total)
    return VirtualCluster(found)


def storage_from_body(body: dict[str, Any], name: str, marks_default: bool = True) -> ClusterStorage:
    """Read a storage, a row of a list or the whole description."""
    data = {key: text(value) for key, value in mapping(body.get("data")).items() if text(value)}
    is_marked = marks_default or "default" in body
    return ClusterStorage(
        name=name,
        type=text(body.get("type")),
        data=data,
        share=bool(body.get("share", True)),
        read_only=bool(body.get("readOnly")),
        default=bool(body.get("default")) if is_marked else None,
        folder=text(mapping(body.get(OWN_FIELD)).get("path")),
    )


def _amount(side: Any, names: tuple[str, ...]) -> Amount:
    """Return the amount under the first of these names that has one."""
    found = (number(mapping(side).get(name)) for name in names)
    return next((amount for amount in found if amount is not None), None)
