"""A forked command behaves like a new process: the same output, exit code and process environment."""

import contextlib
import gc
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forkserver
from tests.conftest import make_shell
from tests.portal.conftest import Web
from tests.processes import is_running, open_files

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
    threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
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
    ["pai", "--help", "job.sub"],
    ["inv", "nonsense"],
    ["pai", "job.status", "some", "--cluster-alias", "unknown"],
    ["inv", "end"],
    ["inv", "exits", "-1"],
    ["pai", "exits", "some words"],
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


def test_forked_commands_behave_like_new_processes(project):
    changed = {"TZ": "Asia/Tokyo", "TMPDIR": str(project.project), "COLUMNS": "60"}
    for argv in COMMANDS:
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
    started = project.project / "started"
    for seconds in (3, 30):
        with pytest.raises(subprocess.TimeoutExpired):
            forked(project, "inv", "waits", timeout=seconds)
        if started.exists() and started.read_text():  # a busy machine may need longer
            break
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_waits_for_a_background_process_that_keeps_the_output_open(project):
    began = time.monotonic()
    forked(project, "inv", "leaves")
    assert time.monotonic() - began > 2


def test_command_that_depends_on_interpreter_startup_is_not_forked(shell):
    assert forkserver.can_fork(["inv"], shell.environment, "")
    assert not forkserver.can_fork(["python"], shell.environment, "")
    assert not forkserver.can_fork(["inv"], shell.environment, "x" * 70_000)
    for changed in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"PATH": "/usr/bin"}):
        assert not forkserver.can_fork(["inv"], {**shell.environment, **changed}, "")


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
        while is_running(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)


SHOW_VARIABLES = "tr '\\0' '\\n' < /proc/$PPID/environ | sort; umask; ulimit -a"


def facts_of(process):
    """Return what the system shows of a process; whether it calls Python python or python3 is ignored."""
    program, *rest = process.joinpath("cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    status = dict(line.split(":", 1) for line in process.joinpath("status").read_text().splitlines())
    return {
        "words": [os.path.realpath(program), *rest],
        "folder": os.readlink(process / "cwd"),
        "status": {name: status[name] for name in ("Umask", "SigBlk", "SigIgn", "SigCgt")},
    }


def facts_of_server(folder, **environment):
    """Start an embedded cluster there, and return what the system shows of its process and its jobs."""
    folder.mkdir()
    shell = make_shell(folder)
    shell.ok("cluster.start", CUDA_VISIBLE_DEVICES="1", SECRET="s", **environment)

    def without_numbers(text):
        return re.sub("[0-9]+", "N", text.replace(str(folder), "FOLDER"))

    pid = json.loads((shell.home / "local/server.json").read_text())["pid"]
    process = Path(f"/proc/{pid}")
    try:
        facts = facts_of(process)
        ids = process.joinpath("stat").read_text().rpartition(")")[2].split()[2:4]
        before = set(open_files(process))
        ran = shell.ok("job.sub", SHOW_VARIABLES, "-j", "shows", "-f")
        # without what was open for a moment, without connections, which may be ending, and without libraries:
        # newer versions of libffi open their file
        files = [
            (number if int(number) < 3 else "", target)
            for number, target in before.intersection(open_files(process))
            if not target.startswith("socket:") and ".so" not in target
        ]
        found = {
            **facts,
            "leads its group and session": [int(number) == pid for number in ids],
            # each once: every thread opens the database when it needs it
            "files": sorted({(number, without_numbers(target)) for number, target in files}),
            "job": without_numbers(ran.out),
        }
    finally:
        shell.ok("cluster.stop")
    found["log"] = without_numbers((shell.home / "local/server.log").read_text())
    return json.loads(json.dumps(found).replace(str(folder), "FOLDER"))


def test_forked_server_behaves_like_a_new_process(tmp_path):
    mine = facts_of_server(tmp_path / "mine")
    usual = facts_of_server(tmp_path / "usual", **forkserver.FRESH)
    assert mine == usual
    assert "SECRET" not in mine["job"]


def facts_of_portal(folder, **environment):
    """Start a portal there, and return what the system shows of its process, and a page."""
    folder.mkdir()
    shell = make_shell(folder)
    link = shell.ok("cluster.portal", "--no-browser", TZ="Asia/Tokyo", **environment).out.strip()
    (status,) = shell.home.glob("portal/*/server.json")
    process = Path(f"/proc/{json.loads(status.read_text())['pid']}")
    try:
        before = set(open_files(process))
        with Web() as visitor:
            signed_in = visitor.get(link, timeout=60)
            page = visitor.get(f"{link.partition('/open/')[0]}/clusters", timeout=60)
        files = sorted(target for _, target in before.intersection(open_files(process)))
        found = {
            **facts_of(process),
            "files": [
                file for file in files if not file.startswith(("socket:", "pipe:")) and ".so" not in file
            ],
            "pages": [signed_in.status_code, page.status_code],
            "page": re.sub(r'(csrf" (?:content|value)="|127\.0\.0\.1:)[\w-]+', r"\1", page.text),
        }
    finally:
        shell.ok("cluster.portal", "--stop")
        shell.pai("cluster.stop")
    found["log"] = re.sub("^[-0-9:, ]+", "", status.with_name("portal.log").read_text(), flags=re.MULTILINE)
    key = status.parent.name  # of the project's folder
    return json.loads(json.dumps(found).replace(str(folder), "FOLDER").replace(key, "KEY"))


def test_forked_portal_behaves_like_a_new_process(tmp_path):
    mine = facts_of_portal(tmp_path / "mine")
    usual = facts_of_portal(tmp_path / "usual", **forkserver.FRESH)
    assert mine == usual and mine["pages"] == [200, 200]


def test_started_server_ends_with_its_exit_code(tmp_path):
    folder = tmp_path / "home"
    first = forkserver.start_server("--home", str(folder))
    while not (folder / "server.json").exists():
        assert first.poll() is None
        time.sleep(0.02)
    with (tmp_path / "log").open("w") as log:
        second = forkserver.start_server("--home", str(folder), stderr=log)
        assert second.wait(60) == 3
    assert "already running" in (tmp_path / "log").read_text()
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.01)
    first.terminate()
    assert (first.wait(60), first.poll()) == (0, 0)
    assert not Path(f"/proc/{first.pid}").exists()


def test_started_command_behaves_like_a_new_process(project):
    processes = [project.start("inv", "facts", fresh=fresh, stdin=subprocess.PIPE) for fresh in (False, True)]
    assert [type(process) for process in processes] == [forkserver.Forked, subprocess.Popen]
    mine, usual = (json.loads(process.communicate("typed", timeout=100)[0]) for process in processes)
    assert usual["environment"].pop(*forkserver.FRESH) and mine == usual
    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_forgotten_command_does_not_affect_the_next_one(project):
    """The traceback of a failed test has it in a cycle, with its connection."""
    process = project.start("inv", "waits")
    process.cycle, pid = process, process.pid
    del process
    gc.collect()
    assert project.start("inv", "facts").wait(60) == 0
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.02)


def test_a_command_may_be_forgotten_at_the_moment_at_which_it_ends():
    supervisor = forkserver.Supervisor()
    (ours, theirs), (client, control) = (
        socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)
    )
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with client, control:
        supervisor.add(process.pid, theirs)
        assert int(ours.recv(100)) == process.pid
        ours.close()
        socket.send_fds(client, [b"next"], [0])
        message, files = supervisor.next_request(control)
        list(map(os.close, files))
    assert message == b"next" and process.wait() == 0


def test_started_command_ends_with_the_signal_that_it_gets(project):
    process = project.start("inv", "waits")
    while not (project.project / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    assert process.pid == int((project.project / "started").read_text())
    process.terminate()
    assert process.communicate(timeout=60) == ("", "") and process.returncode == -signal.SIGTERM


def test_command_on_a_terminal_behaves_like_a_new_process(project):
    seen = []
    for extra in ({}, forkserver.FRESH):
        ours, theirs = pty.openpty()
        environment = {**project.environment, **extra}
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        started = forkserver.start(
            ["inv", "facts"], project.project, environment, has_controlling_terminal=True, **streams
        )
        os.close(theirs)
        os.write(ours, b"typed\n\x04")
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
        os.close(ours)
        facts = json.loads(shown[shown.index(b"{") :])
        assert started.wait(60) == 0 and facts.pop("session") == facts.pop("group") == started.pid
        facts["environment"].pop(*forkserver.FRESH, None)
        seen.append(facts)
        assert type(started) is (subprocess.Popen if extra else forkserver.Forked)
    assert seen[0] == seen[1] and seen[0]["typed"] == "typed\n"
