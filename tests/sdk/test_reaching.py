"""Containers whose sshd comes late or never, of a cluster that has nothing to tell about them."""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Callable

import pytest

from openpai_tasks.client import Client
from openpai_tasks.config import Settings
from openpai_tasks.credentials import Credentials
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.registry import Cluster
from openpai_tasks.sdk import interactive, reaching
from openpai_tasks.sdk.reaching import Container, NotServing, Reach
from tests.sdk import sshd_server

JOB = JobInfo("train", "ann", "RUNNING", "default", *[None] * 5, 0, 0, None, 1, ())


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """A cluster that does not answer."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    uri = f"http://127.0.0.1:{sshd_server.refusing_port()}"
    return Client(Cluster("lab", uri, "ann", generation="1.8"), Credentials(token="x"))


@pytest.fixture
def server(tmp_path):
    server = sshd_server.make(tmp_path / "sshd")
    yield server
    server.stop()


def opening(client, server, launched) -> Callable[..., object]:
    one = Container("main", 0, "RUNNING", "127.0.0.1", server.port, getpass.getuser(), "1", launched=launched)
    settings = Settings(ssh_key=str(server.folder / "id"))
    return lambda tell: reaching.open_soon(client, Reach(JOB, (one,)), one, settings, tell)


def test_a_container_that_was_just_launched_is_waited_for(silent, server):
    talk = []
    late = threading.Timer(1.5, server.start)
    late.start()
    with opening(silent, server, int(time.time() * 1000))(talk.append) as remote:
        assert remote.is_open
    late.join()
    assert talk == ["main-0 is just starting: waiting for ssh"]


def test_one_that_runs_for_long_without_an_sshd_is_not_waited_for(silent, server):
    talk = []
    with pytest.raises(NotServing, match="its image may have no sshd"):
        opening(silent, server, int(time.time() * 1000) - 60_000)(talk.append)
    assert talk == []


def test_while_a_container_starts_only_the_wait_for_ssh_is_told(silent):
    talk = []
    reasons = interactive._Reasons(silent, "train", talk.append)
    for _ in range(2):
        reasons.tell_refusal(NotServing("nothing takes ssh: its image may have no sshd"))
    assert talk == ["waiting for ssh"]
    assert reasons.last == "nothing takes ssh: its image may have no sshd"
