"""The environment variables of a task: OpenPAI's, and a few of the server's; its engine adds others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openpai_tasks.protocol import JobDocument, TaskRole
from openpai_tasks.protocol.states import debug_id, role_key
from openpai_tasks.server.engines.runner.peers import Place, for_itself, for_peers
from openpai_tasks.server.state.records import Task


def shared_variables(
    user: str, document: JobDocument, tasks: Sequence[Task], inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that all tasks of an attempt share.

    ``tasks`` are all of them in order, ``inherited`` the server's variables that tasks may see.
    """
    shared = {"PYTHONUNBUFFERED": "1", **inherited, **_job(user, document)}
    for role in document.roles:
        shared |= _role(role)
    return shared | for_peers([_place(task) for task in tasks])


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


def own_variables(task: Task, places_late: bool) -> dict[str, str]:
    """Return the variables of one task; with ``places_late``, it learns its address where it starts."""
    index, role = str(task.index), role_key(task.role)
    return {
        **({} if places_late else for_itself(_place(task))),
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": index,
        "PAI_TASK_INDEX": index,
        "FC_TASKROLE_NAME": role,
        "FC_TASK_INDEX": index,
        "FC_POD_UID": task.uid,
        "FC_POD_NAME": f"{debug_id(task.job)}-{role}-{index}",
        "FC_FRAMEWORK_ATTEMPT_ID": str(task.job_attempt),
        "FC_TASK_ATTEMPT_ID": str(task.attempt),
    }


def _place(task: Task) -> Place:
    return Place(role_key(task.role), task.index, task.ip, task.ports)
