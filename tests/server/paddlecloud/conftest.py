"""Users of PaddleCloud on a real server in a separate process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.server.conftest import Api, ServerProcess, wait_for

PASSWORD = "a secret"


@dataclass
class PaddleUser:
    """One user's calls to the server, and the user's home in PFS."""

    uri: str
    name: str
    home: Path
    token: str = ""

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Token {self.token}", **options.pop("headers", {})}
        return requests.request(method, self.uri + path, headers=headers, timeout=60, **options)

    def get(self, address: str, **query: Any) -> Any:
        answer = self.call("GET", address, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def package(self, name: str, **files: str) -> Path:
        """Write a package: ``train_py="..."`` becomes ``train.py``."""
        folder = self.home / "jobs" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return folder

    def submit(self, name: str, entry: str = "true", **more: Any) -> Any:
        body = {"name": name, "entry": entry, "datacenter": "local", "pservers": 0, **more}
        return self.call("POST", "/api/v1/jobs/", json=body).json()

    def run(self, name: str, entry: str = "true", **more: Any) -> None:
        """Submit a job whose package exists."""
        self.package(name)
        answer = self.submit(name, entry, **more)
        assert (answer["code"], answer["msg"]) == (200, "")

    def kill(self, name: str) -> Any:
        return self.call("DELETE", "/api/v1/jobs/", json={"jobname": name}).json()

    def job(self, name: str) -> Any:
        """Return the job in the list; None if it is not there."""
        items = self.get("/api/v1/jobs/")["items"]
        return next((one for one in items if one["metadata"]["name"] == f"{name}-trainer"), None)

    def ended(self, name: str) -> Any:
        """Return the status of the job once it has ended."""
        return wait_for(lambda: (status := self.job(name)["status"])["conditions"] and status)

    def workers(self, name: str, role: str = "trainer") -> Any:
        return self.get("/api/v1/workers/", jobname=name, role=role)["items"]

    def logs(self, name: str, **query: Any) -> str:
        answer = self.get("/api/v1/logs/", jobname=name, **query)
        assert answer["code"] == 200, answer
        return str(answer["msg"])


@pytest.fixture(scope="module")
def uri(admin: Api) -> str:
    return f"{admin.uri}/paddlecloud"


def sign_in(server: ServerProcess, uri: str, name: str, password: str) -> PaddleUser:
    form = {"username": name, "password": password}
    answer = requests.post(f"{uri}/api-token-auth/", json=form, timeout=60)
    assert answer.status_code == 200, answer.text
    return PaddleUser(uri, name, server.folder / "storage" / "home" / name, answer.json()["token"])


@pytest.fixture(scope="module")
def user1(server: ServerProcess, admin: Api, uri: str) -> Iterator[PaddleUser]:
    """A user whose jobs end with the module."""
    admin.post("/api/v2/users", {"username": "user1", "password": PASSWORD})
    user = sign_in(server, uri, "user1", PASSWORD)
    yield user
    for one in user.get("/api/v1/jobs/")["items"]:
        user.kill(one["metadata"]["name"].removesuffix("-trainer"))


@pytest.fixture(scope="module")
def user2(server: ServerProcess, admin: Api, uri: str) -> PaddleUser:
    """Another user."""
    admin.post("/api/v2/users", {"username": "user2", "password": PASSWORD})
    return sign_in(server, uri, "user2", PASSWORD)
