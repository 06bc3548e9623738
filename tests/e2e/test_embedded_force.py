"""A server that does not answer is ended on request, it and no other; a spoilt cache costs nothing."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_embedded_cluster import facts, is_alive, until


def running_job(shell, name="runs"):
    """A job that says which process it is."""
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


def test_a_suspended_server_is_ended_and_its_jobs_with_it(shell):
    job = running_job(shell)
    pid = suspend(shell)
    ran = shell.ok("cluster.stop", "--force")
    assert f"the embedded cluster does not answer: ending its process {pid}" in ran.err
    assert "stopped the embedded cluster" in ran.err
    until(lambda: not is_alive(pid))
    until(lambda: not is_alive(job))
    assert shell.ok("cluster.status", "-o", "json").json()["running"] is False
    assert shell.ok("job.status", "runs", "-o", "json").json()["state"] == "STOPPED"


def test_its_jobs_run_on_if_that_is_wanted(shell):
    job = running_job(shell)
    pid = suspend(shell)
    shell.ok("cluster.stop", "--force", "--keep-jobs")
    until(lambda: not is_alive(pid))
    assert is_alive(job)
    assert shell.ok("job.status", "runs", "-o", "json").json()["state"] == "RUNNING"


HANGS = """\
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
from pathlib import Path
from openpai_tasks.server import service
service.hold_lock(Path(sys.argv[-1]))
print("held", flush=True)
while True:
    signal.pause()
"""


def test_one_that_hangs_before_it_ever_answers_is_killed(shell):
    (shell.project / "openpai_tasks.server").write_text(HANGS)
    argv = [sys.executable, "openpai_tasks.server", "--home", str(shell.home / "local")]
    with shell.start(*argv) as hung:
        assert hung.stdout.readline() == "held\n"
        shell.ok("cluster.stop", "--force")
        assert hung.wait(60) == -signal.SIGKILL


def test_without_force_a_server_that_does_not_answer_is_left_alone_with_a_hint(shell):
    shell.ok("cluster.start")
    pid = suspend(shell)
    try:
        ran = shell.inv("cluster.stop", INVOKE_OPENPAI_HTTP_TIMEOUT="1")
        assert ran.code != 0 and len(ran.err.splitlines()) == 1
        assert "did not answer within 1 s; `inv cluster.stop --force` kills it" in ran.err
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_force_is_no_more_than_a_stop_when_the_server_answers(shell):
    job = running_job(shell)
    ran = shell.ok("cluster.stop", "--force")
    assert "does not answer" not in ran.err and "stopping 1 jobs" in ran.err
    until(lambda: not is_alive(job))
    assert "was not running" in shell.ok("cluster.stop", "--force").err


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["stop", "force"])
def test_a_process_that_only_has_the_number_is_never_hit(shell, force):
    shell.ok("cluster.start")
    pid = facts(shell)["pid"]
    with bystander() as other:
        for name in ("server.json", "server.lock"):
            path = shell.home / "local" / name
            path.write_text(path.read_text().replace(str(pid), str(other.pid)))
        if force:
            os.kill(pid, signal.SIGSTOP)
        try:
            ran = shell.inv("cluster.stop", *force)
            assert ran.code != 0 and "cannot find out which process uses" in ran.err
            assert len(ran.err.splitlines()) == 1
            assert other.poll() is None and is_alive(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
            until(lambda: not is_alive(pid))


def test_the_server_of_another_home_is_never_hit(shell, tmp_path):
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
        assert ran.code != 0 and is_alive(other["pid"])
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


def test_a_damaged_token_is_replaced_in_silence(shell):
    shell.ok("job.list")
    path: Path = shell.home / "local" / "token"
    credentials = (shell.home / "local" / "credentials.json").read_text()
    for name, damage in DAMAGES.items():
        damage(path)
        ran = shell.ok("job.list", "-o", "json")
        assert (ran.out, ran.err) == ("[]\n", ""), name
        if name == "full-folder":
            (path / "file").unlink()  # somebody's file is left alone, and nothing is kept
            path.rmdir()
            path.touch()
        else:
            assert path.is_file() and not path.is_symlink(), name
            assert path.stat().st_mode & 0o777 == 0o600 and path.read_text().count(".") == 2, name
    assert (shell.home / "local" / "credentials.json").read_text() == credentials
