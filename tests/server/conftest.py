"""A real server in a separate process, and a client that sends HTTP requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.forkserver import start_server
from tests.notices import image_not_used
from tests.server import conformity

JOB = """\
protocolVersion: 2
name: {name}
type: job
prerequisites:
  - {{name: image, type: dockerimage, uri: busybox}}
taskRoles:
  main:
    instances: 1
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: 64, gpu: 0}}
    commands:
      - {command}
"""
NOTICES = image_not_used("busybox")


def wait_for(found: Callable[[], Any], seconds: float = 60) -> Any:
    """Poll until the result is true, and return it; the pauses grow, as servers may limit requests."""
    limit, pause = time.monotonic() + seconds, 0.02
    while time.monotonic() < limit:
        answer = found()
        if answer:
            return answer
        time.sleep(pause)
        pause = min(pause * 1.2, 0.25)
    raise AssertionError(f"waited {seconds} s in vain")


@dataclass
class Api:
    """One user's calls to the server."""

    uri: str
    token: str = ""
    checked: bool = True  # whether each response is checked against the server's description

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= options.pop("headers", {})
        url = path if path.startswith("http") else self.uri + path
        answer = requests.request(method, url, headers=headers, timeout=60, **options)
        if self.checked:
            conformity.check(conformity.PROFILES[self.uri], answer)
        return answer

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.call("GET", path, **options)

    def put(self, path: str, json: Any) -> requests.Response:
        return self.call("PUT", path, json=json)

    def post(self, path: str, json: Any) -> requests.Response:
        return self.call("POST", path, json=json)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.call("DELETE", path, **options)

    def submit(self, text: str, type: str = "text/yaml") -> requests.Response:
        return self.call("POST", "/api/v2/jobs", data=text.encode(), headers={"Content-Type": type})

    def run(self, name: str, command: str = "echo hello") -> None:
        """Submit a job with one command."""
        answer = self.submit(JOB.format(name=name, command=json.dumps(command)))
        assert answer.status_code == 202, answer.text

    def detail(self, key: str) -> Any:
        return self.get(f"/api/v2/jobs/{key}").json()

    def until(self, key: str, *states: str) -> Any:
        """Return the job's detail once it is in one of the states."""

        def arrived() -> Any:
            body = self.detail(key)
            return body if body["jobStatus"]["state"] in states else None

        return wait_for(arrived)


class ServerProcess:
    """``python -m openpai_tasks.server`` on one folder; it can be started and stopped repeatedly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, *flags: str) -> dict[str, Any]:
        with (self.folder.parent / "server.log").open("a") as log:
            self.process = start_server("--home", str(self.folder), *flags, stderr=log)
        return self.facts(self.process)

    def facts(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        def read() -> Any:
            assert process.poll() is None, self.log
            with contextlib.suppress(FileNotFoundError):
                facts = json.loads((self.folder / "server.json").read_text())
                return facts if facts["pid"] == process.pid else None

        found: dict[str, Any] = wait_for(read)
        conformity.PROFILES[found["uri"]] = found["profile"]
        return found

    @property
    def log(self) -> str:
        return (self.folder.parent / "server.log").read_text()

    @property
    def owner(self) -> dict[str, str]:
        credentials: dict[str, str] = json.loads((self.folder / "credentials.json").read_text())
        return credentials

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(60)

    def login(self, user: str, password: str) -> Api:
        uri = json.loads((self.folder / "server.json").read_text())["uri"]
        form = {"username": user, "password": password}
        answer = Api(uri).call("POST", "/api/v1/token", data=form)
        assert answer.status_code == 200, answer.text
        return Api(uri, answer.json()["token"])

    def admin(self) -> Api:
        return self.login(self.owner["user"], self.owner["password"])


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server for one test, which starts it."""
    server = ServerProcess(tmp_path / "home")
    yield server
    if server.process and server.process.poll() is None:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server that the tests of one module share, with a second virtual cluster."""
    server = ServerProcess(tmp_path_factory.mktemp("server") / "home")
    server.start("--virtual-cluster", "lab=1,512,0")
    yield server
    server.end()


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Api:
    return server.admin()


@pytest.fixture(scope="module")
def owner(server: ServerProcess) -> str:
    return server.owner["user"]


@pytest.fixture(scope="module")
def alice(server: ServerProcess, admin: Api) -> Api:
    """An ordinary user."""
    answer = admin.post("/api/v2/users", {"username": "alice", "password": "alice-secret"})
    assert answer.status_code == 201, answer.text
    return server.login("alice", "alice-secret")


@pytest.fixture(scope="module")
def guest(admin: Api) -> Api:
    """A caller without a token."""
    return Api(admin.uri)


def code(answer: requests.Response) -> tuple[int, str | None]:
    """Return the status and the error code."""
    return answer.status_code, answer.json().get("code")
