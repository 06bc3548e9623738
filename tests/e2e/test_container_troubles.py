"""Errors with the containers of a job, and what is left of finished jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import make_shell
from tests.e2e.test_container import SECONDS
from tests.needs import needs
from tests.server.workshop import until
from tests.ssh_keys import make_key

pytestmark = needs("ssh")


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """A shell with a job that accepts ssh logins, on a machine with room for one more."""
    shell = make_shell(tmp_path_factory.mktemp("troubles"))
    shell.environment["HOME"] = str(tmp_path_factory.mktemp("user"))
    shell.ok("cluster.start")
    shell.ok("job.sub", "sleep 1h", "-j", "train", "--ssh", "--cpu", "1")
    until(lambda: shell.inv("container.run", "train", "--", "true").code == 0)
    yield shell
    shell.ok("cluster.stop")


def test_ssh_config_entries_of_finished_jobs_are_removed(inside):
    inside.ok("job.sub", "sleep 600", "-j", "short", "--ssh", "--cpu", "1")
    config = inside.home / "ssh" / "config"
    until(lambda: inside.inv("container.ssh-config", "short").code == 0)
    assert "Host short " in config.read_text()
    inside.ok("job.stop", "short")
    assert inside.inv("job.wait", "short", "--timeout", "60").code == 143
    inside.ok("container.ssh-config", "train")
    assert "Host short " not in config.read_text() and "Host train " in config.read_text()


def test_finished_job_loses_its_own_ssh_config_entry(inside):
    inside.ok("job.sub", "sleep 600", "-j", "brief", "--ssh", "--cpu", "1")
    config = inside.home / "ssh" / "config"
    until(lambda: inside.inv("container.ssh-config", "brief").code == 0)
    inside.ok("job.stop", "brief")
    assert inside.inv("job.wait", "brief", "--timeout", "60").code == 143
    printed = inside.inv("container.ssh-config", "brief", "--print")
    assert printed.code == 121 and "Host brief " in config.read_text()
    again = inside.inv("container.ssh-config", "brief")
    assert again.code == 121 and "Host brief " not in config.read_text(), again


def test_each_changed_file_of_the_user_is_reported_and_keeps_its_hosts(inside):
    user = Path(inside.environment["HOME"])
    own = user / ".ssh" / "config"
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(b"# caf\xe9\nHost train\n  HostName 192.0.2.1\n")
    messages = inside.ok("container.ssh-config", "train", "--yes").err
    assert "already has a host 'train'" in messages and (user / ".fabric.py").exists()
    assert own.read_bytes().startswith(b"Include ") and own.read_bytes().endswith(b"192.0.2.1\n")
    assert "\nHost train-main-0\n" in (inside.home / "ssh" / "config").read_text()
    (user / ".fabric.py").unlink()
    assert "Fabric" in inside.ok("container.ssh-config", "train").err and not (user / ".fabric.py").exists()
    before = own.read_bytes()
    inside.ok("container.ssh-config", "train", "--yes")
    assert (user / ".fabric.py").exists() and own.read_bytes() == before


def test_each_error_has_its_message_and_exit_code(inside):
    assert inside.inv("job.sub", "true", "-j", "over", "--follow", "--cpu", "1").code == 0
    inside.ok("job.sub", "sleep 600", "-j", "closed", "--cpu", "1")
    until(lambda: "RUNNING" in inside.ok("job.status", "closed").out)
    cases = {
        ("none",): (122, "no job named 'none'"),
        ("over",): (121, "its containers are gone"),
        ("closed",): (120, "was submitted without ssh"),
        ("train", "--role", "x"): (120, "no container with role 'x'"),
        ("train", "--index", "9"): (120, "no container with index 9"),
    }
    for words, (code, text) in cases.items():
        ran = inside.inv("container.ssh", *words)
        assert (ran.code, ran.err.count("\n")) == (code, 1), ran
        assert ran.err.startswith("error: ") and text in ran.err
    other = inside.project / "other"
    make_key(other)
    refused = inside.inv("container.ssh", "train", INVOKE_OPENPAI_SSH_KEY=str(other))
    assert refused.code == 122 and "refuses key" in refused.err
    inside.ok("job.stop", "closed")
    assert inside.inv("job.wait", "closed", "--timeout", "60").code == 143


@pytest.mark.parametrize("every", ["inf", "-5", "nan", "0", "1e12"])
def test_an_invalid_interval_is_refused_in_one_line(inside, every):
    ran = inside.inv("container.top", "train", f"--every={every}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1), ran
    assert ran.err.startswith("error: --every must be 0.1 to 86400 seconds, got ")


def test_job_that_ends_during_a_command_gives_no_traceback(inside):
    inside.ok("job.sub", "sleep 600", "-j", "ends", "--ssh", "--cpu", "1")
    until(lambda: inside.inv("container.run", "ends", "--", "true").code == 0)
    running = inside.start("inv", "container.run", "ends", "echo on; sleep 99")
    assert running.stdout.readline() == "on\n"
    inside.ok("job.stop", "ends")
    _, err = running.communicate(timeout=SECONDS)
    assert running.returncode and "Traceback" not in err
