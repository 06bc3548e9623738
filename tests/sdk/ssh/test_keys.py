"""Keys for containers: our own key, a key from the settings, and keys that OpenPAI 0.14 makes for jobs."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest, build_document, dump, validate
from openpai_tasks.protocol.document.roles import PLUGINS
from openpai_tasks.protocol.document.ssh_plugin import has_ssh, with_key
from openpai_tasks.sdk.ssh import keys
from openpai_tasks.settings.config import Settings
from tests import ssh_keys
from tests.needs import needs
from tests.server.workshop import until as wait_for


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_own_key_is_created_once_and_is_private(home):
    public = keys.public_key(Settings())
    path = keys.private_key(Settings())
    assert keys.public_key(Settings()) == public and path.is_relative_to(home)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    made = load_ssh_private_key(path.read_bytes(), None).public_key()
    assert made.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() in public


@pytest.mark.parametrize("kind", ssh_keys.KINDS)
def test_key_from_the_settings_is_used_even_without_its_public_file(tmp_path, kind):
    path = ssh_keys.make_key(tmp_path / "mine", kind=kind)
    given, public = Settings(ssh_key=str(path)), (tmp_path / "mine.pub").read_text().split()[:2]
    assert keys.public_key(given).split()[:2] == public
    (tmp_path / "mine.pub").unlink()
    assert keys.public_key(given).split()[:2] == public


def test_unusable_keys_are_an_error(tmp_path):
    ssh_keys.make_key(tmp_path / "locked", "secret")
    (tmp_path / "locked.pub").unlink()
    (tmp_path / "junk").write_text("junk")
    for name, words in {"none": "is not a file", "locked": "passphrase", "junk": "as a private key"}.items():
        with pytest.raises(ConfigError, match=words):
            keys.public_key(Settings(ssh_key=str(tmp_path / name)))


def test_key_is_added_to_the_job_and_its_plugins_are_kept():
    made = build_document(JobRequest("true", name="x", image="i", ssh_key="ssh-ed25519 AAAA me"))
    validate(dump(made))
    [plugin] = made["extras"][PLUGINS]
    assert plugin["parameters"]["userssh"] == {"type": "custom", "value": "ssh-ed25519 AAAA me"}
    assert plugin["failurePolicy"] == "ignore" and has_ssh(made, "main")
    theirs = {"plugin": "ssh", "parameters": {"jobssh": True, "userssh": {"type": "custom", "value": "k1"}}}
    both = with_key({PLUGINS: [{"plugin": "cmd"}, theirs], "other": 1}, "k2")
    assert both["other"] == 1 and both[PLUGINS][0] == {"plugin": "cmd"}
    parameters = both[PLUGINS][1]["parameters"]
    assert parameters == {"jobssh": True, "userssh": {"type": "custom", "value": "k1\nk2"}}
    assert with_key(both, "k2") == both


def test_document_shows_whether_a_role_accepts_logins():
    some = {"extras": {PLUGINS: [{"plugin": "ssh", "taskroles": ["worker"]}]}}
    assert has_ssh(some, "worker") and not has_ssh(some, "main")
    needed = {
        "prerequisites": [{"name": "in", "plugin": f"{PLUGINS}.ssh"}],
        "taskRoles": {"worker": {"prerequisites": ["in"]}, "main": {}},
    }
    assert has_ssh(needed, "worker") and not has_ssh(needed, "main")
    assert not has_ssh({}, "main") and not has_ssh("text", "main") and not has_ssh({"extras": None}, "main")


@needs("ssh")
def test_the_key_that_the_oldest_cluster_made_is_fetched_and_opens_the_job(shell):
    shell.environment["INVOKE_OPENPAI_LOCAL_PROFILE"] = "0.14"
    shell.ok("job.sub", "sleep 600", "-j", "old", "--cpu", "1")
    ran = wait_for(lambda: (ran := shell.inv("container.run", "old", "echo in")).code == 0 and ran)
    assert ran.out == "in\n"
    [row] = shell.ok("container.key", "old", "-o", "json").json()
    assert row["key"].startswith(str(shell.home / "keys")) and os.stat(row["key"]).st_mode & 0o777 == 0o600
    assert not list(shell.project.glob("*old*"))
    shell.ok("container.key", "old", "--target", "mine.pem")
    assert (shell.project / "mine.pem").stat().st_mode & 0o777 == 0o600
    again = shell.inv("container.key", "old", "--target", "mine.pem")
    assert again.code == 123 and "exists already" in again.err
    assert "127.0.0.1" in shell.ok("container.list", "old").out
    shell.ok("job.stop", "old")
