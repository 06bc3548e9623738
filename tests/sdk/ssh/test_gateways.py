"""The SSH gateway and its keys, as the settings name them."""

from __future__ import annotations

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.ssh import hosts_file, keys
from openpai_tasks.sdk.ssh.target import Gateway, gateway
from openpai_tasks.settings.config import Settings
from tests.needs import needs
from tests.scripted import Scripted
from tests.sdk import sshd_server
from tests.sdk.ssh.test_hosts_file import PATH, client_of, detail, job, seen_by_ssh
from tests.ssh_keys import make_key


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / ".openpai"))
    return tmp_path / ".openpai"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("ann@fe80::1", "fe80::1", 22),
        ("ann@[2001:db8::2]", "2001:db8::2", 22),
        ("ann@[2001:db8::2]:2222", "2001:db8::2", 2222),
        ("ann@::1", "::1", 22),
        ("ann@lab", "lab", 22),
        ("ann@192.0.2.1:2222", "192.0.2.1", 2222),
    ],
)
def test_ipv6_address_of_a_gateway_is_parsed(text, host, port):
    way = gateway(Settings(ssh_gateway=text))
    assert way is not None and (way.user, way.host, way.port) == ("ann", host, port)


@pytest.mark.parametrize("text", ["a:b:c", "[::1]x", "[::1]:", "[::1]:70000", "[]", "::1:x", "lab:"])
def test_invalid_gateway_address_is_an_error(text):
    with pytest.raises(ConfigError, match=r"ssh\.gateway must be USER@HOST:PORT"):
        gateway(Settings(ssh_gateway=f"ann@{text}"))


def test_gateway_key_is_found_like_other_keys(tmp_path, home, monkeypatch):
    own, other = make_key(tmp_path / "own"), make_key(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    ways = {
        own: Settings(ssh_gateway="lab", ssh_key="own.pub"),
        other: Settings(ssh_gateway="lab", ssh_key="own", ssh_gateway_key="~/other.pub"),
        home / "ssh" / "id_ed25519": Settings(ssh_gateway="lab"),  # created on first use
    }
    for key, given in ways.items():
        way = gateway(given)
        assert way is not None and way.key == key and key.is_file()
    with pytest.raises(
        ConfigError, match=f"setting ssh.gateway-key names {tmp_path}/none, which is not a file"
    ):
        gateway(Settings(ssh_gateway="lab", ssh_gateway_key="none"))


def test_check_of_the_settings_reports_unusable_keys(tmp_path):
    good, locked = make_key(tmp_path / "good"), make_key(tmp_path / "locked", "secret")
    (tmp_path / "junk").write_text("junk")
    endpoints.check_settings(Settings(ssh_key=str(good), ssh_gateway="lab"))
    with pytest.raises(
        ConfigError, match=r"has a passphrase; name a key without one in the setting ssh\.key"
    ):
        endpoints.check_settings(Settings(ssh_key=str(locked)))
    way = {"ssh_key": str(good), "ssh_gateway": "lab"}
    with pytest.raises(
        ConfigError, match=r"has a passphrase; name a key without one in the setting ssh\.gateway-key"
    ):
        endpoints.check_settings(Settings(**way, ssh_gateway_key=str(locked)))
    with pytest.raises(ConfigError, match=r"as a private key; check the setting ssh\.gateway-key"):
        endpoints.check_settings(Settings(**way, ssh_gateway_key=str(tmp_path / "junk")))


@needs("ssh")
def test_relative_keys_become_absolute_paths_in_files_and_commands(tmp_path, monkeypatch):
    make_key(tmp_path / "own"), make_key(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    given = Settings(ssh_key="own", ssh_gateway="ann@lab", ssh_gateway_key="other")
    server = Scripted({PATH: detail()})
    try:
        client = client_of(server)
        found = endpoints.reach(client, "train", given)
        goal = endpoints.ssh_target(client, found, endpoints.first_running(found), given)
        line = " ".join(hosts_file.ssh_command(goal))
        assert f"-i {tmp_path}/own " in line and f"-i {tmp_path}/other " in line
        path = hosts_file.write_hosts(client, job(), [hosts_file.Host(("train",), goal)]).path
    finally:
        server.close()
    seen = seen_by_ssh(path)
    assert seen["identityfile"] == str(tmp_path / "own")
    assert seen_by_ssh(path, seen["proxyjump"])["identityfile"] == str(tmp_path / "other")


@needs("ssh")
def test_two_jobs_go_through_two_gateways(tmp_path):
    server = Scripted({PATH: detail(), f"{PATH[:-5]}next": {**detail(), "name": "next"}})
    try:
        client, sshd = client_of(server), sshd_server.Sshd(make_key(tmp_path / "id").parent, 22)
        for name, host in (("train", "first"), ("next", "second")):
            way = Gateway(host, 22, "ann", tmp_path / "id")
            one = hosts_file.Host((name,), sshd.target(tmp_path, gateway=way))
            path = hosts_file.write_hosts(client, endpoints.reach(client, name, Settings()).job, [one]).path
    finally:
        server.close()
    ways = {name: seen_by_ssh(path, name)["proxyjump"] for name in ("train", "next")}
    hosts = {name: seen_by_ssh(path, way)["hostname"] for name, way in ways.items()}
    assert hosts == {"train": "first", "next": "second"}


def test_relative_key_of_a_container_becomes_an_absolute_path(tmp_path, monkeypatch):
    make_key(tmp_path / "own")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert keys.private_key(Settings(ssh_key="../own")) == tmp_path / "own"
