"""Logging in to running jobs from the command line, with both ssh services and real clients."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shlex
import signal
import struct
import termios
import time
import urllib.request
from pathlib import Path

import paramiko
import pytest

from tests.conftest import BIN, make_shell
from tests.forkserver import start
from tests.needs import needs, require
from tests.ports import free_port
from tests.processes import is_running
from tests.server.workshop import until

pytestmark = needs("ssh")
SECONDS = 60
ONE_SERVICE = pytest.mark.parametrize("inside", ["asyncssh"], indirect=True)
"""For what the command does by itself, whichever service it talks to."""
SEEN = ("--env", "SEEN=it's  $HOME", "--env", "LINES=a\nb")


@pytest.fixture(scope="module", params=["sshd", "asyncssh"])
def inside(request, tmp_path_factory):
    """A shell with a job of two tasks that accepts ssh logins."""
    if request.param == "sshd":
        require("sshd")
    shell = make_shell(tmp_path_factory.mktemp("container"))
    user = tmp_path_factory.mktemp("user")
    shell.environment |= {"HOME": str(user), "INVOKE_OPENPAI_LOCAL_SSH": request.param}
    if request.param == "sshd" and os.geteuid():
        shell.environment["INVOKE_OPENPAI_SSH_USER"] = os.environ["USER"]
    (shell.project / "fabfile.py").write_text("from tasks import ns\n")
    shell.ok("cluster.start")
    shell.ok("job.sub", "echo up; sleep 1h", "-j", "train", "--ssh", "--instances", "2", "--cpu", "1", *SEEN)
    until(lambda: shell.inv("container.run", "train", "--all", "--", "true").code == 0)
    yield shell
    shell.ok("cluster.stop")


def test_command_keeps_its_arguments_outputs_and_exit_code(inside):
    script = 'printf "%s|" "$@"; cat; echo oops >&2; exit 7'
    ran = inside.inv("container.run", "train", "--", "sh", "-c", script, "-", "a  b", "$HOME", input="typed")
    assert (ran.code, ran.out, ran.err) == (7, "a  b|$HOME|typed", "oops\n")


def test_all_containers_run_a_command_at_once_and_label_each_line(inside):
    ran = inside.inv("container.run", "train", "echo $PAI_TASK_INDEX; exit $PAI_TASK_INDEX", "--all")
    assert sorted(ran.out.splitlines()) == ["main-0: 0", "main-1: 1"]
    assert (ran.code, ran.err) == (1, "main-1: exit code 1\n")


@ONE_SERVICE
def test_command_in_all_containers_ends_quietly_when_nobody_reads_it(inside):
    line = "inv container.run train --all -- seq 100000 | head -n 1; exit ${PIPESTATUS[0]}"
    ran = inside.run("bash", "-c", line)
    assert (ran.code, ran.out.partition(": ")[2], ran.err) == (141, "1\n", "")


def test_sessions_that_leave_in_the_middle_of_output_do_no_harm_to_later_ones(inside):
    words = shlex.split(inside.ok("container.ssh", "train", "--print-command").out)
    user, host = words[-1].split("@")
    key, port = (words[words.index(flag) + 1] for flag in ("-i", "-p"))
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        limits = {"banner_timeout": SECONDS, "auth_timeout": SECONDS}
        client.connect(
            host, int(port), user, key_filename=key, look_for_keys=False, allow_agent=False, **limits
        )
        for number in range(8):
            with client.get_transport().open_session() as channel:
                channel.exec_command("yes")
                assert channel.recv(2) == b"y\n"
            _, out, _ = client.exec_command(f"echo {number}", timeout=SECONDS)
            assert out.read() == b"%d\n" % number


def test_variables_of_the_job_are_set_in_logins(inside):
    ran = until(lambda: (ran := inside.inv("container.run", "train", "printenv SEEN")).code == 0 and ran)
    assert ran.out == "it's  $HOME\n"
    line = inside.ok("container.ssh", "train", "--print-command").out.strip()
    assert inside.run("sh", "-c", f"{line} 'echo \"$SEEN\"'").out == "it's  $HOME\n"
    assert inside.inv("container.ssh", "train", input='echo "$SEEN"\n').out == "it's  $HOME\n"


@ONE_SERVICE
def test_container_is_chosen_by_role_and_index(inside):
    ran = inside.ok(
        "container.run", "train", "--role", "main", "--index", "1", "--", "printenv", "PAI_TASK_INDEX"
    )
    assert ran.out == "1\n"


def test_ctrl_c_ends_the_remote_command(inside):
    running = inside.start("inv", "container.run", "train", "echo $$; exec sleep 321")
    pid = int(running.stdout.readline())
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    until(lambda: not is_running(pid))


def assert_ends_with_its_commands(running, code, pids):
    try:
        running.communicate(timeout=SECONDS)
        assert running.returncode == code
        until(lambda: not any(is_running(pid) for pid in pids))
    finally:
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", [[], ["--all"]], ids=["one", "all"])
def test_sigterm_ends_the_remote_command(inside, how):
    running = inside.start("inv", "container.run", "train", *how, "--", "sh", "-c", "echo $$; exec sleep 323")
    pids = [int(running.stdout.readline().rpartition(" ")[2]) for _ in range(2 if how else 1)]
    running.terminate()
    assert_ends_with_its_commands(running, 143, pids)


@pytest.mark.parametrize("which", [["--index", "0"], []], ids=["one", "two"])
def test_ctrl_c_ends_the_command_in_all_containers(inside, which):
    words = ("train", "--all", *which, "--", "sh", "-c", "echo $$; exec sleep 322")
    running = inside.start("inv", "container.run", *words)
    pids = [int(running.stdout.readline().rpartition(" ")[2]) for _ in range(1 if which else 2)]
    running.send_signal(signal.SIGINT)
    assert_ends_with_its_commands(running, 130, pids)


@pytest.mark.parametrize(("ignored", "left"), [("INT", False), ("INT TERM HUP", True)], ids=["int", "all"])
def test_ctrl_c_escalates_and_reports_a_command_that_keeps_running(inside, ignored, left):
    script = f"trap '' {ignored}; echo $$; exec sleep 324"  # no shell is left to report its end
    running = inside.start("inv", "container.run", "train", script)
    pid = int(running.stdout.readline())
    try:
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 130
        note = "the command may still be running in main-0 of job 'train': INT, TERM and HUP did not end it\n"
        assert (err, is_running(pid)) == (note if left else "", left)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@ONE_SERVICE
def test_two_commands_at_once_are_refused(inside):
    ran = inside.inv("container.run", "train", "echo one", "--", "echo", "two")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert "'echo one', and 'echo two' after --" in ran.err
    assert inside.ok("container.run", "train", "--", "echo", "a  b").out == "a  b\n"


def test_script_on_stdin_runs_in_the_shell(inside):
    ran = inside.inv("container.ssh", "train", input="echo $PAI_JOB_NAME | sed s/.*~//\nexit 4\n")
    assert (ran.code, ran.out) == (4, "train\n")
    assert inside.pai("ssh-container", "train", input="exit 5\n").code == 5


def test_shell_gets_the_terminal_size_and_ctrl_c(inside):
    with open_terminal(inside, "inv", "container.ssh", "train") as terminal:
        terminal.until(b"`exit` leaves it")
        terminal.type(b"stty size; echo re''ady\r")
        assert b"33 101" in terminal.until(b"ready")
        terminal.resize(44, 120)
        until(lambda: terminal.answers(b"stty size\r", b"44 120"))
        terminal.type(b"sh -c 'trap \"echo cau''ght; exit\" INT; echo wait''ing; sleep 99 & wait'\r")
        terminal.until(b"waiting")
        terminal.type(b"\x03")
        terminal.until(b"caught")
        terminal.type(b"exit 3\r")
        assert terminal.code() == 3


def test_files_and_folders_are_copied_both_ways(inside, tmp_path):
    project = inside.project
    (project / "tree" / "deep").mkdir(parents=True)
    (project / "tree" / "deep" / "data").write_bytes(os.urandom(300_000))
    (project / "tree" / "a b").write_text("spaces")
    put = inside.ok("container.put", "train", "tree", "-o", "json").json()
    assert put["files"] == 2
    assert inside.ok("container.put", "train", "tree", "-o", "json").json()["skipped"] == 2
    inside.ok("container.get", "train", "tree", str(tmp_path / "back"))
    assert (tmp_path / "back/deep/data").read_bytes() == (project / "tree/deep/data").read_bytes()
    inside.ok("container.get", "train", "tree/*b", str(tmp_path))
    assert (tmp_path / "a b").read_text() == "spaces"
    for wrong in (["none"], ["../x"], [""]):
        ran = inside.inv("container.get", "train", *wrong)
        assert ran.code and ran.err.startswith("error: ") and ran.err.count("\n") == 1


def test_ports_are_forwarded_both_ways_until_ctrl_c(inside):
    there, here, back = free_port(), free_port(), free_port()
    (inside.project / "page").write_text("hello")
    inside.ok("container.put", "train", "page")
    web = inside.start(
        "inv", "container.run", "train", f"exec python3 -m http.server {there} --bind 127.0.0.1"
    )
    reverse = ("-R", f"{back}:localhost:{here}")
    forward = inside.start("inv", "container.forward", "train", f"{there}:{here}", *reverse)
    try:
        assert f"127.0.0.1:{here}" in forward.stderr.readline()
        line = f"forwarding main-0 of job train:{back} → localhost:{here} as seen from here\n"
        assert forward.stderr.readline() == line
        assert until(lambda: page(here)) == b"hello"
        assert until(lambda: page(back)) == b"hello"  # the loopback of the container is that of this machine
        taken = inside.inv("container.forward", "train", f"{there}:{here}")
        assert taken.code == 120 and f"cannot listen on local port {here}" in taken.err
        taken = inside.inv("container.forward", "train", "-R", str(there))
        assert taken.code == 120 and taken.err.count("\n") == 1
        where = f"port {there} in main-0 of job 'train'"
        assert taken.err == f"error: cannot listen on {where}: it is in use there\n"
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=SECONDS)
        assert forward.returncode == 130
    finally:
        for process in (web, forward):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)


def test_a_port_is_forwarded_by_its_label_and_a_taken_one_replaced(cluster):
    port = free_port()
    serve = f"echo hello >page; exec python3 -m http.server {port} --bind 127.0.0.1"
    cluster.ok("job.sub", serve, "-j", "web", "--ssh", "--ports", f"web={port}", "--ports", "spare")
    until(lambda: page(port))
    until(lambda: cluster.inv("container.run", "web", "--", "true").code == 0)
    spare = cluster.ok("job.status", "web", "-o", "json").json()["tasks"][0]["ports"]["spare"]
    forward = cluster.start("inv", "container.forward", "web", "web", "spare:0")
    try:
        line = forward.stderr.readline()  # the program itself has the port on this machine
        here = int(line.split()[1].rpartition(":")[2])
        assert line == f"forwarding 127.0.0.1:{here} → job web:{port}\n" and here != port
        assert forward.stderr.readline().endswith(f" → job web:{spare}\n")
        assert until(lambda: page(here)) == b"hello\n"
    finally:
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=SECONDS)
    unknown = cluster.inv("container.forward", "web", "wbe")
    assert unknown.code == 120 and "job 'web' has no port labelled 'wbe' (it has: " in unknown.err
    cluster.ok("job.stop", "web")


@pytest.mark.parametrize("inside", ["sshd"], indirect=True)  # drop() would kill all of asyncssh
def test_forward_reconnects_after_an_outage_of_the_cluster(inside):
    there, here, back = free_port(), free_port(), free_port()
    (inside.project / "page").write_text("hello")
    inside.ok("container.put", "train", "page")
    serve = f"python3 -m http.server {there} --bind 127.0.0.1"
    inside.ok("container.run", "train", f"setsid {serve} >web.log 2>&1 </dev/null & echo $! >web.pid")
    until(lambda: page(there))  # otherwise the command may first report that nothing listens
    forward = inside.start("inv", "container.forward", "train", f"{there}:{here}", "-R", f"{back}:{there}")
    try:
        assert f"127.0.0.1:{here}" in forward.stderr.readline()
        assert f"→ localhost:{there}" in forward.stderr.readline()
        assert until(lambda: page(here)) == b"hello"
        port = inside.ok("container.list", "train", "-o", "json").json()[0]["port"]
        inside.ok("cluster.stop", "--keep-jobs")
        drop(port)
        assert "connection lost; reconnecting" in forward.stderr.readline()
        assert "trying again in" in forward.stderr.readline()
        inside.ok("cluster.start")
        assert until(lambda: page(here)) == until(lambda: page(back)) == b"hello"
    finally:
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=SECONDS)
        inside.ok("cluster.start")
        inside.ok("container.run", "train", "kill $(cat web.pid)")


def drop(port):
    """Kill the processes that have accepted a connection to the port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    came = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in came:
                os.kill(int(link.parts[2]), signal.SIGKILL)


def page(port):
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=5).read()


@ONE_SERVICE
def test_top_shows_what_each_container_uses(inside):
    rows = inside.ok("container.top", "train", "-o", "json").json()
    assert [row["container"] for row in rows] == ["main-0", "main-1"]
    for row in rows:
        assert row["error"] == "" and row["cpu"] >= 0 and 0 < row["memory"] <= row["memory_limit"]
    table = inside.ok("container.top", "train", "--once").out
    assert "CONTAINER" in table and "SCOPE" not in table


@ONE_SERVICE
def test_top_shows_the_usage_of_containers_and_not_of_the_machine(inside):
    script = "x = ' ' * (200 << 20)\nprint('up', flush=True)\nwhile True: pass"
    busy = inside.start("inv", "container.run", "train", "--index", "1", "--", "python3", "-c", script)
    try:
        assert busy.stdout.readline() == "up\n"
        top = ("container.top", "train", "-o", "json")
        quiet, loud = until(  # it uses little on a busy machine
            lambda: (rows := inside.ok(*top).json())[1]["cpu"] > 2 * rows[0]["cpu"] and rows
        )
        assert [row["scope"] for row in (quiet, loud)] == ["container", "container"]
        assert quiet["memory"] < 100 << 20 and 200 << 20 < loud["memory"] < 300 << 20
    finally:
        busy.send_signal(signal.SIGINT)
        busy.communicate(timeout=SECONDS)


@ONE_SERVICE
def test_ssh_scp_and_fab_know_the_job_by_its_name(inside, tmp_path):
    config = Path(inside.environment["HOME"]) / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host other\n  HostName 192.0.2.1\n")
    printed = inside.ok("container.ssh-config", "train", "--print").out
    assert "Host train train-main-0\n" in printed and not (inside.home / "ssh" / "config").exists()
    unasked = inside.ok("container.ssh-config", "train")
    assert "--yes" in unasked.err and config.read_text().startswith("Host other")
    for _ in range(2):
        inside.ok("container.ssh-config", "train", "--yes")
    assert config.read_text().count("Include") == 1 and config.read_text().startswith("Include ")
    ran = inside.run("ssh", "-F", str(config), "train-main-1", "printenv PAI_TASK_INDEX")
    assert (ran.code, ran.out) == (0, "1\n"), ran.err
    (inside.project / "sent").write_text("by scp")
    assert inside.run("scp", "-F", str(config), "sent", "train:arrived").code == 0
    assert inside.ok("container.run", "train", "cat arrived").out == "by scp"
    ran = inside.run("fab", "-H", "train,train-main-1", "--", "printenv PAI_TASK_INDEX")
    assert (ran.code, ran.out) == (0, "0\n1\n"), ran.err


@needs("rsync")
def test_scp_and_rsync_copy_folders_both_ways_by_host_name(inside, tmp_path):
    inside.ok("container.ssh-config", "train", "--yes")
    config = str(Path(inside.environment["HOME"]) / ".ssh" / "config")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "data").write_bytes(os.urandom(200_000))
    (tree / "a b").write_text("spaces")
    ways = {"scp": ("", "-F", config, "-r"), "rsync": ("/", "-a", "-e", f"ssh -F '{config}'")}
    for name, (end, *options) in ways.items():
        here, there, back = (f"{one}{end}" for one in (tree, f"train-main-1:{name}", tmp_path / name))
        for words in ((here, there), (there, back)):
            ran = inside.run(name, *options, *words)
            assert (ran.code, ran.err) == (0, ""), ran
        assert (tmp_path / name / "deep/data").read_bytes() == (tree / "deep/data").read_bytes()
        assert (tmp_path / name / "a b").read_text() == "spaces"
    assert "deep" in inside.ok("container.run", "train", "--index", "1", "ls scp").out


@ONE_SERVICE
def test_fab_has_our_tasks(inside):
    assert "container.ssh" in inside.run("fab", "--list").out
    assert inside.run("fab", "container.run", "train", "--", "echo", "a  b").out == "a  b\n"
    ran = inside.run("fab", "container.ssh", "train", input="exit 6\n")
    assert ran.code == 6, ran


@ONE_SERVICE
def test_key_of_the_job_is_in_our_home_and_private(inside):
    [row] = inside.ok("container.key", "train", "-o", "json").json()
    assert os.stat(row["key"]).st_mode & 0o777 == 0o600
    assert row["key"].startswith(str(inside.home))
    document = inside.ok("job.config", "train").out
    assert Path(row["key"] + ".pub").read_text().split()[1] in document and "PRIVATE" not in document


class Terminal:
    """A user at a terminal with 33 lines and 101 columns."""

    def __init__(self, shell, argv):
        self._fd, inner = os.openpty()
        self.resize(33, 101)
        wide = {"COLUMNS": "1000"}  # messages stay on one line, however long the paths in them
        env = {**shell.environment, "TERM": "xterm", **wide, "PATH": f"{BIN}:{os.environ['PATH']}"}
        streams = {"stdin": inner, "stdout": inner, "stderr": inner}
        self.process = start(argv, shell.project, env, has_controlling_terminal=True, text=False, **streams)
        os.close(inner)
        self._text = b""

    def resize(self, lines, columns):
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys):
        os.write(self._fd, keys)

    def until(self, words, seconds=SECONDS):
        """Return the output up to the words."""
        limit = time.monotonic() + seconds
        while words not in self._text:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise AssertionError(f"{words!r} is not among {self._text!r}")
            self._text += os.read(self._fd, 1 << 16)
        shown, _, self._text = self._text.partition(words)
        return shown + words

    def answers(self, keys, words):
        self.type(keys)
        with contextlib.suppress(AssertionError):
            return self.until(words, 1.0)

    def rest(self):
        """Return the rest of the output."""
        with contextlib.suppress(OSError):
            while select.select([self._fd], [], [], 1.0)[0] and (piece := os.read(self._fd, 1 << 16)):
                self._text += piece
        return self._text

    def code(self):
        return self.process.wait(SECONDS)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)


@contextlib.contextmanager
def open_terminal(shell, *argv):
    terminal = Terminal(shell, argv)
    try:
        yield terminal
    finally:
        terminal.close()


def test_failed_job_is_kept_as_it_crashed_until_it_is_stopped(cluster):
    """Following and waiting end with its exit code at once, and say until when it is kept."""
    crash = "mkdir deep; cd deep; export SEEN=crash; python3 -c 'raise ValueError(7)'"
    ran = cluster.inv("job.sub", crash, "-j", "boom", "--keep-failed", "10m", "--follow")
    kept = r"kept until \d\d:\d\d for `inv container.ssh boom`; `inv container.stop boom` ends it"
    assert ran.code == 1 and re.search(f"error: job 'boom' failed: ValueError: 7; {kept}\n$", ran.err), ran
    waited = cluster.inv("job.wait", "boom")
    assert waited.code == 1 and re.search(kept, waited.err)
    job = cluster.ok("job.status", "boom", "-o", "json").json()
    [row] = (one for one in cluster.ok("job.list", "-o", "json").json() if one["name"] == "boom")
    for found in (job, row):
        assert (found["state"], found["exit_code"], found["cause"]) == ("RUNNING", 1, "ValueError: 7")
        assert found["kept_until"] == job["kept_until"] is not None
    assert (
        "because: ValueError: 7\nit has failed; its environment is kept until"
        in cluster.ok("job.status", "boom").out
    )
    why = cluster.ok("job.why", "boom").out
    assert why.startswith("boom failed: ValueError: 7\n") and re.search(kept, why)
    shell = cluster.ok("container.ssh", "boom", input="pwd; echo $SEEN")
    assert shell.out.split("/")[-1] == "deep\ncrash\n"
    assert "job boom failed: ValueError: 7; kept until" in shell.err
    for _ in range(2):
        cluster.ok("container.stop", "boom")
    assert until(lambda: cluster.ok("job.status", "boom", "-o", "json").json()["state"] == "FAILED")
    assert cluster.inv("job.wait", "boom").code == 1
