from __future__ import annotations

from collections.abc import Callable

from openpai_tasks.server.variables import for_job, for_tasks
from tests.server.workshop import Workshop, role, workshop

__all__ = ["workshop"]  # the fixture


def test_task_has_the_variables_of_a_real_cluster(workshop: Callable[..., Workshop]) -> None:
    here = workshop(cpus=4)
    roles = {"ps_Server": role("env -0", ports={"web": 2}), "worker": role("true", instances=2, cpu=1)}
    both = {"minSucceededInstances": -1}
    roles = {name: {**one, "completion": both} for name, one in roles.items()}
    job = here.run("vars", roles)
    found = dict(entry.split("=", 1) for entry in here.output(job.key).split("\0") if entry)
    ps, first, second = here.tasks(job.key)
    expected = {
        "PAI_JOB_NAME": "alice~vars",
        "PAI_FRAMEWORK_NAME": "alice~vars",
        "PAI_USER_NAME": "alice",
        "PAI_USERNAME": "alice",
        "PAI_DEFAULT_FS_URI": "",
        "PAI_VIRTUAL_CLUSTER": "default",
        "PAI_TASK_ROLE_COUNT": "2",
        "PAI_TASK_ROLE_LIST": "ps_Server,worker",
        "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
        "PAI_RESOURCE_ps_Server": "0,1,10,0",
        "PAI_MIN_FAILED_TASK_COUNT_worker": "1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_worker": "-1",
        "PAI_CURRENT_TASK_ROLE_NAME": "psserver",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0",
        "PAI_TASK_INDEX": "0",
        "PAI_TASKS_NUM": "3",
        "PAI_JOB_TASK_COUNT": "3",
        "PAI_HOST_IP_psserver_0": "127.0.0.1",
        "PAI_HOST_IP_worker_1": "127.0.0.1",
        "PAI_PORT_LIST_psserver_0_web": ",".join(map(str, ps.ports["web"])),
        "PAI_worker_1_http_PORT": str(second.ports["http"][0]),
        "PAI_TASK_ROLE_worker_HOST_LIST": ",".join(
            f"127.0.0.1:{task.ports['http'][0]}" for task in (first, second)
        ),
        "PAI_TASK_ROLE_INSTANCES": "psserver:0,worker:0,worker:1",
        "PAI_CONTAINER_HOST_IP": "127.0.0.1",
        "PAI_CONTAINER_HOST_PORT": str(ps.ports["http"][0]),
        "PAI_CONTAINER_SSH_PORT": str(ps.ports["ssh"][0]),
        "PAI_CONTAINER_HOST_web_PORT_LIST": ",".join(map(str, ps.ports["web"])),
        "PAI_WORK_DIR": str(ps.folder / "work"),
        "PAI_MOUNT_ROOT": str(ps.folder / "mounts"),
        "FC_POD_UID": ps.uid,
        "FC_TASKROLE_NAME": "psserver",
        "NVIDIA_VISIBLE_DEVICES": "none",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert {"PATH", "HOME"} <= set(found)
    ports = [port for task in (ps, first, second) for numbers in task.ports.values() for port in numbers]
    assert len(ports) == len(set(ports)) == 8


def test_job_inherits_only_the_server_variables_that_programs_need() -> None:
    held_back = [
        "GITHUB_TOKEN",
        "OPENPAI_PASSWORD",
        "MYPASS",
        "SEK",
        "SSH_AUTH_SOCK",
        "BASH_ENV",
        "PAI_JOB_NAME",
    ]
    plain = ["PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "OPENPAI_HOME"]
    assert list(for_tasks(dict.fromkeys(held_back + plain, "x"))) == plain


def test_variables_of_the_submitter_replace_all_of_the_server() -> None:
    server = {"PATH": "/s", "HOME": "/h", "CONDA_PREFIX": "/c", "CONDA_DEFAULT_ENV": "c", "LC_TIME": "C"}
    assert for_job(server, {}) == server
    assert for_job(server, {"PATH": "/p", "VIRTUAL_ENV": "/v"}) == {
        "HOME": "/h",
        "PATH": "/p",
        "VIRTUAL_ENV": "/v",
    }
