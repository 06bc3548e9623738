"""Description of virtual clusters, storages, and the node."""

from __future__ import annotations

from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.api.handlers import cluster
from openpai_tasks.server.api.openapi.shapes import (
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    BodyShape,
    Operation,
    Operations,
    Schema,
    by_name,
    listed,
    one_of,
    record,
    ref,
)
from openpai_tasks.server.api.shapes.profiles import Profile

STORAGE_TYPES = ("nfs", "samba", "azureFile", "azureBlob", "dshuttle", "other", "unknown")


def schemas(profile: Profile) -> dict[str, Schema]:
    volume: dict[str, Schema] = {"name": TEXT, "share": FLAG, "volumeName": TEXT}
    folder: dict[str, Schema] = {
        "type": one_of(*STORAGE_TYPES),
        "data": OBJECT,
        OWN_FIELD: record({"type": one_of("local"), "path": TEXT}),
    }
    own: dict[str, Schema] = {OWN_FIELD: record({"mountPoint": TEXT})}
    mount = record({"mountPoint": TEXT, "server": TEXT, "path": TEXT, "permission": TEXT})
    config = {"name": TEXT, "default": FLAG, "servers": listed(TEXT), "mountInfos": listed(mount)}
    return {
        "VirtualCluster": _queue() if profile.is_yarn else _virtual_cluster(),
        "NodeGpus": record({"gpuUsed": WHOLE, "gpuAvailable": WHOLE, "gpuTotal": WHOLE}),
        "StorageSummary": record(
            profile.without("storage", {**volume, "default": FLAG, **own}), optional=own
        ),
        "StorageDetail": record(profile.without("storage", {**volume, **folder, "readOnly": FLAG})),
        "StorageConfig": record(config),
        "StorageServer": record({"spn": TEXT, **folder, "extension": OBJECT}),
        "KubernetesList": record(
            {"kind": TEXT, "apiVersion": TEXT, "metadata": OBJECT, "items": listed(OBJECT)}
        ),
    }


def operations(profile: Profile) -> Operations:
    none: dict[int, tuple[str, ...]] = {404: ("NoVirtualClusterError",)}
    refused: dict[int, tuple[str, ...]] = {403: ("ForbiddenUserError",), 404: ("NoStorageError",)}
    missing: dict[int, tuple[str, ...]] = {500: ("UnknownError",)}
    clusters: Schema = {"anyOf": [by_name(ref("VirtualCluster")), by_name(ref("NodeGpus"))]}
    removed = record({"name": TEXT, "completedTime": WHOLE, "bytes": WHOLE})
    skus = by_name(record({"cpu": WHOLE, "memory": WHOLE, "gpu": WHOLE}))
    return {
        cluster.list_virtual_clusters: Operation(
            "the virtual clusters, or the nodes' GPUs", {200: clusters}, query={"nodes": TEXT}
        ),
        cluster.get_virtual_cluster: Operation("one virtual cluster", {200: ref("VirtualCluster")}, none),
        cluster.change_virtual_cluster: Operation("always refused", {}, {400: ("NotImplementedError",)}),
        cluster.clean_jobs: Operation(
            "remove finished jobs beyond the limits; only in the embedded cluster",
            {200: record({"jobs": listed(removed)})},
            {400: ("InvalidParametersError",)},
            body=BodyShape(record({"keep": TEXT, "preview": FLAG}, optional=("preview",))),
        ),
        cluster.list_sku_types: Operation("SKU types of HiveD", {200: skus}, none, {"vc": TEXT}),
        cluster.list_storages: Operation(
            "the storages granted to the caller",
            {200: record({"storages": listed(ref("StorageSummary"))})},
            query={"default": TEXT},
        ),
        cluster.get_storage: Operation("one storage", {200: ref("StorageDetail")}, refused),
        cluster.list_storage_configs: _views("StorageConfig", "storages in the older shape", missing),
        cluster.list_storage_servers: _views("StorageServer", "servers of storages", missing),
        cluster.list_nodes: Operation("the nodes of Kubernetes", {200: ref("KubernetesList")}),
        cluster.list_pods: Operation(
            "the pods of Kubernetes",
            {200: ref("KubernetesList")},
            query={"namespace": TEXT, "labelSelector": TEXT},
        ),
    }


def _views(name: str, summary: str, errors: dict[int, tuple[str, ...]]) -> Operation:
    answer: Schema = {"anyOf": [listed(ref(name)), ref(name)]}
    return Operation(summary, {200: answer}, errors, {"names": listed(TEXT)}, deprecated=True)


def _virtual_cluster() -> Schema:
    resources = record({"cpu": WHOLE, "memory": WHOLE, "gpu": WHOLE, "vCores": WHOLE, "GPUs": WHOLE})
    share = {"capacity": NUMBER, "usedCapacity": NUMBER, "maxCapacity": NUMBER, "dedicated": FLAG}
    used = {"resourcesUsed": resources, "resourcesGuaranteed": resources, "resourcesTotal": resources}
    own = {OWN_FIELD: record({"gpuTypes": by_name(WHOLE)})}
    return record({**share, **used, **own}, optional=own)


def _queue() -> Schema:
    resources = record({"memory": WHOLE, "vCores": WHOLE, "GPUs": WHOLE})
    share = {"capacity": NUMBER, "usedCapacity": NUMBER, "maxCapacity": NUMBER, "dedicated": FLAG}
    jobs = {"numActiveJobs": WHOLE, "numJobs": WHOLE, "numPendingJobs": WHOLE}
    state = {"status": one_of("RUNNING", "STOPPED", "DRAINING"), "nodeList": listed(TEXT)}
    return record({**share, **jobs, **state, "resourcesUsed": resources, "resourcesTotal": resources})
