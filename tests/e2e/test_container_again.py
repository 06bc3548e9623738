"""Containers that are restarted while somebody works in them."""

from __future__ import annotations

import re

import pytest

from tests.e2e.test_container import SECONDS, open_terminal
from tests.ports import free_port
from tests.server.workshop import until


@pytest.fixture(scope="module")
def small(cluster):
    cluster.environment.update({"INVOKE_OPENPAI_CPU": "1", "INVOKE_OPENPAI_MEMORYMB": "64"})
    return cluster


def submit(shell, name, command='echo $$ >"$PAI_WORK_DIR/pid"; exec sleep 600', *flags):
    shell.ok("job.sub", command, "-j", name, "--ssh", "--retries", "3", *flags)
    until(lambda: shell.inv("container.run", name, "test -s pid").code == 0)


@pytest.mark.parametrize("how", [[], ["--all"]], ids=["one", "all"])
def test_a_lost_command_reports_that_its_container_was_restarted(small, how):
    name = f"lost{len(how)}"
    submit(small, name)
    running = small.start("inv", "container.run", name, *how, "--", "sh", "-c", "echo up; sleep 600")
    assert "up" in running.stdout.readline()
    small.inv("container.run", name, "kill -9 $(cat pid)")
    _, error = running.communicate(timeout=SECONDS)
    assert running.returncode == 121, error
    assert error.count("\n") == 1 and error.startswith("error: "), error
    assert f"main-0 of job '{name}' is lost: " in error
    # The last if the cluster needed more than three seconds to notice it.
    ways = ("has been restarted; run it again\n", "run it again when it runs\n", "; run it again\n")
    assert error.endswith(ways), error
    small.ok("job.stop", name)


PAIR = 'test "$PAI_TASK_INDEX" = 1 || until test -e over; do sleep 0.1; done; test -e over || exec sleep 600'


def test_end_of_one_container_leaves_the_others_usable(small):
    """A forward stays with its container, and a command for all of them leaves out those that are over."""
    small.ok("job.sub", PAIR, "-j", "pair", "--ssh", "--instances", "2")
    until(lambda: small.inv("container.run", "pair", "--all", "--", "true").code == 0)
    forward = small.start("inv", "container.forward", "pair", f"{free_port()}:0")
    try:
        assert "main-0 of job pair:" in forward.stderr.readline()
        small.inv("container.run", "pair", "--index", "0", "--", "touch", "over")  # may end our connection
        _, error = forward.communicate(timeout=SECONDS)
    finally:
        forward.kill()
        forward.wait()
    assert error.endswith("main-0 of job pair is SUCCEEDED: forwarding has ended\n"), error
    assert "reconnected" not in error and forward.returncode == 0
    ran = small.inv("container.run", "pair", "--all", "--", "sh", "-c", "echo in")
    assert (ran.code, ran.out, ran.err) == (0, "main-1: in\n", "skipped: main-0 is SUCCEEDED\n")
    ran = small.inv("container.run", "pair", "--all", "--index", "0", "--", "true")
    assert (ran.code, ran.err.count("\n")) == (121, 1), ran
    assert "job 'pair' has no such container any more: main-0 is SUCCEEDED" in ran.err
    small.ok("job.stop", "pair")


def test_forward_reconnects_to_the_next_container_of_its_task(small):
    submit(small, "again")
    there = free_port()
    forward = small.start("inv", "container.forward", "again", f"{there}:0")
    try:
        assert f"job again:{there}\n" in forward.stderr.readline()
        small.inv("container.run", "again", "kill -9 $(cat pid)")
        lines = iter(forward.stderr.readline, "")
        assert any(line == "reconnected\n" for line in lines)
    finally:
        forward.kill()
        forward.communicate()
    small.ok("job.stop", "again")


SMALL_THEN_LARGE = """
echo $$ >"$PAI_WORK_DIR/pid"
mkdir "$PAI_MOUNT_ROOT/mnt/home/small" 2>/dev/null && exec sleep 600
exec python3 -c 'x = b"x" * (300 << 20); import time; time.sleep(600)'
"""


def test_top_continues_with_the_next_container_of_a_task(small):
    submit(small, "watched", SMALL_THEN_LARGE, "--memoryMB", "512")
    with open_terminal(small, "inv", "container.top", "watched", "--every", "0.1") as terminal:
        terminal.until(b" MiB of ")
        small.inv("container.run", "watched", "kill -9 $(cat pid)")
        until(lambda: re.search(rb" 3\d\d\.\d MiB of $", terminal.until(b" MiB of ")))
        assert terminal.process.poll() is None
    small.ok("job.stop", "watched")
