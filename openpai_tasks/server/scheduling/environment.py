"""The environment variables of a task: OpenPAI's, its GPUs, and a few of the server's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.states import debug_id, role_key
from openpai_tasks.server.state.records import Task

if TYPE_CHECKING:
    from openpai_tasks.protocol import JobDocument, TaskRole


@dataclass(frozen=True)
class Variables:
    """The variables that all tasks of an attempt share, and those of each task."""

    shared: dict[str, str]
    total_gpus: int

    def own(self, task: Task) -> dict[str, str]:
        return {**_own(task), **_gpus(task, self.total_gpus)}


def variables(
    user: str,
    document: JobDocument,
    tasks: Sequence[Task],
    inherited: Mapping[str, str],
    total_gpus: int = 0,
) -> Variables:
    """Return the variables.

    ``tasks`` are all tasks of the attempt in order, ``inherited`` the server's variables that tasks may see.
    """
    shared = {"PYTHONUNBUFFERED": "1", **inherited, **_job(user, document)}
    for role in document.roles:
        shared |= _role(role)
    for task in tasks:
        shared |= _peer(task)
    return Variables(shared | _hosts(tasks), total_gpus)


def _job(user: str, document: JobDocument) -> dict[str, str]:
    key = f"{user}~{document.name}"
    roles = ",".join(role.name for role in document.roles)
    count, tasks = str(len(document.roles)), str(sum(role.instances for role in document.roles))
    return {
        "PAI_JOB_NAME": key,
        "PAI_FRAMEWORK_NAME": key,
        "PAI_USER_NAME": user,
        "PAI_USERNAME": user,
        "PAI_DEFAULT_FS_URI": "",
        "PAI_VIRTUAL_CLUSTER": document.virtual_cluster,
        "PAI_TASK_ROLE_COUNT": count,
        "PAI_TASK_ROLES_NUM": count,
        "PAI_JOB_TASK_ROLE_COUNT": count,
        "PAI_TASK_ROLE_LIST": roles,
        "PAI_JOB_TASK_ROLE_LIST": roles,
        "PAI_TASKS_NUM": tasks,
        "PAI_JOB_TASK_COUNT": tasks,
        "FC_FRAMEWORK_NAME": debug_id(key),
    }


def _role(role: TaskRole) -> dict[str, str]:
    resources = (role.gpu, role.cpu, role.memory_mb, role.shm_mb or 0)
    return {
        f"PAI_TASK_ROLE_TASK_COUNT_{role.name}": str(role.instances),
        f"PAI_RESOURCE_{role.name}": ",".join(str(number) for number in resources),
        f"PAI_MIN_FAILED_TASK_COUNT_{role.name}": str(role.min_failed),
        f"PAI_MIN_SUCCEEDED_TASK_COUNT_{role.name}": str(role.min_succeeded),
    }


def _peer(task: Task) -> dict[str, str]:
    """Return the variables with which other tasks reach a task."""
    place = f"{role_key(task.role)}_{task.index}"
    found = {f"PAI_HOST_IP_{place}": task.ip}
    for label in task.ports:
        found[f"PAI_PORT_LIST_{place}_{label}"] = _list(task, label)
        found[f"PAI_{place}_{label}_PORT"] = _list(task, label)
    return found


def _hosts(tasks: Sequence[Task]) -> dict[str, str]:
    hosts: dict[str, list[str]] = {}
    for task in tasks:
        hosts.setdefault(role_key(task.role), []).append(f"{task.ip}:{_first(task, 'http')}")
    instances = ",".join(f"{role_key(task.role)}:{task.index}" for task in tasks)
    lists = {f"PAI_TASK_ROLE_{role}_HOST_LIST": ",".join(found) for role, found in hosts.items()}
    return {"PAI_TASK_ROLE_INSTANCES": instances, **lists}


def _own(task: Task) -> dict[str, str]:
    index, http = str(task.index), _first(task, "http")
    labels = {f"PAI_CONTAINER_HOST_{label}_PORT_LIST": _list(task, label) for label in task.ports}
    role, folder = role_key(task.role), os.path.abspath(task.folder)
    return labels | {
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": index,
        "PAI_TASK_INDEX": index,
        "PAI_CONTAINER_HOST_IP": task.ip,
        "PAI_CURRENT_CONTAINER_IP": task.ip,
        "PAI_CONTAINER_HOST_PORT": http,
        "PAI_CURRENT_CONTAINER_PORT": http,
        "PAI_CONTAINER_SSH_PORT": _first(task, "ssh"),
        "PAI_CONTAINER_HOST_PORT_LIST": ";".join(f"{label}:{_list(task, label)}" for label in task.ports),
        "PAI_WORK_DIR": f"{folder}/work",
        "PAI_MOUNT_ROOT": f"{folder}/mounts",
        "FC_TASKROLE_NAME": role,
        "FC_TASK_INDEX": index,
        "FC_POD_UID": task.uid,
        "FC_POD_NAME": f"{debug_id(task.job)}-{role}-{index}",
        "FC_FRAMEWORK_ATTEMPT_ID": str(task.job_attempt),
        "FC_TASK_ATTEMPT_ID": str(task.attempt),
    }


def _gpus(task: Task, total_gpus: int) -> dict[str, str]:
    """Return the variables that limit the visible GPUs, numbered like nvidia-smi, in bus order."""
    if not total_gpus:
        return {"NVIDIA_VISIBLE_DEVICES": "none"}
    indices = ",".join(str(index) for index in task.gpus)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": indices,
        "NVIDIA_VISIBLE_DEVICES": indices or "none",
    }


def _list(task: Task, label: str) -> str:
    return ",".join(str(port) for port in task.ports.get(label, ()))


def _first(task: Task, label: str) -> str:
    return str(task.ports[label][0]) if task.ports.get(label) else ""
