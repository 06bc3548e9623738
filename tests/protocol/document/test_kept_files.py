"""Files that match ``outputs`` are kept however the command ends, by the shells that servers use."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import kept_files
from openpai_tasks.protocol.document.job_storage import HdfsFolder, MountedFolder, is_output, unwrap
from openpai_tasks.sdk.jobs.resubmission import kept_patterns
from tests.needs import require
from tests.protocol.document.test_job_storage import HOME, SHELLS, run, script

SHELLS = {**SHELLS, "busybox": ["busybox", "sh", "-eu", "-c"]}

WRITE = "mkdir -p 'model/my deep/x' && cd model && echo >a.pt && echo >'b b.pt' && echo >'my deep/x/c.pt'"
LATER = " && echo n >note && cd / "


@pytest.fixture(params=SHELLS)
def shell(request):
    require(SHELLS[request.param][0])
    return SHELLS[request.param]


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def job(command: str, *patterns: str, join: str = "\n") -> str:
    return script(JobRequest(command, "n", "i", home=HOME, outputs=patterns), join)


def kept(work) -> list[str]:
    folder = work.parent / "root" / HOME.folder.lstrip("/") / "jobs" / "one" / "output"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("join", ["\n", " && "], ids=["newline", "and"])
def test_matching_files_are_kept(shell, join, work):
    done = run(shell, job(WRITE + LATER, "model/*.pt", join=join), work)
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(work) == ["model/a.pt", "model/b b.pt"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["model/my deep"], ["model/my deep/x/c.pt"]),
        (["model/**/*.pt"], ["model/a.pt", "model/b b.pt", "model/my deep/x/c.pt"]),
        (["**/c.pt"], ["model/my deep/x/c.pt"]),
        (["model/**"], ["model/a.pt", "model/b b.pt", "model/my deep/x/c.pt", "model/note"]),
        (["model/?.pt", "model/no[t]e"], ["model/a.pt", "model/note"]),
        (["*"], ["model/a.pt", "model/b b.pt", "model/my deep/x/c.pt", "model/note"]),
    ],
    ids=lambda value: value[0],
)
def test_patterns_match_as_in_python(shell, work, patterns, names):
    assert run(shell, job(WRITE + LATER, *patterns), work).stderr == ""
    assert kept(work) == names


def test_failed_command_keeps_its_files_and_its_exit_code(shell, work):
    done = run(shell, job(f"{WRITE}; exit 7", "model/*.pt"), work)
    assert done.returncode == 7 and kept(work) == ["model/a.pt", "model/b b.pt"]


def test_stopped_command_keeps_what_it_writes_within_the_grace_period(shell, work):
    """The signal comes to the outer shell alone, as from `docker stop`."""
    command = "trap 'echo last >end.pt; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    environment = {
        "PATH": os.environ["PATH"],
        "PAI_JOB_NAME": "me~one",
        "PAI_MOUNT_ROOT": str(work.parent / "root"),
    }
    process = subprocess.Popen(
        [*shell, job(command, "*.pt")], cwd=work, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 5 and kept(work) == ["end.pt"]


def test_signal_just_before_the_shell_waits_reaches_the_command(shell, work):
    """`kill -0` is the last command before `wait`."""
    before = """\
kill() {
  command kill "$@" || return
  [ "$1" = -0 ] && ! [ -e sent ] || return 0
  until [ -e ready ]; do sleep 0.01; done
  : >sent
  command kill -TERM $$
}
"""
    command = "trap 'echo last >end.pt; exit 5' TERM; : >ready; while :; do sleep 0.05; done"
    done = run(shell, before + job(command, "*.pt"), work, timeout=60)
    assert done.returncode == 5 and kept(work) == ["end.pt"]


def test_two_signals_at_once_both_reach_the_command(shell, work):
    """The second one comes while the shell waits for the end of `pai_twin`."""
    before = """\
kill() {
  [ "$1" = -KILL ] && [ ! -e sent ] || { command kill "$@"; return; }
  : >sent
  (sleep 0.2; command kill -USR1 $$; sleep 0.2; command kill -KILL "$2") >/dev/null 2>&1 &
}
"""
    command = """\
trap 'echo TERM >>got.txt' TERM
trap 'echo USR1 >>got.txt' USR1
kill -TERM $$
until grep -q TERM got.txt && grep -q USR1 got.txt; do sleep 0.05; done 2>/dev/null
exit 5"""
    done = run(shell, before + job(command, "*.txt"), work, timeout=60)
    assert done.returncode == 5 and kept(work) == ["got.txt"]


def test_missing_files_are_a_warning(shell, work):
    done = run(shell, job("true", "model/*.pt"), work)
    assert (done.returncode, done.stderr) == (0, "warning: no file matches model/*.pt\n") and kept(work) == []


def test_file_that_cannot_be_kept_fails_the_job(shell, work):
    """A file stands where its folder would have to be."""
    blocked = f'{WRITE} && echo >"$PAI_OUTPUT_DIR/model"'
    done = run(shell, job(blocked, "model/a.pt"), work)
    assert done.returncode == 1 and "error: cannot keep model/a.pt\n" in done.stderr
    done = run(shell, job(f"{blocked}; exit 3", "model/a.pt"), work)
    assert done.returncode == 3


def test_each_of_several_tasks_has_its_own_folder(shell, work):
    index = {"PAI_CURRENT_TASK_ROLE_NAME": "worker", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1"}
    run(shell, job(WRITE, "model/a.pt"), work, PAI_TASKS_NUM="2", **index)
    assert kept(work) == ["worker-1/model/a.pt"]


@pytest.mark.parametrize(
    "home", [HOME, HdfsFolder(("http://127.0.0.1:9/webhdfs/v1/w",), "me")], ids=["mount", "hdfs"]
)
def test_resubmission_reads_the_patterns_from_the_document(home):
    patterns = ("model/*.pt", "it's $here")
    step = home.output(patterns)
    assert is_output(step) and kept_files.read_mark(step) == patterns
    assert kept_files.read_mark(home.output()) == ()
    around = home.around(["one", "two"], patterns)
    assert unwrap(around) == ["one", "two"] and home.around(around, patterns) == around
    document = {"deployments": [{"taskRoles": {"main": {"preCommands": ["true", step]}}}]}
    assert kept_patterns(document) == patterns and kept_patterns({}) == ()


def test_without_outputs_commands_stay_as_they_are():
    assert MountedFolder("home", "/mnt/home").around(["one"]) == ["one"]


def test_patterns_outside_of_the_working_folder_are_refused():
    for pattern in ("", " ", "/etc/*", "../x", "a/../b", "a\nb"):
        with pytest.raises(ProtocolError, match="invalid output"):
            kept_files.check([pattern])
