"""Commands at a real terminal: questions answered by y, n and Ctrl-C, and a view that refreshes."""

from __future__ import annotations

import os
import re

import pytest

from tests.conftest import make_shell
from tests.e2e.test_container import open_terminal
from tests.needs import needs
from tests.terminals import screen

BUSY = "while :; do n=0; while [ $n -lt 9999 ]; do n=$((n + 1)); done; sleep 0.1; done"
"""Uses a processor a little and never alike, as `container.top` draws only what has changed."""

pytestmark = needs("ssh")
CTRL_C = b"\x03"
SMALL = {"INVOKE_OPENPAI_CPU": "1", "INVOKE_OPENPAI_MEMORYMB": "64"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A cluster with a container that the tests share."""
    shell = make_shell(tmp_path_factory.mktemp("terminal"))
    shell.environment.update(SMALL)
    shell.ok("cluster.start")
    shell.ok("container.start", "--no-shell", "-j", "seen", "--timeout", "1h")
    yield shell
    shell.ok("cluster.stop")


@pytest.fixture
def user(shell, tmp_path):
    """The home of a user who has no ssh files yet."""
    shell.environment["HOME"] = str(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("keys", "code", "shown"),
    [
        (b"y\r", 0, b"includes it now"),
        (b"n\r", 0, b"nothing else was changed; to let ssh find them, put this line at the top of"),
        (b"\r", 0, b"nothing else was changed; "),
        (CTRL_C, 130, b"^C"),
    ],
    ids=["yes", "no", "return", "ctrl-c"],
)
def test_ssh_config_asks_once_before_it_changes_a_file_of_the_user(shell, user, keys, code, shown):
    config = user / ".ssh" / "config"
    with open_terminal(shell, "inv", "container.ssh-config", "seen") as terminal:
        assert b"now has seen, seen-main-0" in terminal.until(b"read it? [y/N] ")
        terminal.type(keys)
        terminal.until(shown)
        assert terminal.code() == code
        assert b"Traceback" not in terminal.rest()
    assert config.exists() is (keys == b"y\r") and (user / ".fabric.py").exists() is config.exists()
    if config.exists():
        again = shell.ok("container.ssh-config", "seen")
        assert again.err.count("\n") == 1, again.err


@pytest.mark.parametrize(
    ("keys", "shown", "state"),
    [
        (b"y\r", b"stopped", "STOPPED"),
        (b"n\r", b"continues; ", "WAITING"),
        (CTRL_C, b"continues; ", "WAITING"),
    ],
    ids=["yes", "no", "ctrl-c"],
)
def test_ctrl_c_while_waiting_asks_whether_to_stop_the_job(shell, request, keys, shown, state):
    name = f"large-{request.node.callspec.id}"
    with open_terminal(shell, "inv", "container.start", "-j", name, "--cpu", "9999") as terminal:
        terminal.until(b"waiting: ")
        terminal.type(CTRL_C)
        terminal.until(b"stop job " + name.encode() + b" too? [y/N] ")
        terminal.type(keys)
        terminal.until(b"job " + name.encode() + b" " + shown)
        assert terminal.code() == 130
        assert b"Traceback" not in terminal.rest()
    if state == "STOPPED":
        assert shell.inv("job.wait", name).code == 143  # it may still be STOPPING
    assert shell.ok("job.status", name, "-o", "json").json()["state"] == state
    shell.ok("job.stop", name)


@pytest.mark.parametrize(
    ("key", "shown", "code"),
    [(b"y\r", b"job left-y stopped", 4), (b"\r", b"`inv container.stop left-n` stops it", 4)],
    ids=["y", "n"],
)
def test_leaving_the_shell_of_a_new_container_asks_whether_to_stop_it(shell, request, key, shown, code):
    name = f"left-{request.node.callspec.id}"
    with open_terminal(shell, "env", "COLUMNS=200", "inv", "container.start", "-j", name) as terminal:
        before = terminal.until(b"`exit` leaves it")
        [command] = re.findall(rb"ssh command: (.*)\r\n", before)
        assert command.endswith(b"@127.0.0.1"), command  # on one line, which can be pasted
        terminal.until(b"$ " if os.getuid() else b"# ")
        terminal.type(b"exit 4\r")
        terminal.until(f"stop job {name}? [y/N] ".encode())
        terminal.type(key)
        terminal.until(shown)
        assert terminal.code() == code
    shell.inv("container.stop", name)


def test_top_redraws_in_place_until_ctrl_c(shell):
    shell.ok("container.run", "seen", f"nohup sh -c '{BUSY}' >/dev/null 2>&1 & echo $! >busy")
    with open_terminal(shell, "inv", "container.top", "seen", "--every", "0.1") as terminal:
        shown = b"".join(terminal.until(b"\x1b[1A") for _ in range(3))
        terminal.type(CTRL_C)
        assert terminal.code() == 130
        shown += terminal.rest()
    lines = [line for line in screen(shown.decode().replace("^C", ""), 80) if line]
    assert len(lines) == 2 and lines[0].startswith("CONTAINER"), lines
    assert re.search(r"main-0 +\d+\.\d\d of ", lines[1]), lines
    assert shown.count(b"CONTAINER") >= 3
    shell.ok("container.run", "seen", "kill $(cat busy)")
