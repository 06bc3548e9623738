"""A server that does not answer is killed on request, and no other; a damaged token is replaced."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_embedded_cluster import facts
from tests.processes import is_running
from tests.server.workshop import until


def running_job(shell, name="runs"):
    """Start a job, and return its process ID."""
    note = shell.project / f"{name}.pid"
    shell.ok("job.sub", f"echo $$ > {note}.new; mv {note}.new {note}; sleep 600", "-j", name)
    until(note.exists)
    return int(note.read_text())


@contextlib.contextmanager
def bystander():
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def suspend(shell):
    pid = facts(shell)["pid"]
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_force_ends_a_suspended_server_and_its_jobs(shell):
    job = running_job(shell)
    pid = suspend(shell)
    ran = shell.ok("cluster.stop", "--force")
    assert f"the embedded cluster does not answer: ending its process {pid}" in ran.err
    assert "stopped the embedded cluster" in ran.err
    until(lambda: not is_running(pid))
    until(lambda: not is_running(job))
    assert shell.ok("cluster.status", "-o", "json").json()["running"] is False
    assert shell.ok("job.status", "runs", "-o", "json").json()["state"] == "STOPPED"


def test_force_with_keep_jobs_leaves_the_jobs_running(shell):
    job = running_job(shell)
    pid = suspend(shell)
    shell.ok("cluster.stop", "--force", "--keep-jobs")
    until(lambda: not is_running(pid))
    assert is_running(job)
    assert shell.ok("job.status", "runs", "-o", "json").json()["state"] == "RUNNING"


HANGS = """\
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
from pathlib import Path
from openpai_tasks.loopback import service
service.hold_lock(Path(sys.argv[-1]))
print("held", flush=True)
while True:
    signal.pause()
"""


def test_force_kills_a_server_that_hangs_at_startup(shell):
    (shell.project / "openpai_tasks.server").write_text(HANGS)
    argv = [sys.executable, "openpai_tasks.server", "--home", str(shell.home / "local")]
    with shell.start(*argv) as hung:
        assert hung.stdout.readline() == "held\n"
        shell.ok("cluster.stop", "--force")
        assert hung.wait(60) == -signal.SIGKILL


def test_unresponsive_server_is_left_alone_with_a_hint_without_force(shell):
    shell.ok("cluster.start")
    pid = suspend(shell)
    try:
        ran = shell.inv("cluster.stop", INVOKE_OPENPAI_HTTP_TIMEOUT="1")
        assert ran.code != 0 and len(ran.err.splitlines()) == 1
        assert "did not answer within 1 s; `inv cluster.stop --force` kills it" in ran.err
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_force_is_a_normal_stop_if_the_server_answers(shell):
    job = running_job(shell)
    ran = shell.ok("cluster.stop", "--force")
    assert "does not answer" not in ran.err and "stopping 1 job\n" in ran.err
    until(lambda: not is_running(job))
    assert "was not running" in shell.ok("cluster.stop", "--force").err


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["stop", "force"])
def test_other_process_with_the_recorded_pid_is_never_killed(shell, force):
    shell.ok("cluster.start")
    pid = facts(shell)["pid"]
    with bystander() as other:
        folder = shell.home / "local"
        (folder / "server.json").write_text(json.dumps({**facts(shell), "pid": other.pid}))
        (folder / "server.lock").write_text(f"{other.pid}\n")
        if force:
            os.kill(pid, signal.SIGSTOP)
        try:
            ran = shell.inv("cluster.stop", *force)
            assert ran.code != 0 and "cannot find out which process uses" in ran.err
            assert len(ran.err.splitlines()) == 1
            assert other.poll() is None and is_running(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
            until(lambda: not is_running(pid))


def test_server_of_another_home_is_never_killed(shell, tmp_path):
    shell.ok("cluster.start", OPENPAI_HOME=str(tmp_path / "other"))
    other = json.loads((tmp_path / "other" / "local" / "server.json").read_text())
    try:
        folder = shell.home / "local"
        folder.mkdir(parents=True)
        with (folder / "server.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(str(other["pid"]))
            lock.flush()
            (folder / "server.json").write_text(json.dumps({**other, "uri": "http://127.0.0.1:9"}))
            ran = shell.inv("cluster.stop", "--force")
        assert ran.code != 0 and is_running(other["pid"])
    finally:
        shell.ok("cluster.stop", OPENPAI_HOME=str(tmp_path / "other"))


# The token


def damage_binary(path):
    path.write_bytes(bytes(range(256)))


def damage_folder(path):
    path.unlink()
    path.mkdir()


def damage_full_folder(path):
    damage_folder(path)
    (path / "file").touch()


def damage_link(path):
    path.unlink()
    path.symlink_to("credentials.json")


def damage_pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


DAMAGES = {
    "binary": damage_binary,
    "empty": lambda path: path.write_text(""),
    "lines": lambda path: path.write_text("a\nb\n"),
    "cut": lambda path: path.write_text(path.read_text()[:-20]),
    "unreadable": lambda path: path.chmod(0),
    "open": lambda path: path.chmod(0o644),
    "folder": damage_folder,
    "full-folder": damage_full_folder,
    "link": damage_link,
    "pipe": damage_pipe,
}


def test_damaged_token_is_replaced_silently(shell):
    shell.ok("job.list")
    path: Path = shell.home / "local" / "token"
    credentials = (shell.home / "local" / "credentials.json").read_text()
    for name, damage in DAMAGES.items():
        damage(path)
        ran = shell.ok("job.list", "-o", "json")
        assert (ran.out, ran.err) == ("[]\n", ""), name
        if name == "full-folder":
            (path / "file").unlink()  # a foreign file is left alone, and no token is kept
            path.rmdir()
            path.touch()
        else:
            assert path.is_file() and not path.is_symlink(), name
            assert path.stat().st_mode & 0o777 == 0o600 and path.read_text().count(".") == 2, name
    assert (shell.home / "local" / "credentials.json").read_text() == credentials
