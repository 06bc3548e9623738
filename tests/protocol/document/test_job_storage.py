"""Scripts that fetch a job's sources and keep its output, run by the shells that servers use."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openpai_tasks.protocol import JobRequest, build_document, dump, validate
from openpai_tasks.protocol.document import job_storage
from openpai_tasks.protocol.document.job_storage import HdfsFolder, MountedFolder, archive_name, unwrap
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect
from tests.hostile import Hostile, drip
from tests.needs import needs, require

SHELLS = {"sh": ["sh", "-c"], "dash": ["dash", "-eu", "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
SERVERS = {"sh newline": ("sh", "\n"), "dash and": ("dash", " && "), "bash newline": ("bash", "\n")}
"""Each shell once, and each text between the commands: a command depends on one or the other, not on both."""
ODD = 'my "team" $x `y`'


@pytest.fixture(params=SERVERS.values(), ids=SERVERS)
def server(request):
    """A shell, and what a server puts between the commands."""
    name, join = request.param
    return SHELLS[name], join


@pytest.fixture
def shell(server):
    return server[0]


@pytest.fixture
def join(server):
    return server[1]


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def archive(tmp_path):
    """The path of an archive in a mounted workspace, and its checksum."""
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text("print('trains')")
    (project / "pkg" / "run me.sh").write_text("#!/bin/sh\necho runs\n")
    (project / "pkg" / "run me.sh").chmod(0o755)
    made = pack(collect(["."], project).files)
    folder = tmp_path / "root" / "mnt" / "home" / ODD / "sources"
    folder.mkdir(parents=True)
    place = folder / archive_name(made.sha256)
    place.write_bytes(b"".join(made.pieces()))
    return place, made.sha256


HOME = MountedFolder("home", f"/mnt/home/{ODD}")


def script(spec: JobRequest, join: str) -> str:
    """The commands as a server joins them."""
    job = validate(dump(build_document(spec)))
    before = job.data["deployments"][0]["taskRoles"]["main"]["preCommands"]
    return join.join([*before, *job.data["taskRoles"]["main"]["commands"]])


def run(shell, text, folder, timeout=None, **environment):
    variables = {"PATH": os.environ["PATH"], "PAI_JOB_NAME": "me~one", **environment}
    variables["PAI_MOUNT_ROOT"] = str(folder.parent / "root")
    options = {"capture_output": True, "text": True, "timeout": timeout}
    return subprocess.run([*shell, text], cwd=folder, env=variables, **options)


def only(folder: Path, *tools: str) -> str:
    """A PATH with these tools and no others."""
    folder.mkdir()
    for tool in tools:
        found = os.path.realpath(sys.executable) if tool == "python3" else shutil.which(tool)
        (folder / tool).symlink_to(found)
    return str(folder)


def test_sources_on_a_mount_are_unpacked_with_their_file_modes(shell, join, work, archive):
    spec = JobRequest('cat train.py; "./pkg/run me.sh"; ls -A', "n", "i", home=HOME, archive=archive[1])
    done = run(shell, script(spec, join), work)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "print('trains')runs\npkg\ntrain.py\n"  # no other files remain


def test_damaged_archive_fails_the_job_with_an_error_line(shell, join, work, archive):
    place, sha256 = archive
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    done = run(shell, script(JobRequest("echo ran", "n", "i", home=HOME, archive=sha256), join), work)
    assert done.returncode == 1 and "ran" not in done.stdout
    assert done.stderr.startswith("error: the sources are damaged: ") and sha256 in done.stderr
    assert os.listdir(work) == [".pai-sources"]  # nothing of it was unpacked


def test_missing_archive_is_retried_once_and_then_fails_the_job(shell, join, work, archive):
    archive[0].unlink()
    text = script(JobRequest("echo ran", "n", "i", home=HOME, archive=archive[1]), join)
    done = run(shell, f"sleep() {{ echo slept $1; }}\n{text}", work)
    assert done.stdout == "slept 3\n"  # it retried once
    assert done.returncode == 1 and "ran" not in done.stdout
    assert f"error: cannot fetch the sources from {archive[0]}" in done.stderr


@pytest.mark.parametrize("tool", ["sha256sum", "shasum", "openssl", "python3"])
def test_any_common_tool_can_verify_the_checksum(tmp_path, work, archive, tool):
    require(tool)
    path = only(tmp_path / "tools", "cp", "tar", "gzip", "rm", "cat", "mkdir", tool)
    if tool == "shasum":
        (tmp_path / "tools" / "perl").symlink_to(shutil.which("perl"))
    text = script(JobRequest("cat train.py", "n", "i", home=HOME, archive=archive[1]), "\n")
    done = run([shutil.which("dash"), "-eu", "-c"], text, work, PATH=path)
    assert (done.returncode, done.stdout) == (0, "print('trains')"), done.stderr


def test_job_does_not_run_without_a_checksum_tool(tmp_path, work, archive):
    path = only(tmp_path / "tools", "cp", "tar", "gzip", "rm", "mkdir")
    text = script(JobRequest("echo ran", "n", "i", home=HOME, archive=archive[1]), "\n")
    done = run([shutil.which("dash"), "-eu", "-c"], text, work, PATH=path)
    assert done.returncode == 1 and "cannot check the sources" in done.stderr and "ran" not in done.stdout


@needs("busybox")
def test_fetching_sources_works_in_busybox_sh(work, archive):
    text = script(
        JobRequest('cat train.py; "./pkg/run me.sh"', "n", "i", home=HOME, archive=archive[1]), "\n"
    )
    done = run([shutil.which("busybox"), "sh", "-euc"], text, work)
    assert (done.returncode, done.stdout) == (0, "print('trains')runs\n"), done.stderr


def test_output_folder_belongs_to_the_running_job(shell, join, work):
    spec = JobRequest('echo "$PAI_OUTPUT_DIR"; ls -d "$PAI_OUTPUT_DIR"', "n", "i", home=HOME)
    done = run(shell, script(spec, join), work, PAI_JOB_NAME="me~copy")
    assert done.stdout == f"{work.parent}/root/mnt/home/{ODD}/jobs/copy/output\n" * 2


NOWHERE = HdfsFolder(("http://127.0.0.1:1/webhdfs/v1/ann",), "ann")


@pytest.mark.parametrize(
    "command, code",
    [("exit 0", 0), ("true", 0), ("exit 7", 7), ("cat <<E\nx\nE", 0), ("true # a remark", 0)],
)
def test_job_without_output_has_the_exit_code_of_its_command(shell, join, work, command, code):
    done = run(shell, script(JobRequest(command, "n", "i", home=NOWHERE), join), work)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.fixture
def instant_sleep(tmp_path):
    """A PATH whose `sleep` returns at once and prints the seconds."""
    tool = tmp_path / "instant_sleep" / "sleep"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "slept $1" >&2\n')
    tool.chmod(0o755)
    return f"{tool.parent}:{os.environ['PATH']}"


def test_time_limit_applies_to_a_job_whose_output_is_uploaded(shell, join, work, instant_sleep):
    (work / ".pai-output").mkdir()
    (work / ".pai-output" / "x").touch()  # here, as the command may have no time to write it
    spec = JobRequest("tail -f /dev/null", "n", "i", home=NOWHERE, max_seconds=1)
    done = run(shell, script(spec, join), work, PATH=instant_sleep)
    assert done.returncode == 124 and "cannot keep the output" in done.stderr


@pytest.mark.parametrize(
    "command, code",
    [
        *[("true", 1), ("exit 0", 1), ("exit 7", 7), ("(exit 7)", 7)],
        *[("exec true", 1), ("exec sh -c 'exit 7'", 7), ("trap 'exit 7' EXIT", 7), ("kill -9 0", 137)],
    ],
)
def test_failed_output_upload_changes_only_a_zero_exit_code(shell, join, work, instant_sleep, command, code):
    command = command.replace("kill -9 0", "kill -9 \"$(sh -c 'echo $PPID')\"")  # its own shell
    spec = JobRequest(f'echo x > "$PAI_OUTPUT_DIR/the file"\n{command}', "n", "i", home=NOWHERE)
    done = run(shell, script(spec, join), work, PATH=instant_sleep)
    assert done.returncode == code
    messages = [line for line in done.stderr.splitlines() if not line.startswith(("curl: ", "python3: "))]
    assert messages == [
        *[f"slept {seconds}" for seconds in (1, 3, 6, 10)],
        "error: cannot send the file to http://127.0.0.1:1/webhdfs/v1/ann/jobs/one/output",
        f"error: cannot keep the output: it stays in {work}/.pai-output only while this container runs",
    ]


def test_upload_without_curl_and_python_says_so(tmp_path, work):
    path = only(tmp_path / "tools", "sh", "mkdir", "find", "sleep")
    text = script(JobRequest('echo x > "$PAI_OUTPUT_DIR/x"', "n", "i", home=NOWHERE), "\n")
    done = run([shutil.which("dash"), "-eu", "-c"], text, work, PATH=path)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "error: there is neither curl nor python3 here",
        f"error: cannot keep the output: it stays in {work}/.pai-output only while this container runs",
    ]


def start_until_ready(shell, text, folder, **environment):
    """Start the script in a new process group and wait until its command prints `ready`."""
    variables = {"PATH": os.environ["PATH"], "PAI_JOB_NAME": "me~one", **environment}
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*shell, text], cwd=folder, env=variables, start_new_session=True, **outputs)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def wait_until_asleep(pid: int) -> None:
    """Wait until the shell sleeps: bash handles a signal late if it comes just before bash waits."""
    asleep = 0
    while asleep < 10:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)


COUNTING = """\
import signal, time
times = []
signal.signal(signal.SIG{name}, lambda *_: times.append(print("signalled", flush=True)))
print("ready", flush=True)
while not times:
    time.sleep(0.01)
time.sleep(0.5)
raise SystemExit(7)
"""


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["shell", "group"])
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_command_gets_a_signal_once_whether_sent_to_the_shell_or_the_group(shell, work, send, name):
    command = f"exec python3 -ISc '{COUNTING.format(name=name)}'"
    process = start_until_ready(shell, script(JobRequest(command, "n", "i", home=NOWHERE), "\n"), work)
    wait_until_asleep(process.pid)
    send(process.pid, signal.Signals[f"SIG{name}"])
    assert process.communicate(timeout=60) == ("signalled\n", "") and process.returncode == 7


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["shell", "group"])
def test_output_upload_is_attempted_after_the_command_is_terminated(shell, join, work, instant_sleep, send):
    command = 'echo x > "$PAI_OUTPUT_DIR/x"; echo ready; exec tail -f /dev/null'
    text = script(JobRequest(command, "n", "i", home=NOWHERE), join)
    process = start_until_ready(shell, text, work, PATH=instant_sleep)
    wait_until_asleep(process.pid)
    send(process.pid, signal.SIGTERM)
    _, messages = process.communicate(timeout=60)
    assert (
        process.returncode == 143 and "error: cannot send x to" in messages and "Terminated" not in messages
    )


@pytest.mark.parametrize("seconds", [None, 600], ids=["unlimited", "limited"])
def test_command_that_is_stopped_as_soon_as_it_runs_ends_at_once(work, instant_sleep, seconds):
    """Bash may lose the status of a child that ends while a signal interrupts its `wait` (1 of 5 runs)."""
    request = JobRequest("echo ready; exec tail -f /dev/null", "n", "i", home=NOWHERE, max_seconds=seconds)
    text, path = script(request, "\n"), instant_sleep if seconds else os.environ["PATH"]
    for number in range(20):
        process = start_until_ready(SHELLS["bash"], text, work, PATH=path)
        time.sleep(number % 5 / 1000)
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 143


def test_command_run_by_bash_keeps_the_default_sigint_handler(work):
    command = "python3 -c 'import signal; print(signal.getsignal(signal.SIGINT))'"
    done = run(SHELLS["bash"], script(JobRequest(command, "n", "i", home=NOWHERE), "\n"), work)
    assert "default_int_handler" in done.stdout


def test_wrapped_commands_can_be_unwrapped_and_are_wrapped_only_once():
    for commands in (["one"], ["one", "two"], ["one", "two", "three"]):
        around = NOWHERE.around(commands)
        assert unwrap(around) == commands and around != commands
        assert NOWHERE.around(around) == around
    assert HOME.around(["one"]) == ["one"] == unwrap(["one"])


@pytest.mark.parametrize("program", [job_storage._REQUEST, job_storage._DOWNLOAD_IT])
def test_server_that_answers_byte_by_byte_does_not_hold_a_job(tmp_path, program):
    quick = re.sub(r"alarm\([36]00", "alarm(1", program)
    with Hostile(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), 0.1) as server:
        words = ["GET", server.uri, ""] if program is job_storage._REQUEST else [server.uri]
        done = subprocess.run([sys.executable, "-ISc", quick, *words], cwd=tmp_path, capture_output=True)
    assert done.returncode == -signal.SIGALRM
