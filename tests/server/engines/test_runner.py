from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openpai_tasks.server.engines import runner, task_state
from openpai_tasks.server.engines.runner import files, task
from openpai_tasks.server.engines.runner.files import SharedVariables, is_on_nfs
from openpai_tasks.server.engines.runner.task import Runner, RunnerOptions
from tests.memory import measurable, peak
from tests.processes import open_files
from tests.server.workshop import text, until

BASH = "/bin/bash"
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who a process's children are")


def prepare(folder: Path, command: str, **variables: str) -> Path:
    for name in ("work", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "command").write_text(command)
    known = {"PATH": os.environ["PATH"], **variables}
    (folder / "environment").write_text("".join(f"{name}={value}\0" for name, value in known.items()))
    return folder


def start(folder: Path, grace: float = 0.3, shell: str = BASH) -> subprocess.Popen[bytes]:
    options = [shell, str(grace), str(folder / "bell"), "boot-id"]
    return subprocess.Popen([sys.executable, "-I", "-S", runner.SCRIPT, *options, str(folder)])


def run(folder: Path, shell: str = BASH) -> dict[str, str]:
    assert start(folder, shell=shell).wait(60) == 0
    return result(folder)


def result(folder: Path) -> dict[str, str]:
    return dict(line.split() for line in (folder / "exit").read_text().splitlines())


def log(folder: Path, name: str = "stdout") -> str:
    path = folder / "logs" / name
    return path.read_text() if path.exists() else ""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_outputs_are_logged_separately_and_combined_in_private_files(tmp_path: Path) -> None:
    seen = "until grep -q {} ../logs/all; do sleep 0.01; done"
    command = f"echo one; {seen.format('one')}; echo two >&2; {seen.format('two')}; echo three"
    assert run(prepare(tmp_path, command))["code"] == "0"
    assert log(tmp_path) == "one\nthree\n"
    assert log(tmp_path, "stderr") == "two\n"
    assert log(tmp_path, "all") == "one\ntwo\nthree\n"
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "logs").iterdir()}
    assert modes == {0o600}
    records = list(struct.iter_unpack("<QQQ", (tmp_path / "logs" / "times").read_bytes()))
    assert [(stdout, stderr, mark & 1) for stdout, stderr, mark in records] == [
        (0, 0, 0),
        (4, 0, 1),
        (4, 4, 0),
    ]
    assert [mark >> 1 for *_, mark in records] == sorted(mark >> 1 for *_, mark in records)
    exit_times = result(tmp_path)
    assert int(exit_times["began"]) <= records[0][2] >> 1 <= records[-1][2] >> 1 <= int(exit_times["ended"])


def test_much_output_of_one_stream_has_few_records_of_its_time(tmp_path: Path) -> None:
    assert run(prepare(tmp_path, "for i in $(seq 20000); do echo $i; done"))["code"] == "0"
    took = int(result(tmp_path)["ended"]) - int(result(tmp_path)["began"])
    assert 1 <= (tmp_path / "logs" / "times").stat().st_size / 24 <= took / 100 + 1


def test_a_line_of_one_output_ends_before_a_line_of_the_other_begins(tmp_path: Path) -> None:
    command = """
echo -n 'epoch: 100%' >&2
until grep -q 100% ../logs/all; do sleep 0.01; done
kill -STOP $PPID
while [ -e /proc/$PPID ] && ! grep -q '^State:.T' /proc/$PPID/status; do sleep 0.01; done
printf '\\nnext: 0' >&2
echo done
kill -CONT $PPID
"""
    assert run(prepare(tmp_path, command))["code"] == "0"
    assert log(tmp_path, "all") == "epoch: 100%\ndone\nnext: 0"


def test_a_late_runner_does_nothing_once_the_command_is_removed(tmp_path: Path) -> None:
    prepare(tmp_path, "echo ran").joinpath("command").unlink()
    assert start(tmp_path).wait(60) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["environment", "logs", "work"]
    assert list((tmp_path / "logs").iterdir()) == []


def test_command_gets_its_variables_and_working_folder(tmp_path: Path) -> None:
    prepare(
        tmp_path, 'printf "%s|" "$TEXT" "$EMPTY" "$PWD"; test -z "${HOME+x}"', TEXT="a\nb = 'c'", EMPTY=""
    )
    assert run(tmp_path)["code"] == "0"
    assert log(tmp_path) == f"a\nb = 'c'||{tmp_path.resolve()}/work|"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 7", 7),
        ("false; echo no", 1),
        ("false | true; echo no", 1),
        ('echo "$NOT_SET"', 1),
        ("kill -11 $$", -11),
        ("bash -c 'kill -9 $$'; true", 137),
        ("no-such-command", 127),
        ("yes | head -n 1 > /dev/null || exit ${PIPESTATUS[0]}", 141),
    ],
)
def test_runner_reports_the_exit_code_of_the_command(tmp_path: Path, command: str, code: int) -> None:
    assert run(prepare(tmp_path, command))["code"] == str(code)
    assert "no\n" not in log(tmp_path)


def test_runner_works_with_plain_sh(tmp_path: Path) -> None:
    assert run(prepare(tmp_path, "echo hi; false; echo no"), shell="/bin/sh")["code"] == "1"
    assert log(tmp_path) == "hi\n"


def test_missing_shell_fails_the_task(tmp_path: Path) -> None:
    assert run(prepare(tmp_path, "true"), shell="/no/shell")["code"] == "126"
    assert "/no/shell" in log(tmp_path, "stderr")


def test_many_runners_for_one_task_run_it_once(tmp_path: Path) -> None:
    prepare(tmp_path, "echo ran >> ../count; sleep 0.2")
    for one in [start(tmp_path) for _ in range(4)]:
        assert one.wait(60) == 0
    assert start(tmp_path).wait(60) == 0
    assert (tmp_path / "count").read_text() == "ran\n"
    assert sorted(path.name for path in tmp_path.iterdir() if "started" in path.name) == ["started"]


def test_sigterm_lets_the_task_end_by_itself(tmp_path: Path) -> None:
    # bash dies of SIGTERM at once; the program it waits for still gets the grace period.
    program = (
        "import signal, time\nsignal.signal(15, lambda *_: (time.sleep(0.3), print('saved'), exit(0)))\n"
    )
    program += "print('up', flush=True)\nwhile True: time.sleep(0.01)"
    prepare(tmp_path, f'{sys.executable} -c "$PROGRAM"; true', PROGRAM=program)
    process = start(tmp_path, grace=90)
    until(lambda: log(tmp_path) == "up\n")
    process.terminate()
    assert process.wait(60) == 0
    assert result(tmp_path)["stopped"] == "1"
    assert log(tmp_path) == "up\nsaved\n"


def test_task_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    prepare(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.01; done")
    process = start(tmp_path, grace=0.3)
    until(lambda: log(tmp_path) == "up\n")
    process.terminate()
    assert process.wait(60) == 0
    assert (result(tmp_path)["code"], result(tmp_path)["stopped"]) == ("-9", "1")


def test_background_processes_end_with_the_task(tmp_path: Path) -> None:
    prepare(tmp_path, "sleep 600 & echo $! > ../pid; exit 4")
    began = time.monotonic()
    assert run(tmp_path)["code"] == "4"
    assert time.monotonic() - began < 60
    assert not is_running(int((tmp_path / "pid").read_text()))


@linux
def test_processes_that_left_the_group_are_ended_too(tmp_path: Path) -> None:
    escape = "setsid bash -c 'setsid sleep 600 & echo $! > ../pid; exec sleep 600' & "
    prepare(tmp_path, escape + "until test -s ../pid; do sleep 0.01; done; exit 3")
    assert run(tmp_path)["code"] == "3"
    assert not is_running(int((tmp_path / "pid").read_text()))


@linux
def test_command_dies_with_a_killed_runner(tmp_path: Path) -> None:
    process = start(prepare(tmp_path, "echo $$ > ../pid; exec sleep 600"))
    pid = int(until(lambda: text(tmp_path / "pid")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not is_running(pid))
    assert not (tmp_path / "exit").exists()


@measurable
def test_large_output_is_copied_fast_with_little_memory(tmp_path: Path) -> None:
    size = 100 * 2**20
    prepare(tmp_path, f"head -c {size} /dev/zero | tee /dev/stderr; exit 2")
    began = time.monotonic()
    process = start(tmp_path)
    held = peak(process)
    assert process.returncode == 0 and result(tmp_path)["code"] == "2"
    sizes = {name: (tmp_path / "logs" / name).stat().st_size for name in ("stdout", "stderr", "all")}
    assert sizes == {"stdout": size, "stderr": size, "all": 2 * size}
    assert time.monotonic() - began < 90
    assert held < 50 * 2**20


def test_runner_does_not_import_unneeded_modules() -> None:
    code = f"import runpy, sys; runpy.run_path({runner.SCRIPT!r}); print(len(sys.modules), *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"json", "subprocess", "pathlib", "openpai_tasks"} & set(done.stdout.split())


def test_output_on_nfs_is_flushed_shortly_after_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    made = Runner(RunnerOptions("sh", 1.0, "", "", flush=True), SharedVariables())
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    assert made.poll_timeout() is None
    made.write(log, b"text")
    made.flush()
    assert flushed == [] and made.poll_timeout() in (300, 301)
    made.flush_at = 1.0  # long ago
    made.flush()
    assert flushed == [log] and made.poll_timeout() is None
    os.close(log)


FULL = Path("/dev/full")
full_disk = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


@full_disk
def test_output_that_a_full_disk_does_not_take_is_written_later(tmp_path: Path) -> None:
    """Found by ``inv endure --engine process --seed 70801``: the request to run a job again was lost."""
    made = Runner(RunnerOptions("sh", 1.0, "", ""), SharedVariables())
    log = os.open(FULL, os.O_WRONLY)
    made.write(log, b"one\n")
    made.write(log, b"two\n")
    assert made.lost == 0 and 0 < (made.poll_timeout() or 0) <= 501
    disk = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(disk, log)
    made.write_held()  # not yet time to
    made.retry_at = 1.0  # long ago
    made.write_held()
    made.write(log, b"three\n")
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n" and made.poll_timeout() is None
    os.close(log)
    os.close(disk)


@full_disk
def test_output_beyond_what_is_held_for_a_full_disk_is_counted_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task, "MOST_HELD", 6)
    monkeypatch.setattr(task, "HOLD_SECONDS", 0.0)
    monkeypatch.setattr(task, "HOLD_PAUSE", 0.0)
    made = Runner(RunnerOptions("sh", 1.0, "", ""), SharedVariables())
    log = os.open(FULL, os.O_WRONLY)
    made.write(log, b"one\n")
    made.write(log, b"two\n")
    assert made.lost == 2
    made.finish_logs()
    assert made.lost == 8  # the disk was full for too long
    os.close(log)


@full_disk
def test_a_log_that_has_ended_is_written_once_the_disk_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Runner(RunnerOptions("sh", 1.0, "", ""), SharedVariables())
    made.wake_read, made.stderr, made.all = -1, -1, os.open(tmp_path / "all", os.O_WRONLY | os.O_CREAT)
    output, end = os.pipe()
    os.write(end, b"last words\n")
    os.close(end)
    made.logs[output] = log = os.open(FULL, os.O_WRONLY)
    made.poller.register(output)
    monkeypatch.setattr(files, "open_log", lambda _: os.open(tmp_path / "times", os.O_WRONLY | os.O_CREAT))
    made.copy(output)
    made.copy(output)
    assert not made.logs

    def empty_disk(_: float) -> None:
        made.retry_at = 1.0
        os.dup2(disk, log)

    disk = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    monkeypatch.setattr(time, "sleep", empty_disk)
    made.finish_logs()
    assert (tmp_path / "log").read_text() == (tmp_path / "all").read_text() == "last words\n"
    assert made.lost == 0


def test_the_file_system_of_a_folder_is_that_of_the_longest_mount_point() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /home nfs4 rw 0 0\n/dev/b /home/local\\040disk xfs rw 0 0\n"
    assert is_on_nfs(mounts, "/home/ann/jobs") and is_on_nfs(mounts, "/home")
    assert not is_on_nfs(mounts, "/home/local disk/jobs") and not is_on_nfs(mounts, "/homework")


def test_exit_is_written_once_the_disk_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    errors = [OSError(number, "") for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)]

    def write() -> str:
        if errors:
            raise errors.pop()
        return "written"

    assert files.when_possible(write) == "written" and pauses == [1] * 4
    errors = [FileNotFoundError(errno.ENOENT, "the folder was removed")]
    with pytest.raises(FileNotFoundError):
        files.when_possible(write)


def test_a_task_is_claimed_although_the_disk_fails_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    (tmp_path / "command").touch()
    unlink = os.unlink

    def fail_once(name: str) -> None:
        if os.path.exists("started"):
            monkeypatch.setattr(os, "unlink", unlink)
            raise OSError(errno.EIO, "Input/output error")
        unlink(name)

    monkeypatch.setattr(os, "unlink", fail_once)
    handle = files.when_possible(lambda: files.claim("7 1 boot\n"))
    assert handle is not None and task_state.is_alive(tmp_path)
    os.close(handle)


@linux
def test_a_claim_for_which_the_disk_has_no_space_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", fail)
    with pytest.raises(OSError, match="No space"):
        files.claim("7 1 boot\n")
    opened = [path for _, path in open_files(Path("/proc/self")) if path.startswith(f"{tmp_path}/")]
    assert not os.listdir(tmp_path) and not opened
