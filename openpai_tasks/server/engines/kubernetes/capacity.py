"""What a Kubernetes cluster has: from its nodes or, without the right to list them, from quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openpai_tasks.protocol.quantities import parse_quantity
from openpai_tasks.server.engines.base import EngineCapacity, Node
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError, path, reading
from openpai_tasks.server.engines.kubernetes.site import KubeSite
from openpai_tasks.server.resources import NOTHING, ResourceAmount


def quantity(text: Any) -> float:
    """Return a number in Kubernetes' notation, such as ``500m`` or ``64Gi``; 0 for anything else."""
    return parse_quantity(str(text)) or 0


def amount(resources: Mapping[str, Any], gpu: str) -> ResourceAmount:
    return ResourceAmount(
        int(quantity(resources.get("cpu"))),
        int(quantity(resources.get("memory"))) >> 20,
        int(quantity(resources.get(gpu))),
    )


async def list_if_allowed(api: KubeApi, where: str) -> list[dict[str, Any]]:
    """Return the objects of a list; none if the user may not read it."""
    try:
        found: list[dict[str, Any]] = (await api.get(where))["items"]
    except KubeError as err:
        if err.may_pass:
            raise
        return []
    return found


async def usable_nodes(api: KubeApi, site: KubeSite) -> list[dict[str, Any]]:
    """Return the nodes that pods of ours may run on; none if the user may not list them."""
    return [one for one in await list_if_allowed(api, "/api/v1/nodes") if is_usable(one, site)]


async def read_capacity(api: KubeApi, site: KubeSite, namespaces: Sequence[str]) -> EngineCapacity:
    """Return the machines that pods of ours may run on, and what each namespace may use of them."""
    with reading():
        nodes = tuple(_node(one, site) for one in await usable_nodes(api, site))
        total = sum((node.resources for node in nodes), NOTHING)
        partitions = {name: await _quota(api, site, name, total) for name in namespaces}
    if not nodes:
        nodes = tuple(Node(f"namespace {name}", share, name) for name, share in partitions.items())
    return EngineCapacity(nodes, {"default": partitions[namespaces[0]], **partitions})


async def _quota(api: KubeApi, site: KubeSite, namespace: str, total: ResourceAmount) -> ResourceAmount:
    """Return what the quotas of a namespace leave of the whole cluster."""
    quotas = await list_if_allowed(api, path(namespace, "resourcequotas"))
    limits = [(one.get("spec") or {}).get("hard") or {} for one in quotas]
    values = [*([total] if total != NOTHING else []), *(_hard(one, site.gpu_resource) for one in limits)]
    known = {
        name: [getattr(one, name) for one in values if getattr(one, name) >= 0]
        for name in ("cpu", "memory_mb", "gpu")
    }
    return ResourceAmount(**{name: min(numbers, default=0) for name, numbers in known.items()})


def _hard(limits: Mapping[str, Any], gpu: str) -> ResourceAmount:
    """Return the limits of a quota; -1 for what it does not limit."""
    names = {"cpu": "cpu", "memory_mb": "memory", "gpu": gpu}
    found = {}
    for name, resource in names.items():
        values = [
            limits[key] for key in (resource, f"requests.{resource}", f"limits.{resource}") if key in limits
        ]
        numbers = [int(quantity(one)) >> (20 if name == "memory_mb" else 0) for one in values]
        found[name] = min(numbers, default=-1)
    return ResourceAmount(**found)


def is_usable(node: Mapping[str, Any], site: KubeSite) -> bool:
    labels = node["metadata"].get("labels") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    is_open = not node["spec"].get("unschedulable") and all(
        _tolerates(site, taint) for taint in node["spec"].get("taints") or ()
    )
    return is_ready and is_open and all(labels.get(key) == value for key, value in site.node_selector.items())


def _tolerates(site: KubeSite, taint: Mapping[str, str]) -> bool:
    return taint["effect"] == "PreferNoSchedule" or any(
        one.get("key", taint["key"]) == taint["key"]
        and one.get("effect", taint["effect"]) == taint["effect"]
        and (one["operator"] == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in site.tolerations
    )


def _node(node: Mapping[str, Any], site: KubeSite) -> Node:
    addresses = {one["type"]: one["address"] for one in node["status"].get("addresses") or ()}
    name = node["metadata"]["name"]
    return Node(
        name,
        amount(node["status"].get("allocatable") or {}, site.gpu_resource),
        addresses.get("InternalIP", name),
    )
