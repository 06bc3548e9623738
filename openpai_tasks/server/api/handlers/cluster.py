"""The cluster's virtual clusters, storages, and nodes with their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from openpai_tasks.errors import ApiError, ConfigError, PaiError
from openpai_tasks.protocol import routes
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.server import api_errors, fields
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats import kubernetes, yarn
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.engines.base import Node, RemovesOrphans
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.storages import Storage
from openpai_tasks.settings.keeping import parse_keep


def list_virtual_clusters(context: Context, request: Request) -> Reply:
    if "nodes" in request.query:
        used, taken = context.state.used_gpus(), len(context.engine.taken_gpus())
        return 200, {node.name: _gpus(node, used, taken) for node in context.engine.capacity().nodes}
    usage, taken_gpus = context.state.usage(), context.engine.taken_gpus()
    return 200, {
        name: _virtual_cluster(context, name, usage.get(name, ResourceAmount()), taken_gpus)
        for name in context.virtual_clusters
    }


def get_virtual_cluster(context: Context, request: Request) -> Reply:
    name = _check_virtual_cluster(context, request.params["vc"])
    used = context.state.usage().get(name, ResourceAmount())
    return 200, _virtual_cluster(context, name, used, context.engine.taken_gpus())


def change_virtual_cluster(context: Context, request: Request) -> Reply:
    raise ApiError("Changing virtual clusters is not implemented.", 400, "NotImplementedError")


def clean_jobs(context: Context, request: Request) -> Reply:
    """Remove the finished jobs beyond the limits, or only list them."""
    body = fields.mapping(request.body, ("keep", "preview"))
    try:
        limits = parse_keep(fields.text(body, "keep"), '"keep"')
    except ConfigError as err:
        raise api_errors.invalid(str(err)) from err
    found = context.removal.exceeding(limits)
    if not ("preview" in body and fields.flag(body, "preview")):
        found = context.removal.remove(found)
    rows = [{"name": job.key, "completedTime": job.completed, "bytes": job.size} for job in found]
    return 200, {"jobs": rows}


def clean_orphans(context: Context, request: Request) -> Reply:
    """Remove what embedded clusters whose folder is gone have left, or only list it."""
    body, engine = fields.mapping(request.body, ("preview",)), context.engine
    preview = "preview" in body and fields.flag(body, "preview")
    try:
        found = engine.remove_orphans(preview) if isinstance(engine, RemovesOrphans) else []
    except PaiError as err:
        raise api_errors.invalid(str(err)) from err
    return 200, {"orphans": [{"name": one.name, "job": one.job, "home": one.home} for one in found]}


def list_sku_types(context: Context, request: Request) -> Reply:
    """Return the types of GPUs of a virtual cluster, or of all; nothing if the engine has no types."""
    name, skus = request.params.get("vc") or request.first("vc"), context.engine.capacity().skus
    wanted = [_check_virtual_cluster(context, name)] if name or "vc" in request.query else list(skus)
    found = {kind: amount for one in wanted for kind, amount in skus.get(one, {}).items()}
    return 200, {
        kind: {"cpu": amount.cpu, "memory": amount.memory_mb, "gpu": amount.gpu}
        for kind, amount in found.items()
    }


def list_storages(context: Context, request: Request) -> Reply:
    asked = request.first("default")
    only_default = asked == "true" or (context.profile.any_default and asked != "")
    found = [one for one in _permitted_storages(context, request) if one.default or not only_default]
    return 200, {"storages": [context.profile.without("storage", _summary(context, one)) for one in found]}


def get_storage(context: Context, request: Request) -> Reply:
    name = request.params["storage"]
    if name not in context.storages:
        raise api_errors.no_storage(name)
    for one in _permitted_storages(context, request):
        if one.name == name:
            body = {**_volume(one), **_folder(one), "readOnly": False}
            return 200, context.profile.without("storage", body)
    raise api_errors.forbidden(f"User {request.caller.user} is not allowed to access {name}.")


def list_storage_configs(context: Context, request: Request) -> Reply:
    return _storage_views(context, request, _storage_config)


def list_storage_servers(context: Context, request: Request) -> Reply:
    return _storage_views(context, request, _storage_server)


def list_nodes(context: Context, request: Request) -> Reply:
    return 200, kubernetes.node_list(context.engine.capacity())


def list_pods(context: Context, request: Request) -> Reply:
    """Return the tasks of all unfinished jobs."""
    state, capacity = context.state, context.engine.capacity()
    if request.first("namespace", kubernetes.NAMESPACE) != kubernetes.NAMESPACE:
        return 200, kubernetes.pod_list([])
    pods = [
        kubernetes.pod(capacity.node_name(task.ip), job, task)
        for key in state.active()
        if (job := state.job(key))
        for task in state.tasks(key, job.attempt)
    ]
    wanted = kubernetes.selector(request.first("labelSelector"))
    found = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
    return 200, kubernetes.pod_list(found)


def _check_virtual_cluster(context: Context, name: str) -> str:
    if name not in context.virtual_clusters:
        raise api_errors.no_virtual_cluster(name)
    return name


def _virtual_cluster(
    context: Context, name: str, used: ResourceAmount, taken: Mapping[int, str]
) -> dict[str, Any]:
    """Return a virtual cluster; like nodes that are down, GPUs that others use are not guaranteed."""
    known, total = context.engine.capacity(), context.virtual_clusters[name]
    whole, types = known.total, dict(known.gpu_types.get(name, {}))
    usable = replace(total, gpu=min(total.gpu, whole.gpu - len(taken)))
    own: dict[str, Any] = {"gpuTypes": types} if types else {}
    own |= {"freeGpus": dict(free)} if (free := known.free_gpus.get(name)) else {}
    own |= {} if context.engine.uses_images else {"images": False}
    own |= {"takenGpus": [f"GPU {index}: {who}" for index, who in taken.items()]} if taken else {}
    capacity = _share(total, whole)
    share = {"capacity": capacity, "usedCapacity": _share(used, whole)}
    if context.profile.is_yarn:
        return yarn.queue(total, used, share, context.state.counts(name))
    return {
        **share,
        "maxCapacity": capacity,
        "dedicated": False,
        "resourcesUsed": _resources(used),
        "resourcesGuaranteed": _resources(usable),
        "resourcesTotal": _resources(total),
        **({routes.OWN_FIELD: own} if own else {}),
    }


def _share(part: ResourceAmount, whole: ResourceAmount) -> float:
    """Return the share in percent of the GPUs, or of the CPUs if there are no GPUs."""
    amount, total = (part.gpu, whole.gpu) if whole.gpu else (part.cpu, whole.cpu)
    return round(100 * amount / max(total, 1), 2)


def _resources(amount: ResourceAmount) -> dict[str, int]:
    return {
        "cpu": amount.cpu,
        "memory": amount.memory_mb,
        "gpu": amount.gpu,
        "vCores": amount.cpu,
        "GPUs": amount.gpu,
    }


def _gpus(node: Node, used_gpus: dict[str, int], taken: int) -> dict[str, int]:
    total, used = node.resources.gpu, used_gpus.get(node.address, 0)
    return {"gpuUsed": used, "gpuAvailable": max(total - used - taken, 0), "gpuTotal": total}


def _permitted_storages(context: Context, request: Request) -> list[Storage]:
    user = context.accounts.user(request.caller.user)
    return [context.storages[name] for name in (user.storages if user else ())]


def _summary(context: Context, storage: Storage) -> dict[str, Any]:
    """Return a row of the list, with the path of the storage in tasks if it is not that of OpenPAI."""
    path = {} if context.engine.mounts_at_root else {"mountPoint": f"$PAI_MOUNT_ROOT{MOUNTS}{storage.name}"}
    own = {routes.OWN_FIELD: path} if path else {}
    return {**_volume(storage), "default": storage.default, **own}


def _volume(storage: Storage) -> dict[str, Any]:
    return {"name": storage.name, "share": storage.share, "volumeName": f"{storage.name}-pv"}


def _storage_config(storage: Storage) -> dict[str, Any]:
    mount = {
        "mountPoint": f"{MOUNTS}{storage.name}",
        "server": storage.name,
        "path": "" if storage.share else "${PAI_USER_NAME}",
        "permission": "rw",
    }
    return {
        "name": storage.name,
        "default": storage.default,
        "servers": [storage.name],
        "mountInfos": [mount],
    }


def _storage_server(storage: Storage) -> dict[str, Any]:
    return {"spn": storage.name, **_folder(storage), "extension": {}}


def _folder(storage: Storage) -> dict[str, Any]:
    """Return a type that every client knows, and the folder in a field for our own client."""
    own = {"type": "local", "path": str(storage.path)}
    return {"type": "unknown", "data": {}, routes.OWN_FIELD: own}


def _storage_views(context: Context, request: Request, view: Callable[[Storage], dict[str, Any]]) -> Reply:
    """Return all views, those in ``names``, or the one in the path.

    Like OpenPAI, answer 500 for a missing one.
    """
    permitted = {one.name: one for one in _permitted_storages(context, request)}
    single = request.params.get("storage")
    wanted = (single,) if single else request.query.get("names", tuple(permitted))
    for name in wanted:
        if name not in permitted:
            raise api_errors.unknown(f"Storage {name} is not found.")
    found = [view(permitted[name]) for name in wanted]
    return 200, found[0] if single else found
