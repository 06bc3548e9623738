"""The SSH service of a task: its keys, the program that serves it, and whether it is ready.

A launch with an SSH service has an ``SshLogin``. The files of the service are in the folder ``ssh`` of the
task's folder; the service creates ``ready`` there once it answers, or ``failed`` with the reason.
"""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.files.regular import open_regular
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import ssh_plugin
from openpai_tasks.settings.key_pairs import KeyPair

FOLDER, READY, FAILED = "ssh", "ready", "failed"
CRASH = "crash"
"""The file with the folder and variables of a failed shell, as a script; see scheduling/keeping.py."""
LONGEST_REASON = 1000  # bytes of the reason for a failure that are read
HOST = "127.0.0.1"
NOT_SERVED, SERVED = ssh_plugin.NOT_SERVED, "SshServed"
"""The reasons of the job's events about the SSH service."""
ROOT = "root"
"""The user to log in as on every OpenPAI."""


@dataclass(frozen=True)
class Peer:
    """A task of the job that can be reached by name."""

    name: str
    port: str
    host: str = HOST

    @classmethod
    def placed_later(cls, name: str) -> Peer:
        """Return a peer whose address is filled in where the tasks start (see engines/runner/peers.py)."""
        return cls(name, f"@port:{name}@", f"@host:{name}@")


@dataclass(frozen=True)
class Service:
    """A program on this machine that serves one task."""

    name: str
    user: str  # for logins
    command: tuple[str, ...]
    sftp: str = ""  # the sftp program of sshd


@dataclass(frozen=True)
class SshLogin:
    """The SSH service of one task."""

    service: Service
    port: int  # 0 if it is chosen where the task starts
    host_key: KeyPair
    authorized: tuple[str, ...]  # public keys
    job_key: KeyPair | None = None  # with which tasks of the job reach each other
    peers: tuple[Peer, ...] = ()


def is_ready(task_folder: Path) -> bool:
    return (task_folder / FOLDER / READY).exists()


def failure(task_folder: Path) -> str:
    """Return why the service failed to start; empty if it did not fail."""
    try:
        with open_regular(f"{task_folder}/{FOLDER}/{FAILED}") as file:
            return file.read(LONGEST_REASON).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""
