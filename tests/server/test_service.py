"""The server process: one per folder, found through its server.json, and cleaned up at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from openpai_tasks.errors import ConfigError
from openpai_tasks.loopback import lock, service
from openpai_tasks.server.cluster import parse_virtual_cluster, virtual_clusters
from openpai_tasks.server.engines import task_state
from openpai_tasks.server.resources import ResourceAmount
from tests.ports import free_port
from tests.server.conftest import ServerProcess, wait_for


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "openpai_tasks.server", *flags]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_server_file_describes_the_running_server(own_server: ServerProcess) -> None:
    facts = own_server.start()
    assert set(facts) == {
        "pid",
        "port",
        "uri",
        "version",
        "started",
        "home",
        "host",
        "engine",
        "engine_options",
        "socket",
        "enforce",
        "profile",
        "ssh",
        "limits",
        "body_limit",
        "keep",
        "storages",
    }
    assert facts["uri"] == f"http://127.0.0.1:{facts['port']}"
    assert (facts["home"], facts["engine"]) == (str(own_server.folder), "process")
    assert abs(facts["started"] - time.time() * 1000) < 60_000
    assert requests.get(facts["uri"] + "/healthz", timeout=60).status_code == 200


def test_server_files_are_private(own_server: ServerProcess) -> None:
    own_server.start()
    assert own_server.folder.stat().st_mode & 0o777 == 0o700
    for name in ("cluster.db", "credentials.json", "server.json", "server.lock", "port"):
        assert (own_server.folder / name).stat().st_mode & 0o777 == 0o600, name
    for name in ("jobs", "storage", "storage/home"):
        assert (own_server.folder / name).stat().st_mode & 0o777 == 0o700, name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_ends_cleanly_and_quickly_on_a_signal(own_server: ServerProcess, number: int) -> None:
    own_server.start()
    session = requests.Session()  # keeps its connection open
    session.get(json.loads((own_server.folder / "server.json").read_text())["uri"] + "/healthz", timeout=60)
    begun = time.monotonic()
    assert own_server.end(number) == 0
    assert time.monotonic() - begun < 40  # the client keeps its connection open
    assert not (own_server.folder / "server.json").exists()
    assert "Traceback" not in own_server.log


def test_second_server_in_the_same_folder_is_refused(own_server: ServerProcess) -> None:
    own_server.start()
    second = run("--home", str(own_server.folder))
    assert second.returncode == 3
    assert second.stderr == f"error: a server is already running in {own_server.folder}\n"
    assert (own_server.folder / "server.json").exists()


def test_restarted_server_reuses_its_port_if_it_is_free(own_server: ServerProcess) -> None:
    first = own_server.start("--port", str(free_port()))
    own_server.end(signal.SIGKILL)
    assert own_server.start()["port"] == first["port"]
    own_server.end()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["port"]))
        taken.listen()
        assert own_server.start()["port"] != first["port"]


def test_requested_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run("--home", str(tmp_path / "home"), "--port", str(port))
    assert refused.returncode == lock.PORT_TAKEN
    assert refused.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert refused.stderr.count("\n") == 1


def test_unusable_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "cluster.db").write_text("this is no database, and long enough to be seen as none" * 20)
    refused = run("--home", str(folder))
    assert refused.returncode == 120
    why = "file is not a database; to start without its jobs, move cluster.db away"
    assert refused.stderr == f"error: cannot use the folder {folder}: {why}\n"


@pytest.mark.parametrize("flags", [("--engine", "foo"), ("--engine-option", "a=b")])
def test_unknown_engine_or_option_is_refused_before_anything_is_written(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    refused = run("--home", str(tmp_path), *flags)
    assert refused.returncode == 120
    assert refused.stderr.startswith("error: ") and refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_responses_are_sent_without_tcp_delay(tmp_path: Path) -> None:
    """Without TCP_NODELAY they may wait 0.04 s for the client's acknowledgement."""
    (bound,) = service.bind(tmp_path, 0)

    async def is_without_delay() -> int:
        nodelay = asyncio.get_running_loop().create_future()

        def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            nodelay.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        async with await asyncio.start_server(note, sock=bound):
            with socket.create_connection(bound.getsockname()):
                option: int = await nodelay
                return option

    assert asyncio.run(is_without_delay())


def test_server_file_of_a_killed_server_is_removed_by_the_next_lock_holder(
    own_server: ServerProcess,
) -> None:
    own_server.start()
    own_server.end(signal.SIGKILL)
    assert (own_server.folder / "server.json").exists()
    os.close(service.hold_lock(own_server.folder))
    assert not (own_server.folder / "server.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="there is only one loopback address")
def test_server_listens_on_one_address_only(own_server: ServerProcess) -> None:
    port = own_server.start()["port"]
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # fails if the server listens on all addresses


def test_users_tokens_and_jobs_survive_a_kill(own_server: ServerProcess) -> None:
    own_server.start("--port", str(free_port()))
    before = own_server.admin()
    name = own_server.owner["user"]
    gate = own_server.folder / "gate"
    before.run("survivor", f"until test -e {gate}; do sleep 0.05; done; exit 5")
    before.until(f"{name}~survivor", "RUNNING")
    own_server.end(signal.SIGKILL)
    gate.touch()
    own_server.start()
    status = before.until(f"{name}~survivor", "FAILED")["jobStatus"]  # the same token, the same port
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 5
    assert status["attemptId"] == 0


def test_stopped_server_leaves_only_task_runners(own_server: ServerProcess) -> None:
    own_server.start("--port", str(free_port()))
    api, name = own_server.admin(), own_server.owner["user"]
    api.run("outlives", "sleep 600")
    api.until(f"{name}~outlives", "RUNNING")
    begun = "jobs/*/0/*/started"
    wait_for(
        lambda: any(task_state.read_started(path.parent).group for path in own_server.folder.glob(begun))
    )
    own_server.end()
    own_server.start()
    assert api.detail(f"{name}~outlives")["jobStatus"]["state"] == "RUNNING"
    api.put(f"/api/v2/jobs/{name}~outlives/executionType", {"value": "STOP"})
    api.until(f"{name}~outlives", "STOPPED")
    own_server.end()
    wait_for(lambda: not _mentions(str(own_server.folder)))


def _mentions(folder: str) -> list[str]:
    """Command lines of processes that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if folder in line]


def test_default_virtual_cluster_gets_the_remaining_resources() -> None:
    machine = ResourceAmount(8, 1000, 2)
    assert virtual_clusters(machine, {}) == {"default": machine}
    assert virtual_clusters(machine, {"a": ResourceAmount(9, 400, 1)}) == {
        "default": ResourceAmount(0, 600, 1),
        "a": ResourceAmount(9, 400, 1),
    }
    assert virtual_clusters(machine, {"default": ResourceAmount(1, 1, 0)}) == {
        "default": ResourceAmount(1, 1, 0)
    }


@pytest.mark.parametrize(
    "text", ["lab", "lab=1,2", "lab=1,2,x", "la b=1,2,3", "=1,2,3", "lab=1,2,3,4", "lab=-1,2,3"]
)
def test_malformed_virtual_cluster_is_refused(text: str) -> None:
    assert parse_virtual_cluster("lab=1,512,0") == ("lab", ResourceAmount(1, 512, 0))
    with pytest.raises(ConfigError, match="NAME=CPU,MEMORYMB,GPU"):
        parse_virtual_cluster(text)
