"""The ssh service of a task: whose keys open it, what serves it, and whether it can be used yet.

An engine finds a ``SshLogin`` at each launch that is to have one. Its files are in the folder ``ssh`` of the
task's own; whatever serves it makes ``ready`` there once it answers, or ``failed`` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.protocol.document import ssh_plugin
from openpai_tasks.settings.key_pairs import KeyPair

FOLDER, READY, FAILED = "ssh", "ready", "failed"
HOST = "127.0.0.1"
NOT_SERVED, SERVED = ssh_plugin.NOT_SERVED, "SshServed"
"""The reasons of the events that a job finds about it."""
ROOT = "root"
"""The user one logs in as on every OpenPAI."""


@dataclass(frozen=True)
class Peer:
    """A task of the job that can be reached by name."""

    name: str
    port: int


@dataclass(frozen=True)
class Service:
    """A program of this machine that serves one task."""

    name: str
    user: str  # to log in as
    command: tuple[str, ...]  # what serves; the port follows
    sftp: str = ""  # sshd's own program for it


@dataclass(frozen=True)
class SshLogin:
    """The ssh service of one task."""

    service: Service
    port: int
    host_key: KeyPair
    authorized: tuple[str, ...]  # public keys
    job_key: KeyPair | None = None  # with it, tasks of the job reach each other
    peers: tuple[Peer, ...] = ()


def is_ready(task_folder: Path) -> bool:
    return (task_folder / FOLDER / READY).exists()


def failure(task_folder: Path) -> str:
    """Why the service could not be given, or nothing."""
    try:
        return (task_folder / FOLDER / FAILED).read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
