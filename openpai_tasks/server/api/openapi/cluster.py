"""Description of virtual clusters, storages, and the node."""

from __future__ import annotations

from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.api.handlers import cluster
from openpai_tasks.server.api.openapi.schema import (
    FLAG,
    FORBIDDEN,
    INVALID,
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    Errors,
    Fields,
    Operation,
    Operations,
    Schema,
    by_name,
    each,
    listed,
    one_of,
    record,
    ref,
)

STORAGE_TYPES = ("nfs", "samba", "azureFile", "azureBlob", "dshuttle", "other", "unknown")
SHARE: Fields = {**each(NUMBER, "capacity usedCapacity maxCapacity"), "dedicated": FLAG}


def schemas(profile: Profile) -> dict[str, Schema]:
    volume: Fields = {**each(TEXT, "name volumeName"), "share": FLAG}
    folder: Fields = {
        "type": one_of(*STORAGE_TYPES),
        "data": OBJECT,
        OWN_FIELD: record({"type": one_of("local"), "path": TEXT}),
    }
    own: Fields = {OWN_FIELD: record({"mountPoint": TEXT})}
    summary = profile.without("storage", {**volume, "default": FLAG, **own})
    detail = profile.without("storage", {**volume, **folder, "readOnly": FLAG})
    mount = record(each(TEXT, "mountPoint server path permission"))
    config = {"name": TEXT, "default": FLAG, "servers": listed(TEXT), "mountInfos": listed(mount)}
    items = {**each(TEXT, "kind apiVersion"), "metadata": OBJECT, "items": listed(OBJECT)}
    return {
        "VirtualCluster": _queue() if profile.is_yarn else _virtual_cluster(),
        "NodeGpus": record(each(WHOLE, "gpuUsed gpuAvailable gpuTotal")),
        "StorageSummary": record(summary, optional=own),
        "StorageDetail": record(detail),
        "StorageConfig": record(config),
        "StorageServer": record({"spn": TEXT, **folder, "extension": OBJECT}),
        "KubernetesList": record(items),
    }


def operations(profile: Profile) -> Operations:
    none: Errors = {404: ("NoVirtualClusterError",)}
    refused: Errors = {403: (FORBIDDEN,), 404: ("NoStorageError",)}
    clusters: Schema = {"anyOf": [by_name(ref("VirtualCluster")), by_name(ref("NodeGpus"))]}
    removed = record({"name": TEXT, **each(WHOLE, "completedTime bytes")})
    skus = by_name(record(each(WHOLE, "cpu memory gpu")))
    return {
        cluster.list_virtual_clusters: Operation(
            "the virtual clusters, or the nodes' GPUs", {200: clusters}, query={"nodes": TEXT}
        ),
        cluster.get_virtual_cluster: Operation("one virtual cluster", {200: ref("VirtualCluster")}, none),
        cluster.change_virtual_cluster: Operation("always refused", {}, {400: ("NotImplementedError",)}),
        cluster.clean_jobs: Operation(
            "remove finished jobs beyond the limits; only in the embedded cluster",
            {200: record({"jobs": listed(removed)})},
            {400: (INVALID,)},
            body=record({"keep": TEXT, "preview": FLAG}, optional=("preview",)),
        ),
        cluster.clean_orphans: Operation(
            "remove what other embedded clusters that are gone have left; only in the embedded cluster",
            {200: record({"orphans": listed(record(each(TEXT, "name job home")))})},
            {400: (INVALID,)},
            body=record({"preview": FLAG}, optional=("preview",)),
        ),
        cluster.list_sku_types: Operation("SKU types of HiveD", {200: skus}, none, {"vc": TEXT}),
        cluster.list_storages: Operation(
            "the storages granted to the caller",
            {200: record({"storages": listed(ref("StorageSummary"))})},
            query={"default": TEXT},
        ),
        cluster.get_storage: Operation("one storage", {200: ref("StorageDetail")}, refused),
        cluster.list_storage_configs: _views("StorageConfig", "storages in the older shape"),
        cluster.list_storage_servers: _views("StorageServer", "servers of storages"),
        cluster.list_nodes: Operation("the nodes of Kubernetes", {200: ref("KubernetesList")}),
        cluster.list_pods: Operation(
            "the pods of Kubernetes",
            {200: ref("KubernetesList")},
            query=each(TEXT, "namespace labelSelector"),
        ),
    }


def _views(name: str, summary: str) -> Operation:
    answer: Schema = {"anyOf": [listed(ref(name)), ref(name)]}
    missing: Errors = {500: ("UnknownError",)}
    return Operation(summary, {200: answer}, missing, {"names": listed(TEXT)}, deprecated=True)


def _virtual_cluster() -> Schema:
    resources = record(each(WHOLE, "cpu memory gpu vCores GPUs"))
    used = each(resources, "resourcesUsed resourcesGuaranteed resourcesTotal")
    parts: Fields = {"gpuTypes": by_name(WHOLE), "takenGpus": listed(TEXT)}
    own = {OWN_FIELD: record(parts, optional=parts)}
    return record({**SHARE, **used, **own}, optional=own)


def _queue() -> Schema:
    jobs = each(WHOLE, "numActiveJobs numJobs numPendingJobs")
    state = {"status": one_of("RUNNING", "STOPPED", "DRAINING"), "nodeList": listed(TEXT)}
    resources = each(record(each(WHOLE, "memory vCores GPUs")), "resourcesUsed resourcesTotal")
    return record({**SHARE, **jobs, **state, **resources})
