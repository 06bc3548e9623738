"""Damaged known_hosts files and full disks: read and written as OpenSSH would."""

from __future__ import annotations

import resource
import subprocess

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.host_keys import gateways_file, known_keys
from openpai_tasks.sdk.ssh.login_errors import HostKeyChanged
from openpai_tasks.sdk.ssh.target import Gateway
from tests import ssh_keys
from tests.sdk import sshd_server


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with sshd_server.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / ".openpai"))
    return tmp_path


def public(sshd, name="host"):
    return " ".join((sshd.folder / f"{name}.pub").read_text().split()[:2])


@pytest.mark.parametrize(
    "kept", ["name ssh-ed25519 AAAA", "name ssh-ed25519 A", "name ssh-rsa !", "x", "a b c"]
)
def test_damaged_line_is_skipped_and_nothing_is_appended_to_it(sshd, tmp_path, kept):
    target = sshd.target(tmp_path)
    target.known_hosts.write_text(f"{public(sshd)}\n\0\xff\n{kept}")
    for _ in range(2):
        Remote(target).open().close()
    assert target.known_hosts.read_text().splitlines()[-2:] == [kept, f"{target.name} {public(sshd)}"]


@pytest.mark.parametrize("kind", ssh_keys.KINDS)
def test_truncated_key_is_ignored_wherever_it_was_cut(tmp_path, kind):
    file = tmp_path / "known"
    ssh_keys.make_key(tmp_path / "k", kind=kind)
    line = "name " + " ".join((tmp_path / "k.pub").read_text().split()[:2])
    for end in range(len(line)):
        file.write_text(line[:end])
        assert not known_keys(file, "name") or line[end:] == "=" * len(line[end:])
    file.write_text(line)
    assert len(known_keys(file, "name")) == 1


def test_key_is_found_among_damaged_lines_even_by_a_hashed_name(sshd, tmp_path):
    file = tmp_path / "known"
    file.write_text(f"[127.0.0.1]:{sshd.port} {public(sshd)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    text = file.read_text()
    assert text.startswith("|1|")
    file.write_text(f"|1|x|y {public(sshd)}\n|1|\u00e9 {public(sshd)}\n{text}")
    assert list(known_keys(file, f"[127.0.0.1]:{sshd.port}")) == ["ssh-ed25519"]
    assert known_keys(file, "[127.0.0.1]:1") == {}


def test_damaged_lines_in_the_users_file_do_not_block_a_gateway(sshd, tmp_path):
    own, way = tmp_path / ".ssh" / "known_hosts", f"[127.0.0.1]:{sshd.port}"
    own.parent.mkdir()
    own.write_bytes(f"other ssh-ed25519 AAA\n\xff\n{way} {public(sshd)}\n".encode("latin-1"))
    before = own.read_bytes()
    target = sshd.target(
        tmp_path, gateway=Gateway("127.0.0.1", sshd.port, sshd.target(tmp_path).user, sshd.folder / "id")
    )
    Remote(target).open().close()
    assert own.read_bytes() == before and not gateways_file().exists()
    own.write_text(f"other ssh-ed25519 AAA\n{way} {public(sshd, 'host2')}\n")
    with pytest.raises(HostKeyChanged, match=str(own)):
        Remote(target).open()


def test_full_disk_is_reported_and_leaves_the_file_intact(sshd, tmp_path):
    target = sshd.target(tmp_path)
    target.known_hosts.write_text(f"other {public(sshd)}\n")
    before, (soft, hard) = target.known_hosts.read_text(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))
    try:
        with pytest.raises(ConfigError, match=f"cannot write {target.known_hosts}: File too large"):
            Remote(target).open()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.known_hosts.read_text() == before
    Remote(target).open().close()
    assert target.known_hosts.read_text().startswith(f"{before}{target.name} ")
