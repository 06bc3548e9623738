"""The embedded cluster starts once, survives, and cleans up."""

import contextlib
import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest
import requests

from openpai_tasks.settings.home import write_private
from tests.forkserver import FRESH
from tests.ports import free_port
from tests.processes import is_running, kill
from tests.server.workshop import until


def facts(shell):
    return json.loads((shell.home / "local" / "server.json").read_text())


def test_five_first_commands_at_once_start_one_server(shell):
    racing = [shell.start("inv", "job.list", "-o", "json", fresh=True) for _ in range(5)]
    ends = [process.communicate(timeout=250) for process in racing]
    assert [process.returncode for process in racing] == [0] * 5, ends
    assert sum("started the embedded cluster" in err for _, err in ends) == 1
    assert all(json.loads(out) == [] for out, _ in ends)


def test_status_is_right_before_during_and_after_a_run(shell):
    assert shell.ok("cluster.status", "-o", "json").json()["running"] is False
    shell.ok("cluster.start", **FRESH)
    running = shell.ok("cluster.status", "-o", "json").json()
    assert running["running"] and running["pid"] == facts(shell)["pid"] and running["jobs"]["RUNNING"] == 0
    assert {"port", "home", "version"} <= set(running)
    shell.ok("cluster.stop")
    assert not is_running(running["pid"])
    assert shell.ok("cluster.status", "-o", "json").json()["running"] is False


def test_jobs_survive_a_killed_server_and_keep_their_exit_codes(shell):
    shell.ok("job.sub", "echo before; sleep 4; echo after; exit 7", "-j", "running")
    shell.ok("job.sub", "sleep 1; exit 3", "-j", "ends-meanwhile")
    shell.inv("job.sub", "exit 5", "-j", "ended", "--follow")
    marker = shell.project / "count"
    shell.ok("job.sub", f"echo x >> {marker}; sleep 2", "-j", "counted")
    until(lambda: marker.exists())
    pid = facts(shell)["pid"]
    kill(pid)
    time.sleep(1.5)  # "ends-meanwhile" ends while no server runs
    assert shell.inv("job.wait", "running").code == 7
    assert facts(shell)["pid"] != pid
    assert shell.ok("job.logs", "running").out == "before\nafter\n"
    assert shell.inv("job.wait", "ends-meanwhile").code == 3
    assert shell.inv("job.wait", "ended").code == 5
    assert shell.inv("job.wait", "counted").code == 0
    assert marker.read_text() == "x\n"


def test_stop_ends_the_jobs_and_keep_jobs_does_not(shell):
    pids = shell.project / "pids"
    shell.ok("job.sub", f"echo $$ > {pids}; sleep 300", "-j", "kept")
    until(lambda: pids.exists() and pids.read_text().strip() != "")
    pid = int(pids.read_text())
    shell.ok("cluster.stop", "--keep-jobs")
    assert is_running(pid)
    assert shell.ok("job.status", "kept", "-o", "json").json()["state"] == "RUNNING"
    shell.ok("cluster.stop")
    until(lambda: not is_running(pid))
    shell.ok("cluster.start")
    assert shell.ok("job.status", "kept", "-o", "json").json()["state"] == "STOPPED"


def test_sixty_jobs_queue_and_all_run(shell):
    shell.ok("cluster.start")
    login = shell.ok("cluster.credentials", "local", "-o", "json").json()
    template = shell.ok("job.sub", "echo done", "-j", "NAME", "--cpu", "1", "--preview").out
    headers = {"Authorization": f"Bearer {login['token']}", "Content-Type": "text/yaml"}
    url = f"{login['uri']}/rest-server/api/v2/jobs"
    with requests.Session() as session:
        for i in range(60):
            answer = session.post(
                url, headers=headers, data=template.replace("NAME", f"queued-{i}"), timeout=30
            )
            assert answer.status_code == 202, answer.text
    until(lambda: shell.ok("cluster.status", "-o", "json").json()["jobs"]["SUCCEEDED"] == 60, 240)


def test_private_files_are_readable_only_by_their_owner(shell):
    shell.ok("job.sub", "echo hi", "--follow")
    for folder, _, names in os.walk(shell.home):
        private = not {"work", "storage"} & set(Path(folder).parts)  # there, users choose the modes
        for path in (Path(folder, name) for name in names if private):
            with contextlib.suppress(FileNotFoundError):  # the server has removed it meanwhile
                found = path.lstat().st_mode
                mode = stat.S_IMODE(found)
                assert stat.S_ISLNK(found) or mode & 0o077 == 0, f"{path} is {mode:o}"
    assert stat.S_IMODE(shell.home.stat().st_mode) == 0o700


def test_without_a_token_only_health_and_info_answer(shell):
    shell.ok("cluster.start")
    uri = facts(shell)["uri"]
    assert requests.get(f"{uri}/healthz", timeout=60).status_code == 200
    assert requests.get(f"{uri}/rest-server/api/v2/info", timeout=60).status_code == 200
    for path in ("jobs", "users", "storages", "virtual-clusters", "kubernetes/nodes", "tokens"):
        answer = requests.get(f"{uri}/rest-server/api/v2/{path}", timeout=60)
        assert (answer.status_code, answer.json()["code"]) == (401, "UnauthorizedUserError")


def test_foreign_web_page_cannot_use_the_api(shell):
    shell.ok("cluster.start")
    uri = facts(shell)["uri"]
    login = shell.ok("cluster.credentials", "local", "-o", "json").json()
    bearer = {"Authorization": f"Bearer {login['token']}"}
    for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        answer = requests.get(f"{uri}/rest-server/api/v2/jobs", headers={**bearer, **header}, timeout=60)
        assert answer.status_code == 403


def test_port_of_the_last_server_is_used_again(shell):
    write_private(shell.home / "local" / "port", f"{free_port()}\n")  # no other process takes it meanwhile
    shell.ok("cluster.start")
    port = facts(shell)["port"]
    shell.ok("cluster.stop")
    shell.ok("cluster.start")
    assert facts(shell)["port"] == port


@pytest.mark.skipif(not Path("/proc").exists(), reason="lists open sockets through /proc")
def test_cluster_listens_on_loopback_only(shell):
    shell.ok("cluster.start")
    port = facts(shell)["port"]
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_stop_is_quick_and_quiet_when_nothing_runs(shell):
    shell.ok("cluster.start")
    shell.ok("cluster.stop")
    began = time.monotonic()
    assert "was not running" in shell.ok("cluster.stop").err
    assert time.monotonic() - began < 40  # it once waited for its own zombie until the limit


def test_start_and_stop_work_on_one_line(shell):
    shell.ok("cluster.start", "cluster.stop")


def test_relative_home_is_resolved_to_one_folder(shell):
    shell.ok("cluster.start", OPENPAI_HOME="rel")
    try:
        status = shell.ok("cluster.status", "-o", "json", OPENPAI_HOME="rel").json()
        assert status["running"] and status["home"] == str(shell.project / "rel" / "local")
    finally:
        shell.ok("cluster.stop", OPENPAI_HOME="rel")


def test_setting_that_needs_a_restart_is_reported(shell):
    shell.ok("cluster.start")
    ran = shell.ok("job.list", INVOKE_OPENPAI_LOCAL_ENFORCE="true")
    assert "local.enforce is still gpu; it changes to true" in ran.err


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_invalid_port_is_reported_in_one_line(shell, port):
    ran = shell.inv("cluster.start", "--port", port)
    assert ran.code == 120 and len(ran.err.splitlines()) == 1 and "65535" in ran.err


def test_engine_of_a_start_is_checked_first(shell):
    ran = shell.inv("cluster.start", "--engine", "foo")
    known = "auto, process, docker, podman, slurm, kubernetes"
    assert (ran.code, ran.err) == (120, f"error: no engine named 'foo' (known: {known})\n")
    assert not (shell.home / "local").exists()


def test_engine_that_answers_is_taken(shell, tmp_path):
    """Without docker and podman in PATH, it is the one that runs processes."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{tmp_path}"
    started = shell.ok("cluster.start", "--engine", "auto", "-o", "json", PATH=path)
    assert started.json()["engine"] == "process"
