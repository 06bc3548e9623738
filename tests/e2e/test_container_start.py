"""Interactive containers, started, entered, extended and stopped by real commands."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Shell
from tests.needs import needs
from tests.server.workshop import until
from tests.ssh_keys import make_key

needs_ssh = needs("ssh")
SMI = "#!/bin/sh\necho 0\n"


def state(shell: Shell, name: str) -> str:
    return shell.ok("job.status", name, "-o", "json").json()["state"]


SMALL = {"INVOKE_OPENPAI_CPU": "1", "INVOKE_OPENPAI_MEMORYMB": "64"}
"""Two containers of that size fit on any machine."""


@pytest.fixture(scope="module")
def cluster(cluster):
    cluster.environment.update(SMALL)
    return cluster


@pytest.fixture
def shell(shell):
    shell.environment.update(SMALL)
    return shell


@pytest.fixture(scope="module")
def kept(cluster):
    """A container that several tests share."""
    (cluster.project / "train.py").write_text("print('trained')\n")
    ran = cluster.ok(
        *("container.start", "--no-shell", "-j", "kept", "--timeout", "10m", "--sources", "train.py"),
        *("-o", "json"),
    )
    yield ran
    cluster.inv("container.stop", "kept")


def test_a_container_starts_and_a_shell_opens_in_it(cluster):
    ran = cluster.inv(
        "container.start", "-j", "work", "--timeout", "5m", input="echo in $PAI_JOB_NAME; exit 7\n"
    )
    assert ran.code == 7, ran
    assert re.fullmatch(r"in \w+~work\n", ran.out)
    assert "waiting up to 1800 s for it (--wait-limit)" in ran.err
    assert "no sshd" not in ran.err
    end = r"until .*\d\d:\d\d \(for (5m 00s|4m \d\ds)\), or until it is idle for 2h 00m; `inv container"
    assert re.search(rf"it runs {end}.extend work` keeps it longer", ran.err), ran.err
    assert re.search(rf"job work runs {end}.ssh work` opens a shell again", ran.err), ran.err
    assert "it ends by itself after 5m 00s (--timeout), or earlier after 2h 00m without a login" in ran.err
    assert cluster.ok("container.stop", "work", "-o", "json").json()[0]["name"] == "work"
    until(lambda: state(cluster, "work") == "STOPPED")  # before another test needs no name for its own


@needs_ssh
def test_no_shell_prints_the_command_that_opens_one(cluster, kept):
    login = kept.json()
    assert (login["job"], login["container"], login["host"]) == ("kept", "main-0", "127.0.0.1")
    assert Path(login["key"]).stat().st_mode & 0o777 == 0o600
    words = f"{login['command']} -o BatchMode=yes python3 train.py"
    ran = cluster.run("sh", "-c", words)
    assert (ran.code, ran.out) == (0, "trained\n"), ran


def test_extend_never_shortens_a_container(cluster, kept):
    longer = cluster.ok("container.extend", "kept", "--timeout", "3h", "-o", "json").json()
    assert longer == [{"container": "main-0", "duration": 3 * 3600, "extended_by": "ssh"}]
    assert (
        cluster.ok("container.extend", "kept", "--timeout", "1h", "-o", "json").json()[0]["duration"] > 3600
    )


def test_too_long_timeout_changes_nothing(cluster, kept):
    ran = cluster.inv("container.extend", "kept", "--timeout", "9999999d")
    assert (ran.code, ran.out, ran.err) == (
        120,
        "",
        "error: --timeout must be at most 3650d, got '9999999d'\n",
    )
    [extended] = cluster.ok("container.extend", "kept", "--timeout", "4h", "-o", "json").json()
    assert extended["duration"] == 4 * 3600


def test_the_only_container_needs_no_name(cluster, kept):
    [row] = cluster.ok("container.list", "-o", "json").json()
    assert (row["job"], row["role"], row["state"]) == ("kept", "main", "RUNNING")
    assert cluster.ok("container.run", "--", "echo", "in it").out == "in it\n"
    assert cluster.ok("container.run", "echo a && echo b").out == "a\nb\n"
    assert cluster.ok("container.ssh", input="echo typed\n").out == "typed\n"
    (cluster.project / "sent.txt").write_text("sent")
    cluster.ok("container.put", "sent.txt")
    (cluster.project / "sent.txt").unlink()
    cluster.ok("container.get", "sent.txt")
    assert (cluster.project / "sent.txt").read_text() == "sent"
    assert (
        "no path given; for example `inv container.get JOB result.json`" in cluster.inv("container.get").err
    )
    assert "no port given; for example" in cluster.inv("container.forward").err
    cluster.ok("job.sub", "sleep 600", "-j", "too", "--ssh")
    until(lambda: state(cluster, "too") == "RUNNING")
    several = "error: several jobs accept ssh, name one: too, kept; such as `inv container."
    assert cluster.inv("container.top").err == f"{several}top too`\n"
    assert cluster.inv("container.forward", "80").err == f"{several}forward too 80`\n"
    cluster.ok("job.stop", "too")


def test_an_idle_container_ends_and_job_why_says_so(cluster):
    cluster.inv("container.start", "--no-shell", "-j", "forgotten", "--idle", "2s")  # or it has just ended
    assert cluster.ok("job.wait", "forgotten", "-o", "json").json()[0]["state"] == "SUCCEEDED"
    why = cluster.ok("job.why", "forgotten").out
    assert "it stopped itself after 2.0s without a login and without work" in why
    assert "--idle must be a duration" in cluster.inv("container.start", "--idle", "x").err


def test_container_stop_stops_only_containers_of_container_start(shell):
    shell.ok("container.start", "--no-shell", "-j", "tr-box")
    shell.ok("job.sub", "sleep 600", "-j", "tr-job", "--ssh")
    until(lambda: state(shell, "tr-job") == "RUNNING")
    ran = shell.inv("container.stop", "tr-box", "tr-job")
    assert (ran.code, ran.out) == (120, "")
    assert ran.err == "error: job 'tr-job' was not started by container.start; use `inv job.stop tr-job`\n"
    assert state(shell, "tr-box") == "RUNNING"
    assert [job["name"] for job in shell.ok("container.stop", "tr*", "-o", "json").json()] == ["tr-box"]
    until(lambda: state(shell, "tr-box") == "STOPPED")
    assert "no running container of container.start" in shell.inv("container.stop", "*").err
    assert state(shell, "tr-job") == "RUNNING"
    shell.ok("job.stop", "tr-job")


def test_container_ends_after_its_timeout(cluster):
    cluster.inv("container.start", "--no-shell", "-j", "short", "--timeout", "8s")  # or it has just ended
    assert cluster.ok("job.wait", "short", "-o", "json").json()[0]["state"] == "SUCCEEDED"
    ran = cluster.inv("container.ssh", "short")
    assert ran.code and "its containers are gone" in ran.err


def test_stop_without_a_name_stops_the_only_container_of_this_folder(shell):
    assert "no container started from this folder runs" in shell.inv("container.stop").err
    shell.ok("container.start", "--no-shell", "-j", "one")
    shell.ok("container.start", "--no-shell", "-j", "two")
    shell.ok("job.sub", "sleep 600", "-j", "other")
    ran = shell.inv("container.stop")
    assert (ran.code, "several containers were started from this folder, name one: one, two" in ran.err) == (
        120,
        True,
    )
    shell.ok("container.stop", "one")
    until(lambda: state(shell, "one") == "STOPPED")
    assert shell.ok("container.stop", "-o", "json").json()[0]["name"] == "two"
    assert state(shell, "other") in ("WAITING", "RUNNING")


def test_idle_gpus_are_reported_at_login(shell, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    shell.ok("container.start", "--no-shell", "-j", "lazy", "--gpu", "1", "--idle-after", "1s", "--env", path)
    until(lambda: "warning: the GPUs" in shell.ok("job.logs", "lazy").out)
    message = "have been idle for"
    assert f"warning: its GPUs {message}" in shell.inv("container.ssh", "lazy", input="true\n").err
    assert f"warning: the GPUs of main-0 {message}" in shell.ok("container.top", "lazy", "--once").err
    shell.ok("container.stop", "lazy")


def test_all_containers_of_a_job_are_extended(shell):
    shell.ok("container.start", "--no-shell", "-j", "many", "--instances", "2")
    until(lambda: len(running(shell, "many")) == 2)
    extended = shell.ok("container.extend", "many", "--timeout", "2d", "-o", "json").json()
    assert [(one["container"], one["duration"]) for one in extended] == [
        ("main-0", 2 * 86400),
        ("main-1", 2 * 86400),
    ]
    shell.ok("container.stop", "many")


def running(shell: Shell, name: str) -> list[str]:
    tasks = shell.ok("job.status", name, "-o", "json").json()["tasks"]
    return [task for task in tasks if task["state"] == "RUNNING"]


def test_ctrl_c_while_waiting_leaves_the_job_and_says_how_to_stop_it(shell):
    shell.ok("job.sub", "sleep 1000", "-j", "alone", "--cpu", "9999")
    process = shell.start("inv", "container.start", "-j", "large")
    lines = []
    while not any("waiting:" in line for line in lines):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "job large continues; " in err and "`inv container.stop large` stops it" in err
    assert state(shell, "large") == "WAITING"
    ran = shell.inv("container.start", "-j", "larger", "--wait-limit", "1s")
    assert ran.code == 124
    assert "within 1 s (" in ran.err and "`inv container.stop larger`" in ran.err
    shell.ok("job.stop", "alone", "larg*")


def test_key_with_a_passphrase_is_refused_before_submission(cluster, tmp_path):
    key = make_key(tmp_path / "locked", "secret")
    ran = cluster.inv("container.start", "-j", "unopened", INVOKE_OPENPAI_SSH_KEY=str(key))
    assert (ran.code, ran.err.count("\n")) == (120, 1), ran
    assert f"key {key} has a passphrase; name a key without one in the setting ssh.key" in ran.err
    assert cluster.inv("job.status", "unopened").code == 122


def test_a_shortage_and_the_jobs_behind_it_are_reported(shell):
    shell.ok("cluster.start")
    [row] = shell.ok("cluster.resources", "-o", "json").json()
    cpus = int(row["vcores_total"])
    shell.ok("job.sub", "sleep 600", "-j", "hog", "--cpu", str(cpus))
    until(lambda: state(shell, "hog") == "RUNNING")
    reason = f"it asks for 1 CPU, and 0 of {cpus} are free (running: hog)"
    with shell.start("inv", "container.start", "-j", "waits") as process:
        assert f"waiting: {reason}\n" in iter(process.stderr.readline, "")
        process.kill()
    ran = shell.inv("container.start", "-j", "behind", "--wait-limit", "1s")
    assert ran.code == 124 and "waiting: " in ran.err, ran
    assert "the job continues, stop it with `inv container.stop behind`" in ran.err


def test_a_job_that_fails_at_start_is_reported_with_its_reason(cluster):
    ran = cluster.inv(
        "container.start", "-j", "fails", "--pip-installs", "no_such_package_1", "--python", "false"
    )
    assert ran.code == 1
    assert (
        "job 'fails' failed: the command of main-0 ended with exit code 1 (see `inv job.why fails`)"
        in ran.err
    )


def test_login_waits_until_packages_are_installed(cluster, tmp_path):
    program = tmp_path / "slow-python"
    program.write_text(f"#!/bin/sh\nuntil test -e '{tmp_path}/go'; do sleep 0.1; done\ntouch installed\n")
    program.chmod(0o755)
    flags = ("--pip-installs", "some-package", "--python", str(program))
    process = cluster.start("inv", "container.start", "-j", "brings", *flags, stdin=subprocess.PIPE)
    progress = "waiting: main-0 of job 'brings' is still preparing sources and packages"
    lines = []
    while not any(progress in line for line in lines):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    (tmp_path / "go").touch()
    out, err = process.communicate("ls\n", timeout=60)
    assert (process.returncode, out) == (0, "installed\n"), (lines, err)
    cluster.ok("container.stop", "brings")


def test_preview_sends_nothing_and_opens_no_shell(cluster):
    ran = cluster.ok("container.start", "-j", "look", "--preview", "--gpu", "2", "--timeout", "1h30m")
    assert "nothing was sent" in ran.err
    assert (
        "plugin: ssh" in ran.out and "userssh" in ran.out and "+ 5400" in ran.out and "nvidia-smi" in ran.out
    )
    assert cluster.inv("job.status", "look").code == 122


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--timeout", "soon"], "--timeout must be a duration"),
        (["--timeout", "9999999d"], "--timeout must be at most 3650d"),
        (["--wait-limit", "0"], "--wait-limit must be a duration"),
        (["--idle-after", "x"], "--idle-after must be a duration"),
        (["--instances", "0"], "--instances must be at least 1"),
    ],
)
def test_bad_flags_end_in_one_line(cluster, flags, message):
    ran = cluster.inv("container.start", *flags)
    assert (ran.code, ran.out) == (120, "")
    assert message in ran.err and ran.err.count("\n") == 1


def test_job_that_is_not_a_container_cannot_be_extended(cluster):
    cluster.ok("job.sub", "sleep 600", "-j", "plain")
    until(lambda: state(cluster, "plain") == "RUNNING")
    ran = cluster.inv("container.extend", "plain")
    assert (ran.code, "was not started by container.start" in ran.err) == (120, True)
    cluster.ok("job.stop", "plain")
    assert cluster.inv("container.extend", "nothing").code == 122


def test_classic_command_name_works(cluster):
    ran = cluster.pai("start-container", "-j", "classic")  # without a terminal
    assert ran.code == 0 and ran.out.startswith("ssh -i "), ran
    assert "it runs until " in ran.err
    cluster.ok("container.stop", "classic")


def test_a_container_without_ssh_is_reported_and_extended_by_its_storage(shell):
    shell.environment["INVOKE_OPENPAI_LOCAL_SSH"] = "off"
    ran = shell.inv("container.start", "-j", "closed", "--timeout", "10m")
    assert ran.code == 121
    assert (
        "the setting local.ssh is off; the job continues, stop it with `inv container.stop closed`" in ran.err
    )
    [extended] = shell.ok("container.extend", "closed", "--timeout", "1m", "-o", "json").json()
    assert 600 - 60 < extended["duration"] <= 600  # an extension never shortens it
    extended = shell.ok("container.extend", "closed", "--timeout", "9h", "-o", "json").json()
    assert extended == [{"container": "main-0", "duration": 9 * 3600, "extended_by": "storage"}]
    file = until(lambda: next(shell.home.glob("local/jobs/*/0/main-0-0/work/.pai-container/deadline"), None))
    until(lambda: int(file.read_text()) > time.time() + 8 * 3600)
    for shorter in ("1h", "2h"):
        [extended] = shell.ok("container.extend", "closed", "--timeout", shorter, "-o", "json").json()
        assert 9 * 3600 - 60 < extended["duration"] <= 9 * 3600
    shell.ok("container.stop", "closed")


@needs_ssh
def test_key_of_the_job_allows_the_login_on_openpai_0_14(shell):
    shell.environment["INVOKE_OPENPAI_LOCAL_PROFILE"] = "0.14"
    login = shell.ok("container.start", "--no-shell", "-j", "old", "-o", "json").json()
    assert Path(login["key"]).name.endswith("~old")
    ran = shell.run(
        "sh", "-c", "pai start-container -j older --key-here", input="echo in $PAI_JOB_NAME; exit\n"
    )
    command = next(line for line in ran.out.splitlines() if line.startswith("ssh -i older "))
    assert ran.code == 0 and "older is a private key: keep it out of git" in ran.err, ran
    assert stat.S_IMODE((shell.project / "older").stat().st_mode) == 0o600
    ran = shell.run("sh", "-c", f"{command} -o BatchMode=yes 'echo in $PAI_JOB_NAME'")
    assert ran.out.endswith("~older\n"), ran
    ran = shell.pai("start-container", "-j", "older", "--key-here")
    assert (ran.code, ran.err) == (123, "error: older exists already; nothing was written\n")
    ran = shell.run("sh", "-c", f"{login['command']} -o BatchMode=yes 'echo in $PAI_JOB_NAME'")
    assert ran.out.endswith("~old\n"), ran
    assert shell.ok("container.extend", "old", "-o", "json").json()[0]["extended_by"] == "ssh"
    ran = shell.ok("container.stop", "old")
    assert ("RUNNING" in ran.out) == ("old: asked to stop; " in ran.err), ran
