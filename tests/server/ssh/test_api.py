"""What the API returns about ssh: addresses and a job key in 0.14, ports in later versions."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.server.conftest import JOB, Api, ServerProcess, code, wait_for
from tests.server.profiles import join, until
from tests.server.ssh_clients import SshTarget, document, events, needs_clients, plugin
from tests.ssh_keys import make_key

BASE = "/api/v1/user/alice/jobs"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("old") / "home")
    server.start("--profile", "0.14")
    yield server
    server.end()


@pytest.fixture(scope="module")
def alice(old: ServerProcess) -> Api:
    return join(old, "/api/v2/user")


@pytest.fixture(scope="module")
def info(old: ServerProcess, alice: Api) -> Iterator[dict[str, Any]]:
    """The ssh information that alice gets about her job, which does not ask for ssh."""
    assert alice.submit(JOB.format(name="plain", command="sleep 600")).status_code == 202
    yield wait_for(lambda: _ssh_info(alice))
    alice.put(f"{BASE}/plain/executionType", {"value": "STOP"})
    until(alice, f"{BASE}/plain", "STOPPED")


def _ssh_info(caller: Api) -> Any:
    answer = caller.get(f"{BASE}/plain/ssh")
    assert answer.status_code == 200 or code(answer) == (404, "NoJobSshInfoError")
    return answer.json() if answer.status_code == 200 else None


def test_oldest_api_returns_containers_and_a_key_pair(alice: Api, info: dict[str, Any]) -> None:
    (task,) = alice.get(f"{BASE}/plain").json()["taskRoles"]["main"]["taskStatuses"]
    place = {"sshIp": "127.0.0.1", "sshPort": task["containerPorts"]["ssh"]}
    assert info["containers"] == [{"id": task["containerId"], **place}]
    pair = info["keyPair"]
    assert pair["folderPath"] == "/Container/alice/alice~plain/ssh/keyFiles"
    assert (pair["publicKeyFileName"], pair["privateKeyFileName"]) == ("alice~plain.pub", "alice~plain")
    link = pair["privateKeyDirectDownloadLink"]
    assert link.startswith(f"{alice.uri}/a/127.0.0.1:5070/webhdfs/v1{pair['folderPath']}/alice~plain?op=OPEN")


@needs_clients
def test_downloaded_key_allows_the_login(alice: Api, info: dict[str, Any], tmp_path: Path) -> None:
    """As an old client does it: with the link alone, without a token."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(requests.get(info["keyPair"]["privateKeyDirectDownloadLink"], timeout=60).text)
    port = int(info["containers"][0]["sshPort"])
    assert SshTarget(port, key).output_of("echo $PAI_JOB_NAME") == "alice~plain\n"


def test_only_the_owner_gets_the_private_key(old: ServerProcess, alice: Api, info: dict[str, Any]) -> None:
    guest, admin = Api(alice.uri), old.admin()
    assert admin.post("/api/v2/user", {"username": "bob", "password": "bob-secret"}).status_code == 201
    bob = old.login("bob", "bob-secret")
    for other in (guest, bob):
        link = _ssh_info(other)["keyPair"]["privateKeyDirectDownloadLink"]
        assert "ticket" not in link and other.get(link).status_code in (401, 403)
    link = _ssh_info(guest)["keyPair"]["privateKeyDirectDownloadLink"]
    assert "PRIVATE KEY" in alice.get(link).text
    assert "PRIVATE KEY" in admin.get(link).text
    assert code(guest.get(f"{link}&ticket=a.b.c"))[0] == 401
    ticket = info["keyPair"]["privateKeyDirectDownloadLink"].partition("&")[2]
    assert guest.get(f"{link.replace('plain', 'other')}&{ticket}").status_code == 401
    assert code(alice.get(link.replace("keyFiles/alice~plain", "keyFiles/host"))) == (
        404,
        "NoJobSshInfoError",
    )


def test_key_files_are_readable_only_by_their_owner(old: ServerProcess, info: dict[str, Any]) -> None:
    files = [path for path in old.folder.rglob("ssh/*") if path.is_file() and path.stat().st_size]
    assert files and not [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    link = info["keyPair"]["privateKeyDirectDownloadLink"]
    assert link.partition("ticket=")[2] not in old.log and "PRIVATE KEY" not in old.log


def test_finished_job_has_no_ssh(alice: Api) -> None:
    assert alice.submit(JOB.format(name="short", command="echo over")).status_code == 202
    until(alice, f"{BASE}/short", "SUCCEEDED")
    assert code(alice.get(f"{BASE}/short/ssh")) == (404, "NoJobSshInfoError")
    assert code(alice.get(f"{BASE}/none/ssh")) == (404, "NoJobError")


@pytest.mark.parametrize("profile", ["0.18", "1.8"])
def test_later_versions_return_only_the_ssh_ports(tmp_path: Path, profile: str) -> None:
    server = ServerProcess(tmp_path / "home")
    server.start("--profile", profile)
    api, owner = server.admin(), server.owner["user"]
    try:
        assert api.submit(document("served", "sleep 600", plugin(jobssh=True))).status_code == 202
        api.until(f"{owner}~served", "RUNNING")
        assert code(api.get(f"/api/v2/jobs/{owner}~served/ssh")) == (404, "NoJobSshInfoError")
        (task,) = api.detail(f"{owner}~served")["taskRoles"]["main"]["taskStatuses"]
        assert (task["containerIp"], int(task["containerPorts"]["ssh"]) > 0) == ("127.0.0.1", True)
    finally:
        api.put(f"/api/v2/jobs/{owner}~served/executionType", {"value": "STOP"})
        api.until(f"{owner}~served", "STOPPED")
        server.end()


@needs_clients
def test_keys_of_the_user_profile_allow_logins_to_jobs_with_the_plugin(
    own_server: ServerProcess, tmp_path: Path
) -> None:
    own_server.start()
    admin, key = own_server.admin(), make_key(tmp_path / "id")
    owner = own_server.owner["user"]
    public = {"sshKeys": [{"title": "mine", "value": key.with_suffix(".pub").read_text(), "time": 1}]}
    body = {"data": {"username": owner, "extension": public}, "patch": True}
    assert admin.put("/api/v2/users/me", body).status_code in (200, 201)
    assert admin.submit(document("mine", "sleep 600", plugin())).status_code == 202
    (task,) = admin.until(f"{owner}~mine", "RUNNING")["taskRoles"]["main"]["taskStatuses"]
    target = SshTarget(int(task["containerPorts"]["ssh"]), key)
    wait_for(lambda: target.ssh("true").returncode == 0)
    body = wait_for(lambda: _json_if_ok(admin.get(f"/api/v1/user/{owner}/jobs/mine/ssh")))
    assert body["keyPair"] is None  # the job itself has no key
    admin.put(f"/api/v2/jobs/{owner}~mine/executionType", {"value": "STOP"})
    admin.until(f"{owner}~mine", "STOPPED")


def _json_if_ok(answer: requests.Response) -> Any:
    return answer.json() if answer.status_code == 200 else None


def test_missing_ssh_service_or_key_is_reported_in_the_events(own_server: ServerProcess) -> None:
    own_server.start("--ssh", "off")
    admin, owner = own_server.admin(), own_server.owner["user"]
    for name, policy, state in (("may", {}, "SUCCEEDED"), ("must", {"policy": "fail"}, "FAILED")):
        assert admin.submit(document(name, "true", plugin(jobssh=True, **policy))).status_code == 202
        admin.until(f"{owner}~{name}", state)
        assert "local.ssh is off" in events(admin, f"{owner}~{name}")["SshNotServed"]
    own_server.end()
    own_server.start()
    admin = own_server.admin()
    assert admin.submit(document("keyless", "true", plugin())).status_code == 202
    admin.until(f"{owner}~keyless", "SUCCEEDED")
    assert "no public key" in events(admin, f"{owner}~keyless")["SshNotServed"]
