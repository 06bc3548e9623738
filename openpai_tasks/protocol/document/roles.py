"""Task roles and storage mounts, with the defaults of a real cluster filled in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.references import prerequisite, whole
from openpai_tasks.protocol.fields import mapping, rows
from openpai_tasks.protocol.yaml.values import is_whole

Data = dict[str, Any]

PLUGINS = "com.microsoft.pai.runtimeplugin"
DEFAULTS = "openpaiDefaults"
"""Key in a job's extras with values that nobody asked for, which are no limits: ``{memoryMB: 1024}``."""


@dataclass(frozen=True)
class TaskRole:
    """A task role; -1 in ``min_failed`` or ``min_succeeded`` means that it never ends the job."""

    name: str
    instances: int
    image: str
    cpu: int
    gpu: int
    memory_mb: int
    is_memory_asked: bool  # False if it is a default of the client
    shm_mb: int | None
    ports: dict[str, int]
    min_failed: int
    min_succeeded: int
    retries: int
    infiniband: bool
    sku_type: str = ""  # of HiveD: the type of its GPUs
    sku_number: int = 0


@dataclass(frozen=True)
class StorageMount:
    name: str
    path: str


def task_role(data: Data, name: str) -> TaskRole:
    """Return the role ``name`` of a valid document."""
    role: Data = data["taskRoles"][name]
    resources = mapping(role.get("resourcePerInstance"))
    completion = mapping(role.get("completion"))
    options = mapping(role.get("extraContainerOptions"))
    instances = _count(role.get("instances"), 1)
    ports = {label: _count(count, 0) for label, count in mapping(resources.get("ports")).items()}
    sku = _sku(data, name)
    defaults = mapping(mapping(data.get("extras")).get(DEFAULTS))
    return TaskRole(
        name=name,
        instances=instances,
        image=str(prerequisite(data, "dockerimage", role.get("dockerImage")).get("uri", "")),
        cpu=_count(resources.get("cpu"), 0),
        gpu=_count(resources.get("gpu"), 0),
        memory_mb=_count(resources.get("memoryMB"), 0),
        is_memory_asked=resources.get("memoryMB") != defaults.get("memoryMB"),
        shm_mb=_count(options.get("shmMB"), 0) or None,
        ports={label: count for label, count in ports.items() if count > 0},
        min_failed=_minimum(completion.get("minFailedInstances"), 1),
        min_succeeded=_minimum(completion.get("minSucceededInstances"), instances),
        retries=_count(role.get("taskRetryCount"), 0),
        infiniband=options.get("infiniband") is True,
        sku_type=str(sku.get("skuType") or ""),
        sku_number=max(0, _count(sku.get("skuNum", sku.get("skuNumber")), 0)),
    )


def _sku(data: Data, role: str) -> Data:
    """Return what the role asks of the HiveD scheduler."""
    hived = mapping(mapping(data.get("extras")).get("hivedScheduler"))
    wanted = mapping(mapping(hived.get("taskRoles")).get(role))
    return {**mapping(wanted.get("resourcePerInstance")), **wanted}


def storages(extras: Data) -> tuple[StorageMount, ...] | None:
    """Return the storages to mount; an empty tuple for the user's default ones, ``None`` for none."""
    wanted = extras.get("storages")
    if wanted is None:
        wanted = _team_storages(extras.get(PLUGINS))
    if not isinstance(wanted, list):
        return None
    named = [(str(item["name"]), item.get("mountPath")) for item in rows(wanted) if item.get("name")]
    return tuple(StorageMount(name, str(path or f"/mnt/{name}")) for name, path in named)


def _team_storages(plugins: Any) -> list[Data] | None:
    """Return the storages that the older plugin asks for."""
    for plugin in rows(plugins):
        if plugin.get("plugin") == "teamwise_storage":
            wanted = mapping(plugin.get("parameters")).get("storageConfigNames")
            return [{"name": name} for name in wanted] if isinstance(wanted, Iterable) else []
    return None


def _minimum(value: Any, default: int) -> int:
    return max(_count(value, 0), -1) or default


def _count(value: Any, default: int) -> int:
    return whole(value) if is_whole(value) else default
