"""A job finds no secrets from the environment of the user who started the cluster, wherever it looks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_embedded_cluster import facts
from tests.forkserver import FRESH
from tests.leaks import files_with
from tests.processes import kill
from tests.server.workshop import until

CANARY = "canary-4f1c9d"
PLANTED = {
    **FRESH,  # a new process, whose variables the system shows
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "OPENPAI_TOKEN": CANARY,
    "OPENPAI_PASSWORD": CANARY,
    "HTTPS_PROXY": f"http://me:{CANARY}@proxy.example",
    "SSH_AUTH_SOCK": f"/{CANARY}",
}
LOOK = """\
import os, sys
def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
seen, pid = [], os.getpid()
while pid > 1:
    seen.append(pid)
    pid = parent(pid)
for pid in dict.fromkeys([*seen, *map(int, sys.argv[1:])]):
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = [entry for entry in file.read().split(bytes(1)) if b"canary" in entry]
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        print(pid, file.read().replace(bytes(1), b" "), "FOUND" if found else "nothing", *found)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks through /proc")


def look(shell, name, *more, **environment):
    """Run and follow a job that searches its ancestors and the server for secrets."""
    (shell.project / "look.py").write_text(LOOK)
    server = 'sed -n "s/.*\\"pid\\": \\([0-9]*\\).*/\\1/p" ' + str(shell.home / "local" / "server.json")
    command = f"{sys.executable} look.py $({server})"
    return shell.pai("job.sub", command, "-j", name, "--sources", "look.py", "--follow", *more, **environment)


def assert_nothing_found(ran):
    assert ran.code == 0, ran
    assert "nothing" in ran.out and "openpai_tasks.server" in ran.out
    assert "FOUND" not in ran.out and CANARY not in ran.out


def test_job_finds_no_secrets_of_the_command_that_started_the_cluster(shell):
    assert_nothing_found(look(shell, "first", **PLANTED))


def test_jobs_and_files_have_no_secrets_after_a_manual_start_or_a_crash(shell):
    assert shell.pai("cluster.start", **PLANTED).code == 0
    assert_nothing_found(look(shell, "started"))
    pid = facts(shell)["pid"]
    kill(pid)
    assert_nothing_found(look(shell, "again", **PLANTED))
    assert facts(shell)["pid"] != pid
    assert files_with(CANARY, shell.home / "local") == []


def test_job_finds_no_secrets_of_the_server_command(shell):
    argv = [sys.executable, "-m", "openpai_tasks.server", "--home", str(shell.home / "local")]
    with subprocess.Popen(argv, env={**shell.environment, **PLANTED}) as server:
        try:
            until((shell.home / "local" / "server.json").exists)
            assert_nothing_found(look(shell, "by-hand"))
            assert facts(shell)["pid"] == server.pid
        finally:
            server.terminate()
