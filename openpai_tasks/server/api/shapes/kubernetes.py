"""This machine and its tasks in the shape of Kubernetes' node and pod lists."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from openpai_tasks.protocol import states
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.state.records import Job, Task

NAMESPACE = "default"
IP = "127.0.0.1"
PHASES = {
    states.WAITING: "Pending",
    states.RUNNING: "Running",
    states.STOPPING: "Running",
    states.SUCCEEDED: "Succeeded",
}


def node_list(machine: Machine) -> dict[str, Any]:
    capacity = {"cpu": str(machine.cpus), "memory": f"{machine.memory_mb * 1024}Ki", "pods": "110"}
    if machine.gpus:
        capacity["nvidia.com/gpu"] = str(len(machine.gpus))
    node = {
        "metadata": {"name": machine.name, "labels": {"kubernetes.io/hostname": machine.name}},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "InternalIP", "address": IP},
                {"type": "Hostname", "address": machine.name},
            ],
        },
    }
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node]}


def pod_list(pods: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}


def pod(machine: Machine, job: Job, task: Task) -> dict[str, Any]:
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
        "spec": {"nodeName": machine.name, "hostNetwork": True},
        "status": {"phase": PHASES.get(task.state, "Failed"), "hostIP": IP, "podIP": IP},
    }


def selector(text: str) -> dict[str, str]:
    """The labels that ``a=b,c=d`` asks for."""
    pairs = (part.replace("==", "=").partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def timestamp(ms: int) -> str:
    """Milliseconds since the epoch as an ISO time."""
    moment = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
