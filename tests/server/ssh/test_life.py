"""The ssh service runs exactly as long as its task, whatever happens around it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.server.engines.base import Launch, TaskExit
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.scheduling import plugins
from openpai_tasks.server.ssh import SshLogin, services
from openpai_tasks.settings.key_pairs import new_pair
from tests.server.conftest import Api, ServerProcess, wait_for
from tests.server.engines.contract import task, unique_uid
from tests.server.ssh_clients import (
    SERVICES,
    SshTarget,
    alive,
    answers,
    descendants,
    document,
    job_output,
    kill_runner,
    login_name,
    needs_clients,
    plugin,
    ports,
    processes_of,
    run_job,
    runner_of,
    skip_without,
    skip_without_terminal,
    stop,
    task_folder,
)
from tests.server.workshop import machine, until
from tests.ssh_keys import make_key

pytestmark = needs_clients
WAITS = "echo up; sleep 600"


@pytest.fixture(scope="module", params=SERVICES)
def ssh_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    skip_without(request.param)
    server = ServerProcess(tmp_path_factory.mktemp("ssh") / "home")
    server.service = request.param  # type: ignore[attr-defined]
    server.start("--ssh", request.param)
    yield server
    assert server.process is not None
    if server.process.poll() is None:
        server.end()


@pytest.fixture(scope="module")
def key(ssh_server: ServerProcess) -> Path:
    return make_key(ssh_server.folder.parent / "id")


def target_at(server: ServerProcess, port: int, key: Path) -> SshTarget:
    return SshTarget(port, key, login_name(server.service))  # type: ignore[attr-defined]


@pytest.fixture
def api(ssh_server: ServerProcess) -> Api:
    return ssh_server.admin()


def test_ssh_service_ends_with_the_task_and_closes_its_sessions(
    ssh_server: ServerProcess, api: Api, key: Path
) -> None:
    job = run_job(
        ssh_server,
        api,
        "ends",
        document("ends", "echo up; until [ -e over ]; do sleep 0.05; done", plugin(key)),
    )
    target, folder = target_at(ssh_server, ports(api, job)[0], key), task_folder(ssh_server, job)
    session = subprocess.Popen(target.argv(target.address, "(setsid sleep 600 &) ; sleep 600"))
    with target.tunnel() as tunnel:
        wait_for(lambda: len([pid for pid in processes_of(folder) if _name(pid) == "sleep"]) >= 2)
        family = descendants(runner_of(folder))
        assert target.ssh("touch over").returncode in (0, 255)
        api.until(job, "SUCCEEDED")
        assert session.wait(60) == 255
        assert tunnel.wait(60) == 255
    assert not answers(target.port)
    wait_for(lambda: not processes_of(folder) and not set(family) & alive())


def test_stopping_the_job_ends_the_ssh_service(ssh_server: ServerProcess, api: Api, key: Path) -> None:
    skip_without_terminal(ssh_server.service)  # type: ignore[attr-defined]
    job = run_job(ssh_server, api, "stopped", document("stopped", WAITS, plugin(key)))
    target = target_at(ssh_server, ports(api, job)[0], key)
    session = subprocess.Popen(
        target.argv("-tt", target.address), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_for(
        lambda: any(_name(pid) in ("bash", "sh") and _tty(pid) for pid in processes_of(ssh_server.folder))
    )
    stop(api, job)
    session.communicate(timeout=60)
    assert not answers(target.port)
    wait_for(lambda: not processes_of(task_folder(ssh_server, job)))


def test_ssh_service_survives_a_server_restart_with_its_host_key(
    ssh_server: ServerProcess, api: Api, key: Path
) -> None:
    job = run_job(ssh_server, api, "restart", document("restart", WAITS, plugin(key)))
    target = target_at(ssh_server, ports(api, job)[0], key)
    with target.tunnel() as tunnel:
        target.output_of("true")
        seen = target.known_hosts.read_text()
        assert ssh_server.end(signal.SIGKILL) == -signal.SIGKILL
        assert target.output_of("echo still here") == "still here\n"
        ssh_server.start("--ssh", ssh_server.service)  # type: ignore[attr-defined]
        again = ssh_server.admin()
        assert ports(again, job) == [target.port]
        assert target.output_of("echo and after") == "and after\n"
        assert target.known_hosts.read_text() == seen
        assert tunnel.poll() is None
    stop(again, job)
    assert not answers(target.port)


def test_killed_runner_leaves_no_ssh_process(ssh_server: ServerProcess, api: Api, key: Path) -> None:
    job = run_job(ssh_server, api, "lost", document("lost", WAITS, plugin(key)))
    target, folder = target_at(ssh_server, ports(api, job)[0], key), task_folder(ssh_server, job)
    session = subprocess.Popen(target.argv(target.address, "echo $$ >there; trap '' HUP; sleep 600 & wait"))
    with target.tunnel():
        wait_for(lambda: (folder / "work" / "there").exists())
        # the command, the service, two connections
        wait_for(lambda: len(descendants(runner_of(folder))) >= 4)
        family = descendants(runner_of(folder))
        kill_runner(folder)
        api.until(job, "FAILED")
        assert session.wait(60) == 255
    assert not answers(target.port)
    wait_for(lambda: not (set(family) & alive()) and not processes_of(folder))


def test_killed_ssh_service_is_restarted(ssh_server: ServerProcess, api: Api, key: Path) -> None:
    job = run_job(ssh_server, api, "back", document("back", WAITS, plugin(key)))
    target, folder = target_at(ssh_server, ports(api, job)[0], key), task_folder(ssh_server, job)
    service_pids = wait_for(lambda: [pid for pid in processes_of(folder) if b"serve_" in _words(pid)])
    os.kill(service_pids[0], signal.SIGKILL)
    wait_for(lambda: target.ssh("true").returncode == 0)
    assert api.detail(job)["jobStatus"]["state"] == "RUNNING"
    stop(api, job)
    wait_for(lambda: not processes_of(folder))


def test_each_task_has_an_ssh_service_and_reaches_the_others_by_name(
    ssh_server: ServerProcess, api: Api, key: Path
) -> None:
    """With a job key and a barrier, all services answer before the first command runs."""
    command = (
        "for index in 0 1; do "
        'ssh main-$index "echo from $PAI_TASK_INDEX >>heard; printenv PAI_TASK_INDEX"; done; '
        "echo hello >note; scp -q note main-1:note-$PAI_TASK_INDEX; echo up; sleep 600"
    )
    ssh = plugin(key, jobssh=True, sshbarrier=True, sshbarrierTimeout=1)
    job = run_job(ssh_server, api, "many", document("many", command, ssh, instances=2))
    first, second = ports(api, job)
    assert first != second
    work = [task_folder(ssh_server, job, f"main-{index}-0") / "work" for index in (0, 1)]
    wait_for(lambda: (work[1] / "note-0").exists() and (work[1] / "note-1").exists())
    assert job_output(ssh_server, job).split() == ["0", "1", "up"]
    assert [sorted((folder / "heard").read_text().split()) for folder in work] == [
        ["0", "1", "from", "from"]
    ] * 2
    targets = [target_at(ssh_server, port, key) for port in (first, second)]
    assert [target.output_of("echo $PAI_TASK_INDEX") for target in targets] == ["0\n", "1\n"]
    stop(api, job)


@pytest.mark.parametrize(("policy", "code"), [({}, 0), ({"policy": "fail"}, 1)])
def test_taken_ssh_port_is_reported_and_fails_the_task_only_on_request(
    ssh_server: ServerProcess, key: Path, tmp_path: Path, policy: dict[str, str], code: int
) -> None:
    text = document("taken", "echo main", plugin(key, **policy))
    scripts = plugins.plan(validate(text), "main").scripts("echo main")
    with closing(socket.create_server(("127.0.0.1", 0))) as thief:
        service = services.choose(ssh_server.service)  # type: ignore[attr-defined]
        port = thief.getsockname()[1]
        login = SshLogin(service, port, new_pair("host"), (key.with_suffix(".pub").read_text(),))
        uid, folder = unique_uid("uid"), tmp_path / "uid"
        place = {"PAI_CONTAINER_HOST_IP": "127.0.0.1", "PAI_CONTAINER_SSH_PORT": str(port)}
        variables = {"FC_POD_UID": uid, **place}
        launch = Launch(uid, "alice", folder, scripts, variables, "image", ssh=login)
        engine = ProcessEngine(tmp_path, machine=machine())
        engine.start(launch)
        one = task(tmp_path)
        end = until(lambda: found if isinstance(found := engine.poll([one])[uid], TaskExit) else None)
        engine.close()
    log = (tmp_path / "uid/logs/all").read_text()
    assert (end.user_code, "main" in log, "cannot listen on port" in log) == (code, code == 0, True)
    (note,) = engine.notes(task(tmp_path))
    assert note.reason == "SshNotServed" and "cannot listen on port" in note.message


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _tty(pid: int) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4]) != 0
    except OSError:
        return False
