"""Parameters of the ssh plugin, valid public keys, and the choice of the ssh service."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.ssh import Peer, SshLogin, layout, plugin, services
from openpai_tasks.server.ssh.plugin import SshRequest
from openpai_tasks.settings.key_pairs import new_pair
from tests.needs import find
from tests.server.ssh_clients import needs_clients

PUBLIC = new_pair("someone").public
BARE = " ".join(PUBLIC.split()[:2])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PUBLIC, [BARE]),
        (f"# mine\n{PUBLIC}\r\n\n  {BARE} \n", [BARE, BARE]),
        ("", []),
        ("ssh-ed25519", []),
        ("ssh-ed25519 AAAA", []),
        (PUBLIC.replace("ssh-ed25519", "ssh-rsa", 1), []),  # not the type in the key itself
        (f'command="rm -rf /" {PUBLIC}', []),
        (f"{PUBLIC[:40]}!{PUBLIC[40:]}", []),
    ],
    ids=[
        "a key",
        "keys and a comment",
        "nothing",
        "a kind",
        "too short",
        "another kind",
        "options",
        "damaged",
    ],
)
def test_only_complete_public_keys_are_accepted(text: str, found: list[str]) -> None:
    assert list(plugin.public_keys(text)) == found


def test_invalid_keys_of_a_profile_are_ignored() -> None:
    items = [{"title": "a", "value": PUBLIC}, {"value": 3}, "x", {"title": "b"}, None]
    assert list(plugin.listed_keys(items)) == [BARE]
    assert list(plugin.listed_keys({"value": PUBLIC})) == list(plugin.listed_keys(None)) == []


@pytest.mark.parametrize(
    ("parameters", "policy", "expected"),
    [
        ({}, "", SshRequest()),
        ({"userssh": {"type": "custom", "value": PUBLIC}}, "", SshRequest((BARE,))),
        ({"userssh": {"type": "none", "value": PUBLIC}, "jobssh": "true"}, "", SshRequest(job_key=True)),
        ({"userssh": PUBLIC, "jobssh": False}, "ignore", SshRequest()),
        ({"jobssh": True}, "fail", SshRequest(job_key=True, must=True)),
        ({"jobssh": True, "sshbarrier": True}, "", SshRequest(job_key=True, must=True, barrier=30)),
        ({"jobssh": True, "sshbarrier": True, "sshbarrierTimeout": 2}, "", SshRequest((), True, True, 2)),
        ({"jobssh": True, "sshbarrier": True, "sshbarrierTimeout": "x"}, "", SshRequest((), True, True, 30)),
        ({"sshbarrier": True}, "", SshRequest()),
    ],
)
def test_plugin_parameters_are_parsed(
    parameters: dict[str, object], policy: str, expected: SshRequest
) -> None:
    assert plugin.read(parameters, gang=True, policy=policy) == expected


def test_job_has_no_key_without_gang_allocation() -> None:
    assert plugin.read({"jobssh": True, "sshbarrier": True}, gang=False, policy="") == SshRequest()


def test_barrier_without_an_ssh_client_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "ready").touch()
    (tmp_path / "script").write_text(plugin.script(SshRequest(job_key=True, must=True, barrier=30)))
    done = subprocess.run(
        ["/bin/sh", tmp_path / "script"], env={"PATH": "/none"}, capture_output=True, text=True
    )
    assert done.returncode == plugin.BARRIER_FAILED
    assert done.stderr == "ssh barrier: there is no ssh here (Debian: openssh-client)\n"


@needs_clients
def test_openssh_accepts_the_files_that_are_written(tmp_path: Path) -> None:
    """The folder's name has spaces, quotes and percent signs."""
    folder = tmp_path / 'a "b" %h c'
    service = services.Service(services.SSHD, "root", ("serve",), "/bin/true")
    host, own = new_pair("host"), new_pair("job")
    login = SshLogin(
        service, 2222, host, (own.public,), own, (Peer("main-0", "2222"), Peer("main-1", "2223"))
    )
    layout.write_files(folder, login, "/bin/sh")
    config = folder / "ssh" / "config"
    shown = subprocess.run(
        ["ssh", "-F", str(config), "-G", "main-1"], capture_output=True, text=True, check=True
    )
    lines = shown.stdout.splitlines()
    assert {"hostname 127.0.0.1", "port 2223", "user root", "stricthostkeychecking true"} <= set(lines)
    made = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(folder / "ssh/job_key")], capture_output=True, text=True, check=True
    )
    assert made.stdout.split()[:2] == own.public.split()[:2]
    if find("sshd") and os.geteuid() == 0:
        assert isinstance(services.choose("sshd"), services.Service)  # creates the folder that sshd needs
        argv = ["/usr/sbin/sshd", "-T", "-f", str(folder / "ssh/sshd_config")]
        settings = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        assert {"passwordauthentication no", "kbdinteractiveauthentication no", "allowusers root"} <= set(
            settings
        )
        assert f"hostkey {folder / 'ssh/host_key'}" in settings


def test_ssh_service_is_chosen_by_availability(monkeypatch: pytest.MonkeyPatch) -> None:
    assert services.choose("asyncssh").user == "root"
    with pytest.raises(ConfigError, match=r"local\.ssh is off"):
        services.choose("off")
    if find("sshd") and os.geteuid() == 0:
        assert services.choose("auto").name == "sshd"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(services, "_SYSTEM", "/nowhere")
    assert services.choose("auto").name == "asyncssh"
    with pytest.raises(ConfigError, match="sshd: it is not installed"):
        services.choose("sshd")


def test_a_user_other_than_root_is_served_by_asyncssh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sshd of such a user could not log in root, which clients ask for."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(services, "_own_account", lambda: ("someone", "/bin/bash"))
    assert services.choose("auto").name == "asyncssh"
    if find("sshd"):
        assert services.choose("sshd").user == "someone"
        monkeypatch.setattr(services, "_own_account", lambda: ("someone", "/usr/sbin/nologin"))
        with pytest.raises(ConfigError, match="the shell of someone is /usr/sbin/nologin"):
            services.choose("sshd")


def test_commands_do_not_wait_for_a_service_that_is_not_where_the_task_is(tmp_path: Path) -> None:
    (tmp_path / "ssh").touch()
    plain, barrier = (
        subprocess.run(
            ["/bin/sh", "-c", plugin.script(SshRequest(barrier=minutes)), f"{tmp_path}/command"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        for minutes in (0, 1)
    )
    assert (plain.returncode, plain.stderr) == (0, "")
    assert barrier.returncode == plugin.BARRIER_FAILED
    assert barrier.stderr == "ssh barrier: tasks cannot reach each other by ssh here\n"
