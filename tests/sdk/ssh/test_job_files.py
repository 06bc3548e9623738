"""Host names and host keys are removed together: no name is left that any host could answer to."""

from __future__ import annotations

import pytest

from openpai_tasks.errors import Unreachable
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.ssh import host_blocks
from openpai_tasks.settings.config import Settings
from tests.needs import needs
from tests.scripted import Scripted
from tests.sdk import sshd_server
from tests.sdk.ssh.test_hosts_file import LIST, PATH, client_of, detail, line_of, opened, ssh, written

pytestmark = needs("ssh")
NAME = "ann~train-main-0-pod-2"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / ".openpai"))
    return tmp_path / ".openpai"


@pytest.fixture
def server():
    server = Scripted({PATH: detail()})
    yield server
    server.close()


@pytest.fixture
def sshd(tmp_path):
    with sshd_server.running(tmp_path / "sshd") as sshd:
        yield sshd


@pytest.fixture
def known(home):
    file = home / "known_hosts" / "lab"
    file.parent.mkdir(parents=True)
    return file


def named(client, sshd, known, name=NAME):
    """Write the hosts file with a job in it, and log in to the job by its name."""
    path = written(client, sshd.target(known.parent, known_hosts=known, name=name))
    done = ssh("-F", path, "-o", "BatchMode=yes", "train", "echo in")
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
    assert known.read_text().startswith(f"{name} ")
    return path


@pytest.mark.parametrize("forgets", [True, False])
def test_host_name_never_leads_to_another_machine_at_the_address_of_an_ended_job(
    server, known, sshd, forgets
):
    client = client_of(server)
    path = named(client, sshd, known)
    sshd.stop()
    sshd.start("host2")  # as another container at the same address and port
    server.answers[PATH] = detail(state="STOPPED")
    with pytest.raises(Unreachable, match="its containers are gone"):
        endpoints.reach(client, "train", Settings(), forgets=forgets)
    assert ("Host train" in path.read_text(), NAME in known.read_text()) == (not forgets, not forgets)
    done = ssh("-F", path, "-o", "BatchMode=yes", "train", "echo in")
    assert (done.returncode, done.stdout) == (255, "")
    assert ("Could not resolve" if forgets else "IDENTIFICATION HAS CHANGED") in done.stderr


def test_connecting_to_a_new_container_removes_names_and_keys_of_ended_jobs(server, known, sshd):
    client = client_of(server)
    path = named(client, sshd, known, name="ann~train-main-0-pod-1")
    theirs = path.read_text().replace("ann~train", "bob~train").replace("Host train ", "Host bobs ")
    path.write_text(path.read_text() + theirs)
    body = detail()
    body["taskRoles"]["main"]["taskStatuses"][0]["containerPorts"]["ssh"] = str(sshd.port)
    rows = [{"name": "next", "username": "ann", "state": "RUNNING"}]
    server.answers |= {f"{PATH[:-5]}next": {**body, "name": "next"}, LIST: {"totalCount": 1, "data": rows}}
    given = Settings(ssh_timeout=30, ssh_key=str(sshd.folder / "id"), ssh_user=sshd.target(known).user)
    found = endpoints.reach(client, "next", given)
    endpoints.open_remote(client, found, endpoints.first_running(found), given).close()
    assert [whose for whose, _ in host_blocks.read_blocks()] == [("lab", "bob~train")]
    assert [line.split()[0] for line in known.read_text().splitlines()] == ["ann~next-main-0-pod-2"]


def test_host_key_is_kept_if_its_host_name_cannot_be_removed(server, known, sshd):
    client = client_of(server)
    path = named(client, sshd, known)
    lock = path.with_name(".config.lock")
    lock.unlink()
    lock.mkdir()
    server.answers[PATH] = detail(state="STOPPED")
    with pytest.raises(Unreachable, match="its containers are gone"):
        endpoints.reach(client, "train", Settings())
    assert "Host train" in path.read_text() and NAME in known.read_text()


def test_host_keys_of_earlier_attempts_are_removed_with_their_block(server, home, known, sshd, tmp_path):
    known.write_text(line_of("ann~train-main-0-pod-1") + line_of(NAME) + line_of("other"))
    written(client_of(server), sshd.target(tmp_path, known_hosts=known, name="ann~train-main-0-pod-1"))
    server.answers[PATH] = detail(state="STOPPED")
    with pytest.raises(Unreachable):
        opened(client_of(server), Settings())
    assert known.read_text() == line_of("other")
