"""Helpers that the tests of all profiles share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.conftest import Api, ServerProcess, wait_for

PASSWORD = "alice-secret"
TWO_ROLES = """\
protocolVersion: 2
name: {name}
type: job
prerequisites: [{{name: image, type: dockerimage, uri: busybox}}]
secrets: {{word: hush}}
taskRoles:
  Ps_Server:
    instances: 1
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: 64, gpu: 0, ports: {{data: 2}}}}
    commands: ["echo '<out> & more'; echo trouble >&2"]
  worker:
    instances: 2
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: 64, gpu: 0}}
    completion: {{minSucceededInstances: -1}}
    commands: ["sleep 0.2"]
"""


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[ServerProcess]:
    server = ServerProcess(folder / "home")
    server.start(*flags)
    yield server
    server.end()


def join(server: ServerProcess, users: str) -> Api:
    """Create a user at this server's path for users, and log in."""
    answer = server.admin().post(users, {"username": "alice", "password": PASSWORD})
    assert answer.status_code == 201, answer.text
    return server.login("alice", PASSWORD)


def until(api: Api, path: str, *states: str) -> Any:
    """Return the job's detail at the path once it is in one of the states."""

    def arrived() -> Any:
        body = api.get(path).json()
        return body if body["jobStatus"]["state"] in states else None

    return wait_for(arrived)
