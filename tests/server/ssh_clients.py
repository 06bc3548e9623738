"""Jobs that accept ssh logins, and the clients that log in: OpenSSH and Fabric."""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs, require
from tests.server.conftest import Api, ServerProcess, wait_for

PLUGINS = "com.microsoft.pai.runtimeplugin"
SERVICES = ("sshd", "asyncssh")
needs_clients = needs("ssh")


def skip_without(service: str) -> None:
    if service == "sshd":
        require("sshd")


def skip_without_terminal(service: str) -> None:
    """Skip the test if the service can give its sessions no terminal."""
    if service == "sshd" and os.geteuid() != 0 and not _terminals_belong_to_tty():
        pytest.skip("/dev/pts is mounted without gid=5, so sshd cannot hand out terminals unless it is root")


def _terminals_belong_to_tty() -> bool:
    ours, theirs = os.openpty()
    with os.fdopen(ours), os.fdopen(theirs):
        return os.fstat(theirs).st_gid == grp.getgrnam("tty").gr_gid


def login_name(service: str) -> str:
    """Return the user to log in as: an sshd of an ordinary user accepts only that user."""
    return pwd.getpwuid(os.geteuid()).pw_name if service == "sshd" else "root"


def plugin(key: Path | None = None, **more: Any) -> dict[str, Any]:
    """The ssh plugin, with the public half of a key."""
    userssh = {"userssh": {"type": "custom", "value": key.with_suffix(".pub").read_text()}} if key else {}
    policy = {"failurePolicy": more.pop("policy")} if "policy" in more else {}
    return {"plugin": "ssh", "parameters": {**userssh, **more}, **policy}


def document(name: str, command: str, *plugins: dict[str, Any], instances: int = 1, **more: Any) -> str:
    role = {
        "instances": instances,
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
        "commands": [command],
    }
    head = {"protocolVersion": 2, "name": name, "type": "job"}
    image = {"type": "dockerimage", "name": "image", "uri": "some/image:1"}
    roles = {"taskRoles": {"main": role}}
    return json.dumps({**head, "prerequisites": [image], **roles, "extras": {PLUGINS: list(plugins)}, **more})


def task_folder(server: ServerProcess, key: str, name: str = "main-0-0") -> Path:
    return server.folder / "jobs" / key / "0" / name


def run_job(server: ServerProcess, api: Api, name: str, text: str) -> str:
    """Submit a job, wait until its command runs, and return its key."""
    answer = api.submit(text)
    assert answer.status_code == 202, answer.text
    key = f"{server.owner['user']}~{name}"
    api.until(key, "RUNNING")
    wait_for(lambda: "up" in job_output(server, key))
    return key


def job_output(server: ServerProcess, key: str) -> str:
    log = task_folder(server, key) / "logs" / "all"
    return log.read_text() if log.exists() else ""


def events(api: Api, key: str) -> dict[str, str]:
    return {one["reason"]: one["message"] for one in api.get(f"/api/v2/jobs/{key}/events").json()["data"]}


def stop(api: Api, key: str) -> None:
    api.put(f"/api/v2/jobs/{key}/executionType", {"value": "STOP"})
    api.until(key, "STOPPED", "FAILED", "SUCCEEDED")


def ports(api: Api, key: str) -> list[int]:
    roles = api.detail(key)["taskRoles"]
    return [int(task["containerPorts"]["ssh"]) for task in roles["main"]["taskStatuses"]]


@dataclass(frozen=True)
class SshTarget:
    """The ssh service of one task, and a key to log in with."""

    port: int
    key: Path
    user: str = "root"

    @property
    def options(self) -> list[str]:
        return [
            *("-F", "/dev/null", "-i", str(self.key), "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.known_hosts}"),
            *("-o", "BatchMode=yes", "-o", "ConnectTimeout=60"),
            *("-o", "KexAlgorithms=curve25519-sha256"),  # ten times faster than the default
        ]

    @property
    def known_hosts(self) -> Path:
        return self.key.with_name("known_hosts")

    @property
    def address(self) -> str:
        return f"{self.user}@127.0.0.1"

    def argv(self, *words: str) -> list[str]:
        return ["ssh", *self.options, "-p", str(self.port), *words]

    def ssh(self, command: str, *flags: str, send: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv(*flags, self.address, command), input=send, capture_output=True, timeout=100
        )

    def output_of(self, command: str) -> str:
        done = self.ssh(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def fabric(self, **more: Any) -> Any:
        from fabric import Config, Connection

        keys = {"key_filename": str(self.key), "look_for_keys": False, "allow_agent": False}
        return Connection(
            "127.0.0.1", self.user, self.port, config=Config(lazy=True), connect_kwargs={**keys, **more}
        )

    @contextmanager
    def tunnel(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a client that only keeps the connection open."""
        process = subprocess.Popen(self.argv("-N", *flags, self.address), stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def answers(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 60)):
        return True
    return False


def processes_of(folder: Path) -> list[int]:
    """Return each process in the folder, or whose command line or environment names it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _knows(entry, str(folder)):
            found.append(int(entry.name))
    return found


def _knows(entry: Path, folder: str) -> bool:
    with suppress(OSError):
        if os.readlink(entry / "cwd").startswith(folder):
            return True
        words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        return folder.encode() in words
    return False


def alive() -> set[int]:
    """Return all running processes, without zombies."""
    return set(_parents())


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    parents = _parents()
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [below for child in found for below in descendants(child)]


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, parent, *_ = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                found[int(entry.name)] = int(parent)
    return found


def runner_of(folder: Path) -> int:
    return int((folder / "started").read_text().split()[0])


def kill_runner(folder: Path) -> None:
    os.kill(runner_of(folder), signal.SIGKILL)
