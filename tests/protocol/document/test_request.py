from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest, build_document, dump, validate
from openpai_tasks.protocol.document import job_storage
from openpai_tasks.protocol.document.job_storage import MountedFolder

SHELLS = [["sh", "-c"], ["bash", "-euo", "pipefail", "-c"]]
JOINS = ["\n", " && "]


def entrypoint(spec: JobRequest) -> str:
    return validate(dump(build_document(spec))).commands(spec.role)


def steps(spec: JobRequest) -> list[str]:
    """The commands as the server has them before it joins them."""
    data = validate(dump(build_document(spec))).data
    deployed = data.get("deployments", [{"taskRoles": {}}])[0]["taskRoles"]
    return [*deployed.get(spec.role, {}).get("preCommands", []), *data["taskRoles"][spec.role]["commands"]]


def run(shell: list[str], script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(
        [*shell, script], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def test_simple_request_becomes_a_simple_document():
    assert dump(build_document(JobRequest("python train.py", name="train", image="python:3.11"))) == (
        "protocolVersion: 2\n"
        "name: train\n"
        "type: job\n"
        "jobRetryCount: 0\n"
        "prerequisites:\n"
        "- protocolVersion: 2\n"
        "  name: image\n"
        "  type: dockerimage\n"
        "  uri: python:3.11\n"
        "taskRoles:\n"
        "  main:\n"
        "    instances: 1\n"
        "    dockerImage: image\n"
        "    resourcePerInstance:\n"
        "      cpu: 2\n"
        "      memoryMB: 4096\n"
        "      gpu: 0\n"
        "    commands:\n"
        "    - python train.py\n"
    )


def test_every_field_of_the_request_is_in_the_document():
    spec = JobRequest(
        "run",
        name="n",
        image="i",
        cpu=4,
        gpu=1,
        memory_mb=99,
        shm_mb=64,
        virtual_cluster="lab",
        instances=3,
        role="worker",
        ports={"web": 2},
        retries=5,
        pip_installs=("numpy", "torch>=2"),
        environment={"A": "b c"},
        archive="5" * 64,
        home=MountedFolder("home", "/mnt/home"),
        storage="home",
        extras={"submitFrom": "here"},
    )
    job = validate(dump(build_document(spec)))
    role = job.roles[0]
    assert (role.name, role.instances, role.cpu, role.gpu, role.memory_mb) == ("worker", 3, 4, 1, 99)
    assert (role.shm_mb, role.ports) == (64, {"web": 2})
    assert (job.virtual_cluster, job.retries) == ("lab", 5)
    assert job.extras == {"submitFrom": "here", "storages": [{"name": "home"}]}
    first, *middle, last, command = job.entrypoints()["worker"].splitlines()
    assert (first, command) == ("export A='b c' || exit 1", "run")
    assert last == "fi" and "  python3 -m pip install numpy 'torch>=2' || exit 1" in middle
    install = "# openpai-tasks: python3 -m pip install numpy 'torch>=2'"
    marks = [job_storage.OUTPUT, job_storage.SOURCES, install]
    assert [line for line in middle if line.startswith("#")] == marks


@pytest.mark.parametrize("what", ["command", "name", "image"])
def test_request_without_command_name_or_image_is_refused(what):
    with pytest.raises(ProtocolError, match=what):
        build_document(JobRequest(**{"command": "c", "name": "n", "image": "i", what: ""}))


def test_invalid_environment_variable_name_is_refused():
    with pytest.raises(ProtocolError, match="'A-B'"):
        build_document(JobRequest("c", "n", "i", environment={"A-B": "x"}))


@pytest.mark.parametrize("shell", SHELLS, ids=["sh", "bash"])
@pytest.mark.parametrize("join", JOINS, ids=["newline", "and"])
def test_environment_values_with_special_characters_reach_the_command(tmp_path, shell, join):
    value = 'it\'s "$HOME"\n<% $parameters.x %> \\'
    spec = JobRequest('printf %s "$VALUE"', "n", "i", environment={"VALUE": value})
    script = entrypoint(spec) if join == "\n" else entrypoint(spec).replace(" || exit 1\n", " || exit 1 && ")
    done = run(shell, script, tmp_path)
    assert (done.returncode, done.stdout) == (0, value)


@pytest.mark.parametrize("shell", SHELLS, ids=["sh", "bash"])
@pytest.mark.parametrize("join", JOINS, ids=["newline", "and"])
def test_short_single_line_variables_are_added_to_the_ssh_environment_file(tmp_path, shell, join):
    kept = {"PLAIN": 'it\'s "$HOME" \\n', "EMPTY": ""}
    spec = JobRequest(
        "echo ran", "n", "i", environment={**kept, "TWO": "a\nb", "LONG": "x" * 2000}, ssh_key="k"
    )
    (tmp_path / "ssh").mkdir()
    (tmp_path / "work").mkdir()
    place = f"export PAI_MOUNT_ROOT=x PAI_WORK_DIR={tmp_path}/work"
    script = join.join([place, *steps(spec)])
    assert run(shell, script, tmp_path).stdout == "ran\n"  # the file is not created if it is missing
    assert not list((tmp_path / "ssh").iterdir())
    (tmp_path / "ssh/environment").write_text("BEFORE=1\n")
    assert run(shell, script, tmp_path).stdout == "ran\n"
    lines = (tmp_path / "ssh/environment").read_text().splitlines()
    assert lines == ["BEFORE=1", *(f"{name}={value}" for name, value in kept.items())]


@pytest.mark.parametrize("shell", SHELLS, ids=["sh", "bash"])
@pytest.mark.parametrize("join", JOINS, ids=["newline", "and"])
def test_failing_setup_step_ends_the_job(tmp_path, shell, join):
    spec = JobRequest("echo ran", "n", "i", python="no-such-python", pip_installs=("x",))
    done = run(shell, join.join(steps(spec)), tmp_path)
    assert done.returncode == 1
    assert "ran" not in done.stdout


@pytest.mark.parametrize(
    "command", ["echo '<% $parameters.openTag %>'", "<%! x", "a <%# b %> c", "x < y %> z <%"]
)
def test_command_with_template_brackets_is_kept_unchanged(command):
    assert entrypoint(JobRequest(command, "n", "i")) == command


def test_multiline_command_is_kept_unchanged():
    command = "cat <<E\n  a\tb\n\n# c\nE\nfor x in 1; do\n  echo $x\ndone"
    assert entrypoint(JobRequest(command, "n", "i")) == command


def test_environment_variables_are_not_in_the_repr():
    assert "hunter2" not in repr(JobRequest("c", "n", "i", environment={"PASSWORD": "hunter2"}))


def test_base_document_keeps_its_task_roles_and_gets_pre_commands():
    base = build_document(JobRequest("echo base", name="base", image="i", cpu=1))
    made = build_document(JobRequest("ignored", name="n", environment={"A": "1"}, base=base))
    assert made["name"] == "n" and made["taskRoles"] == base["taskRoles"]
    assert made["deployments"][0]["taskRoles"]["main"]["preCommands"] == ["export A=1 || exit 1"]
