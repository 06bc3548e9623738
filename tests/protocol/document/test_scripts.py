"""Shell scripts of generated jobs, run by the shells that servers use."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest, RoleRequest, build_document, dump, validate
from openpai_tasks.protocol.document import scripts

SHELLS = {"sh": ["sh", "-c"], "dash": ["dash", "-eu", "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
JOINS = {"newline": "\n", "and": " && "}


@pytest.fixture(params=SHELLS)
def shell(request):
    return SHELLS[request.param]


def run(shell, script, folder, **environment):
    variables = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        [*shell, script], cwd=folder, env=variables, capture_output=True, text=True, timeout=60
    )


def without_timeout(folder: Path) -> str:
    """A PATH with the usual tools but no `timeout`."""
    folder.mkdir()
    for tool in ("sh", "dash", "bash", "sleep", "true", "date"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return str(folder)


def joined(spec: JobRequest, join: str) -> str:
    """The commands as a server joins them, secrets in place."""
    job = validate(dump(build_document(spec)))
    [deployment] = job.data["deployments"]
    [role] = job.roles
    before = deployment["taskRoles"][role.name]["preCommands"]
    text = join.join([*before, *job.data["taskRoles"][role.name]["commands"]])
    for name, value in job.secrets.items():
        text = text.replace(f"<% $secrets.{name} %>", value)
    return text


HARD = ["plain", "it's", 'a "b" & <c> $HOME `d` \\n', "two\nlines\n\n", "ünïcode", "%s %d", "-n", ""]


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_secrets_reach_the_command_unchanged(tmp_path, shell, join):
    secrets = {f"KEY{number}": value for number, value in enumerate(HARD)}
    command = "printf '%s|' " + " ".join(f'"${name}"' for name in secrets)
    done = run(shell, joined(JobRequest(command, "n", "i", secrets=secrets), join), tmp_path)
    assert (done.stdout.split("|"), done.stderr) == ([*HARD, ""], "")


def test_encoded_secret_has_no_characters_that_html_escaping_changes():
    assert not set("&<>\"'`/=") & set("".join(map(scripts.secret_value, HARD)))


def test_secret_appears_only_in_the_secrets_section():
    spec = JobRequest("echo", "n", "i", secrets={"KEY": "hunter2"})
    text = dump(build_document(spec))
    assert text.count("hunter2") == 1 and "\nsecrets:\n  KEY: hunter2\n" in text
    assert "hunter2" not in validate(text).masked() + repr(spec)


def test_request_with_secrets_and_template_brackets_is_refused():
    with pytest.raises(ProtocolError, match="secrets"):
        build_document(JobRequest("echo '<%'", "n", "i", secrets={"KEY": "x"}))


@pytest.mark.parametrize("has_timeout", [True, False])
class TestTimeLimit:
    @pytest.fixture
    def path(self, tmp_path, has_timeout):
        return os.environ["PATH"] if has_timeout else without_timeout(tmp_path / "tools")

    def test_ends_a_command_that_takes_too_long(self, tmp_path, shell, path):
        began = time.monotonic()
        script = scripts.limit_time("echo begun; exec >&- 2>&-; sleep 60; echo ended", 2)
        done = run(shell, script, tmp_path, PATH=path)
        assert done.returncode == 124 and done.stdout == "begun\n"
        assert "time limit of 2 s" in done.stderr
        assert time.monotonic() - began < 40

    @pytest.mark.parametrize("code", [0, 3, 143])
    def test_keeps_the_exit_code_of_a_command_that_ends_in_time(self, tmp_path, shell, path, code):
        done = run(shell, scripts.limit_time(f"echo 'it'\\''s'; exit {code}", 60), tmp_path, PATH=path)
        assert (done.returncode, done.stdout, done.stderr) == (code, "it's\n", "")

    def test_keeps_the_options_of_the_shell(self, tmp_path, shell, path):
        done = run(shell, scripts.limit_time("false\necho went on", 60), tmp_path, PATH=path)
        stops = shell[1] != "-c"
        assert done.stdout == ("" if stops else "went on\n")
        assert done.returncode == (1 if stops else 0)


SAVES = """\
trap 'sleep 0.1; echo saved; exit {code}' TERM
echo begun
: >begun
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("code", "number", "end"), [(1, "0", 143), (1, "1", 124), (0, "0", 0)])
def test_command_that_can_be_requeued_saves_before_its_time_limit(tmp_path, shell, code, number, end):
    """A script around the program waits for it, and goes on only if it has finished."""
    (tmp_path / "program").write_text(SAVES.format(code=code))
    script = scripts.limit_time("sh program\necho finished", 31, requeues=1, grace=30)
    clock = 'sleep() { until [ -e begun ]; do command sleep 0.05; done; command sleep "$1"; }\n'
    done = run(shell, clock + script, tmp_path, PAI_REQUEUES=number)
    last = "finished\n" if code == 0 else ""
    assert (done.returncode, done.stdout) == (end, f"begun\nsaved\n{last}")
    streams_swapped = f"{done.stderr}{done.stdout}".encode()
    assert scripts.asks_to_run_again(streams_swapped) == (end == 143)


@pytest.mark.parametrize("requeues", [0, 1])
def test_end_of_a_time_limited_command_is_noted_where_it_failed(tmp_path, shell, requeues):
    """The embedded cluster keeps the folder and the variables of a failed task in this way."""
    script = scripts.limit_time("mkdir deep; cd deep; (exit 3) || exit 3", 60, requeues=requeues)
    done = run(shell, f"pai_on_exit='trap pwd EXIT'\n{script}", tmp_path)
    assert (done.returncode, done.stdout) == (3, f"{tmp_path}/deep\n")


def test_command_gets_the_signal_to_save_before_its_children_end(tmp_path, shell):
    """Otherwise, the end of the first child would end a shell that exits with the first failure.

    The children do not keep the output open, as one that begins at that moment gets no signal.
    """
    command = "trap 'echo saved; exit 9' TERM\nsleep 60 >/dev/null 2>&1 & first=$!\n"
    command += "for number in $(seq 30); do sleep 60 >/dev/null 2>&1 & done\nwait $first"
    done = run(shell, scripts.limit_time(command, 35, requeues=1, grace=30), tmp_path, PAI_REQUEUES="0")
    assert (done.returncode, done.stdout) == (143, "saved\n")


def test_command_that_does_not_end_in_time_is_killed_and_requeued(tmp_path):
    """Slurm ends it earlier here; on OpenPAI, the number of the attempt counts."""
    script = scripts.limit_time("trap '' TERM; sleep 60 & wait; sleep 60", 90, requeues=2, grace=1)
    ends = {"SLURM_JOB_END_TIME": str(int(time.time()) + 7), "FC_FRAMEWORK_ATTEMPT_ID": "1"}
    began = time.monotonic()
    assert run(SHELLS["bash"], script, tmp_path, **ends).returncode == 143
    assert time.monotonic() - began < 60


def test_tasks_of_a_job_that_is_requeued_wait_for_each_other(tmp_path):
    script = scripts.limit_time("sleep 60", 3, requeues=1, grace=2)
    began = time.monotonic()
    assert run(SHELLS["dash"], script, tmp_path, PAI_REQUEUES="0", PAI_TASKS_NUM="2").returncode == 143
    assert time.monotonic() - began > 1.9


def test_time_limited_bash_command_still_runs_in_bash(tmp_path):
    done = run(SHELLS["bash"], scripts.limit_time("a=(1 2); echo ${a[1]}; false | true", 60), tmp_path)
    assert done.stdout == "2\n" and done.returncode == 1  # pipefail


def test_time_limited_command_gets_a_signal_sent_to_its_shell(tmp_path):
    # `timeout` loses the command's exit code if the signal comes before it waits for the command.
    waited_for = "until grep -q '^State:.S' /proc/$PPID/status; do :; done"
    command = f"trap 'echo stopping; exit 7' TERM; {waited_for}; echo ready; while :; do sleep 0.05; done"
    script = scripts.limit_time(command, 90)
    process = subprocess.Popen(
        [*SHELLS["bash"], script], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for _ in range(100):  # bash handles a signal late if it comes just before bash waits
        process.terminate()
        try:
            out, _ = process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue
        break
    assert out.startswith("stopping\n") and process.returncode == 7


def test_roles_keep_their_resources_and_each_image_is_listed_once():
    roles = (
        RoleRequest("ps", "run ps", image="a", cpu=1),
        RoleRequest("worker", "run worker", 3, "b", gpu=2, ports={"web": 1}, shm_mb=64, min_succeeded=-1),
        RoleRequest("chief", "run chief", image="a"),
    )
    job = validate(dump(build_document(JobRequest("x", "n", roles=roles, environment={"A": "1"}))))
    assert [role.name for role in job.roles] == ["ps", "worker", "chief"]
    assert [role.image for role in job.roles] == ["a", "b", "a"]
    assert [item["uri"] for item in job.data["prerequisites"]] == ["a", "b"]
    worker = job.roles[1]
    assert (worker.instances, worker.gpu, worker.ports, worker.shm_mb) == (3, 2, {"web": 1}, 64)
    assert [role.min_succeeded for role in job.roles] == [1, -1, 1]
    assert job.entrypoints()["worker"] == "export A=1 || exit 1\nrun worker"
