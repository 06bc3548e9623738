"""A forked command behaves like a new process: the same output, exit code and process environment."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forkserver

PROBE = """
import atexit, json, logging, os, random, signal, subprocess, sys, tempfile, threading, time
from openpai_tasks.tasks import namespace, task

def describe(stream):
    return [stream.encoding, stream.errors, stream.line_buffering, stream.isatty(), stream.seekable()]

@task
def facts(c):
    print(json.dumps({
        "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "environment": dict(os.environ),
        "files": sorted(os.listdir("/proc/self/fd")), "group": os.getpgrp(), "session": os.getsid(0),
        "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "blocked": [*signal.pthread_sigmask(signal.SIG_BLOCK, [])], "umask": os.umask(0), "zone": time.tzname,
        "temporary": tempfile.gettempdir(), "threads": threading.active_count(),
        "streams": [describe(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "logging": [str(logging.root.handlers), logging.root.level], "project": "tasks" in sys.modules,
        "typed": sys.stdin.read(),
    }, sort_keys=True))

@task
def chance(c):
    print(random.random())

@task
def end(c):
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
    print("no newline", end="")
    sys.stderr.write("error")

@task
def exits(c, code):
    sys.exit(int(code) if code.lstrip("-").isdigit() else code)

@task
def broken(c):
    raise ValueError("broken")

@task
def killed(c, number):
    print("before", flush=True)
    os.kill(os.getpid(), int(number))
    time.sleep(60)

@task
def leaves(c):
    subprocess.Popen(["sleep", "2"])

@task
def waits(c):
    with open("starting", "w") as file:
        file.write(str(os.getpid()))
    os.rename("starting", "started")
    time.sleep(60)

ns = namespace(facts, chance, end, exits, broken, killed, leaves, waits)
"""

COMMANDS = [
    ["inv", "facts"],
    ["fab", "facts"],
    ["pai", "facts"],
    ["inv", "--help"],
    ["fab", "--version"],
    ["pai", "--help", "job.sub"],
    ["pai", "--list"],
    ["inv", "nonsense"],
    ["pai", "job.list", "-o", "nonsense"],
    ["pai", "job.status", "some", "--cluster-alias", "unknown"],
    ["pai", "config.show"],
    ["inv", "end"],
    ["inv", "exits", "3"],
    ["inv", "exits", "-1"],
    ["pai", "exits", "some words"],
    ["inv", "killed", str(int(signal.SIGTERM))],
    ["inv", "killed", str(int(signal.SIGKILL))],
    ["pai", "killed", str(int(signal.SIGINT))],
]


@pytest.fixture
def project(shell):
    (shell.project / "tasks.py").write_text(PROBE)
    (shell.project / "fabfile.py").write_text(PROBE)
    return shell


def forked(shell, *argv, timeout=100, **environment):
    environment = {**shell.environment, **environment}
    assert forkserver.can_fork(argv, environment, "typed")
    return forkserver.ForkServer.get().run(argv, shell.project, environment, "typed", timeout)


def started(shell, *argv, **environment):
    environment = {**shell.environment, **environment}
    return subprocess.run(
        argv, cwd=shell.project, env=environment, input="typed", capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_forked_command_behaves_like_a_new_process(project, argv):
    changed = {"TZ": "Asia/Tokyo", "TMPDIR": str(project.project), "COLUMNS": "60"}
    mine, usual = (run(project, *argv, **changed) for run in (forked, started))
    assert (mine.returncode, mine.stdout, mine.stderr) == (usual.returncode, usual.stdout, usual.stderr)


def test_unexpected_error_prints_a_traceback(project):
    mine, usual = (run(project, "inv", "broken") for run in (forked, started))
    assert mine.returncode == usual.returncode == 1
    assert mine.stderr.splitlines()[-1] == usual.stderr.splitlines()[-1] == "ValueError: broken"


def test_forked_commands_do_not_share_their_random_numbers(project):
    assert forked(project, "inv", "chance").stdout != forked(project, "inv", "chance").stdout


def test_line_endings_are_normalised(project):
    assert forked(project, "inv", "exits", "a\r\nb\rc").stderr == "a\nb\nc\n"


def test_command_is_killed_on_timeout(project):
    with pytest.raises(subprocess.TimeoutExpired):
        forked(project, "inv", "waits", timeout=3)
    with pytest.raises(ProcessLookupError):
        os.kill(int((project.project / "started").read_text()), 0)


def test_waits_for_a_background_process_that_keeps_the_output_open(project):
    began = time.monotonic()
    forked(project, "inv", "leaves")
    assert time.monotonic() - began > 2


@pytest.mark.parametrize(
    ("argv", "environment", "input"),
    [
        (["python", "-V"], {}, ""),
        (["inv", "--version"], {"PYTHONIOENCODING": "ascii"}, ""),
        (["inv", "--version"], {"LC_ALL": "C"}, ""),
        (["inv", "--version"], {"PATH": "/usr/bin"}, ""),
        (["inv", "--version"], {}, "x" * 70_000),
    ],
)
def test_command_that_depends_on_interpreter_startup_is_not_forked(shell, argv, environment, input):
    assert not forkserver.can_fork(argv, {**shell.environment, **environment}, input)


def test_fork_server_and_its_commands_end_with_the_client_process(project):
    code = (
        "import os, sys, threading, time; from pathlib import Path; from tests import forkserver\n"
        "server = forkserver.ForkServer.get(); print(server.process.pid, flush=True)\n"
        "work = lambda: server.run(['inv', 'waits'], Path(sys.argv[1]), os.environ, '', 60)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "while not Path(sys.argv[1], 'started').exists(): time.sleep(0.05)\n"
        "os._exit(0)"
    )
    root = Path(__file__).parent.parent
    argv = [sys.executable, "-c", code, project.project]
    ran = subprocess.run(
        argv, cwd=root, env=project.environment, stdout=subprocess.PIPE, text=True, check=True
    )
    deadline = time.monotonic() + 60
    for pid in (int(ran.stdout), int((project.project / "started").read_text())):
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
