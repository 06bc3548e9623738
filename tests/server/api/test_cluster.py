"""Virtual clusters, storages, and the node, over HTTP."""

from __future__ import annotations

import os
from pathlib import Path

from tests.server.conftest import Api, ServerProcess, code

RESOURCES = {"cpu", "memory", "gpu", "vCores", "GPUs"}


def test_virtual_clusters_are_listed_and_default_gets_the_rest(alice: Api) -> None:
    found = alice.get("/api/v2/virtual-clusters").json()
    assert list(found) == ["default", "lab"]
    total = found["lab"]["resourcesTotal"]
    assert total == {"cpu": 1, "memory": 512, "gpu": 0, "vCores": 1, "GPUs": 0}
    machine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert found["default"]["resourcesTotal"]["cpu"] == (machine or 1) - 1
    for one in found.values():
        assert set(one) >= {"capacity", "usedCapacity", "dedicated", "resourcesGuaranteed"}
        assert one["maxCapacity"] == one["capacity"]
        assert set(one["resourcesUsed"]) == RESOURCES
    assert alice.get("/api/v1/virtual-clusters").json() == found
    assert alice.get("/api/v2/virtual-clusters/lab").json() == found["lab"]


def test_unknown_virtual_cluster_is_404(admin: Api) -> None:
    answer = admin.get("/api/v2/virtual-clusters/none")
    assert code(answer) == (404, "NoVirtualClusterError")
    assert answer.json()["message"] == "Vc none not found"
    assert code(admin.get("/api/v2/cluster/sku-types?vc=none")) == (404, "NoVirtualClusterError")
    assert code(admin.get("/api/v2/virtual-clusters/none/sku-types")) == (404, "NoVirtualClusterError")


def test_without_hived_there_are_no_sku_types(alice: Api) -> None:
    for path in ("cluster/sku-types", "cluster/sku-types?vc=lab", "virtual-clusters/lab/sku-types"):
        assert alice.get(f"/api/v2/{path}").json() == {}


def test_virtual_clusters_cannot_be_changed(admin: Api) -> None:
    assert code(admin.put("/api/v2/virtual-clusters/lab", {})) == (400, "NotImplementedError")
    assert code(admin.put("/api/v2/virtual-clusters/lab/status", {})) == (400, "NotImplementedError")
    assert code(admin.delete("/api/v2/virtual-clusters/lab")) == (400, "NotImplementedError")


def test_nodes_of_virtual_clusters_are_listed_with_their_gpus(admin: Api) -> None:
    (gpus,) = admin.get("/api/v2/virtual-clusters?nodes").json().values()
    assert gpus["gpuUsed"] + gpus["gpuAvailable"] == gpus["gpuTotal"]


def test_the_home_storage_is_a_private_folder(server: ServerProcess, alice: Api) -> None:
    summary = {"name": "home", "share": False, "volumeName": "home-pv", "default": True}
    row = {**summary, "openpaiTasks": {"mountPoint": "$PAI_MOUNT_ROOT/mnt/home"}}
    assert alice.get("/api/v2/storages").json() == {"storages": [row]}
    assert alice.get("/api/v2/storages?default=true").json() == {"storages": [row]}
    detail = alice.get("/api/v2/storages/home").json()
    folder = server.folder / "storage" / "home"
    del summary["default"]
    known = {**summary, "type": "unknown", "data": {}, "readOnly": False}
    assert detail == {**known, "openpaiTasks": {"type": "local", "path": str(folder)}}
    assert Path(detail["openpaiTasks"]["path"]).stat().st_mode & 0o777 == 0o700


def test_a_storage_that_is_missing_or_not_granted_is_refused(server: ServerProcess, admin: Api) -> None:
    assert code(admin.get("/api/v2/storages/none")) == (404, "NoStorageError")
    admin.post("/api/v2/users", {"username": "zoe", "password": "zoe-secret"})
    admin.put("/api/v2/users/zoe/grouplist", {"grouplist": []})
    zoe = server.login("zoe", "zoe-secret")
    assert zoe.get("/api/v2/storages").json() == {"storages": []}
    assert code(zoe.get("/api/v2/storages/home")) == (403, "ForbiddenUserError")


def test_older_storage_routes_are_supported(alice: Api) -> None:
    (config,) = alice.get("/api/v2/storage/config").json()
    assert config["mountInfos"] == [
        {"mountPoint": "/mnt/home", "server": "home", "path": "${PAI_USER_NAME}", "permission": "rw"}
    ]
    assert alice.get("/api/v2/storage/config/home").json() == config
    (server,) = alice.get("/api/v2/storage/server?names=home").json()
    assert (server["spn"], server["type"], server["data"]) == ("home", "unknown", {})
    assert code(alice.get("/api/v2/storage/server/none")) == (500, "UnknownError")


def test_an_admin_sees_the_node_and_its_pods(admin: Api, alice: Api, owner: str) -> None:
    (node,) = admin.get("/api/v1/kubernetes/nodes").json()["items"]
    assert node["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    assert code(alice.get("/api/v2/kubernetes/nodes")) == (403, "ForbiddenUserError")
    admin.run("pods", "sleep 600")
    admin.until(f"{owner}~pods", "RUNNING")
    (pod,) = admin.get("/api/v2/kubernetes/pods?labelSelector=jobName=pods").json()["items"]
    assert pod["status"]["phase"] == "Running"
    used = admin.get("/api/v2/virtual-clusters/default").json()["resourcesUsed"]
    assert (used["cpu"], used["memory"]) == (1, 64)
    assert admin.get("/api/v2/kubernetes/pods?labelSelector=jobName=other").json()["items"] == []
    assert admin.get("/api/v2/kubernetes/pods?namespace=other").json()["items"] == []
    admin.put(f"/api/v2/jobs/{owner}~pods/executionType", {"value": "STOP"})
    admin.until(f"{owner}~pods", "STOPPED")
