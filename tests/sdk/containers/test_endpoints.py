"""Containers whose sshd starts late or never, on a cluster that reports nothing about them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import Denied, Unreachable
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.containers import endpoints, interactive
from openpai_tasks.sdk.containers.endpoints import Container, RunningJob, SshNotReady
from openpai_tasks.sdk.ssh.login_errors import KeyRefused
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply, Scripted
from tests.sdk import sshd_server
from tests.sdk.ssh.test_hosts_file import PATH, client_of, detail

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
    return lambda tell: endpoints.open_when_ready(client, RunningJob(JOB, (one,)), one, settings, tell)


def test_client_waits_for_a_container_that_was_just_launched(silent, server, monkeypatch):
    monkeypatch.setattr(endpoints, "START", 100.0)  # a slow machine needs some for the first look
    talk = []

    def tell(line):
        talk.append(line)
        server.start()

    with opening(silent, server, int(time.time() * 1000))(tell) as remote:
        assert remote.is_open
    assert talk == ["main-0 is just starting: waiting for ssh"]


def test_client_does_not_wait_for_a_long_running_container_without_sshd(silent, server):
    talk = []
    with pytest.raises(SshNotReady, match="its image may have no sshd"):
        opening(silent, server, int(time.time() * 1000) - 60_000)(talk.append)
    assert talk == []


@pytest.fixture
def scripted_server(tmp_path, monkeypatch):
    """A cluster with scripted responses."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    server = Scripted({})
    yield server
    server.close()


def test_a_stopping_job_is_reported_as_such(scripted_server):
    client = client_of(scripted_server)
    scripted_server.answers[PATH] = detail()
    found = endpoints.reach(client, "train", Settings())
    scripted_server.answers[PATH] = detail(state="STOPPING")
    with pytest.raises(Unreachable, match="is STOPPING: its containers are being stopped"):
        endpoints.reach(client, "train", Settings())
    message = str(endpoints.explain_lost(client, found, found.containers[0], Unreachable("it is lost")))
    assert message == "it is lost: job 'train' is STOPPING; see its output with `pai job.logs train`"


def test_failed_task_is_final_only_while_the_job_continues_without_it(scripted_server, monkeypatch):
    client = client_of(scripted_server)
    body = scripted_server.answers[PATH] = detail()
    [task] = body["taskRoles"]["main"]["taskStatuses"]
    body["taskRoles"]["main"]["taskStatuses"].append({**task, "taskIndex": 1, "containerId": "pod-3"})
    found = endpoints.reach(client, "train", Settings())
    assert endpoints.explain_end(client, found, found.containers[0]) == ""
    task["taskState"] = "FAILED"
    states = iter(["RUNNING", "WAITING"])

    def retried(request):
        body["jobStatus"]["state"] = next(states)
        return body

    scripted_server.answers[PATH] = retried
    monkeypatch.setattr(endpoints, "SETTLE_SECONDS", 10.0)
    assert endpoints.explain_end(client, found, found.containers[0]) == ""  # the job is retried
    body["jobStatus"]["state"], scripted_server.answers[PATH] = "RUNNING", body
    monkeypatch.setattr(endpoints, "SETTLE_SECONDS", 0.3)
    assert endpoints.explain_end(client, found, found.containers[0]) == "main-0 of job train is FAILED"


@pytest.mark.parametrize("trouble", ["refused", "denied"])
def test_any_error_during_the_wait_says_that_the_job_continues(scripted_server, server, trouble):
    server.start()
    scripted_server.answers[PATH] = body = detail()
    body["taskRoles"]["main"]["taskStatuses"][0]["containerPorts"]["ssh"] = str(server.port)
    if trouble == "denied":
        scripted_server.answers[PATH] = Reply({"code": "ForbiddenUserError", "message": "no"}, 403)
    given = Settings(ssh_timeout=30, ssh_key=str(server.folder / "other"), ssh_user=getpass.getuser())
    with pytest.raises(Denied) as caught:
        interactive.wait_ready(client_of(scripted_server), "train", given, 60, lambda line: None)
    assert isinstance(caught.value, KeyRefused) is (trouble == "refused")
    assert str(caught.value).endswith("; the job continues, stop it with `pai container.stop train`")
    assert str(caught.value).count("the job continues") == 1


def test_only_the_wait_for_ssh_is_reported_while_a_container_starts(silent):
    talk = []
    reasons = interactive._WaitReasons(silent, "train", talk.append)
    for _ in range(2):
        reasons.report_refusal(SshNotReady("no ssh server: its image may have no sshd"))
    assert talk == ["waiting for ssh"]
    assert reasons.last == "no ssh server: its image may have no sshd"
