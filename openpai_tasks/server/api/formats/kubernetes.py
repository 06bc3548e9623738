"""Nodes and tasks in the format of Kubernetes' node and pod lists."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from openpai_tasks.protocol import states
from openpai_tasks.server.engines.base import EngineCapacity, Node
from openpai_tasks.server.state.records import Job, Task

NAMESPACE = "default"
PHASES = {
    states.WAITING: "Pending",
    states.RUNNING: "Running",
    states.STOPPING: "Running",
    states.SUCCEEDED: "Succeeded",
}


def node_list(capacity: EngineCapacity) -> dict[str, Any]:
    items = [_node(node) for node in capacity.nodes]
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}


def _node(node: Node) -> dict[str, Any]:
    amount = node.resources
    capacity = {"cpu": str(amount.cpu), "memory": f"{amount.memory_mb * 1024}Ki", "pods": "110"}
    if amount.gpu:
        capacity["nvidia.com/gpu"] = str(amount.gpu)
    return {
        "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "InternalIP", "address": node.address},
                {"type": "Hostname", "address": node.name},
            ],
        },
    }


def pod_list(pods: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}


def pod(node: str, job: Job, task: Task) -> dict[str, Any]:
    framework, role = states.debug_id(job.key), states.role_key(task.role)
    return {
        "metadata": {
            "name": f"{framework}-{role}-{task.index}",
            "namespace": NAMESPACE,
            "uid": task.uid,
            "labels": {
                "FC_FRAMEWORK_NAME": framework,
                "FC_TASKROLE_NAME": role,
                "FC_TASK_INDEX": str(task.index),
                "jobName": job.name,
                "userName": job.user,
                "virtualCluster": job.virtual_cluster,
                "type": "kube-launcher-task",
            },
            "creationTimestamp": timestamp(task.created),
        },
        "spec": {"nodeName": node, "hostNetwork": True},
        "status": {"phase": PHASES.get(task.state, "Failed"), "hostIP": task.ip, "podIP": task.ip},
    }


def selector(text: str) -> dict[str, str]:
    """Parse ``a=b,c=d`` into labels."""
    pairs = (part.replace("==", "=").partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def timestamp(ms: int) -> str:
    """Convert milliseconds since the epoch to an ISO time."""
    moment = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
