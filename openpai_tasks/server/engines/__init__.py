"""How a task is really run: one small interface, one module for each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from openpai_tasks.server.state.records import Task

if TYPE_CHECKING:
    from openpai_tasks.protocol import StorageMount
    from openpai_tasks.server import ssh


@dataclass(frozen=True)
class RegistryLogin:
    """What a registry wants to know before it gives an image away; an empty ``registry`` is Docker Hub."""

    user: str
    password: str = field(repr=False)
    registry: str = ""


@dataclass(frozen=True)
class Container:
    """What a task's container is to be, for engines that have containers."""

    cpu: int = 0  # 0: as much as there is, here and below
    memory_mb: int = 0
    shm_mb: int | None = None
    gpus: tuple[int, ...] = ()
    login: RegistryLogin | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """All that an engine needs to start one try of one task."""

    uid: str
    user: str
    folder: Path
    scripts: Mapping[str, str]  # ``command`` is run; whatever else it needs lies beside it
    environment: dict[str, str]
    image: str
    storages: tuple[StorageMount, ...] | None  # None: no storage; empty: the user's own
    shared: Mapping[str, str] = field(default_factory=dict)  # variables of all tasks beside this one
    container: Container = Container()
    ssh: ssh.Login | None = None  # the ssh service that it is to have

    def __repr__(self) -> str:
        return f"Launch({self.uid})"  # the scripts may hold secrets


@dataclass(frozen=True)
class Exit:
    """How a task ended."""

    user_code: int | None  # the command's own exit code, 128+n after signal n; None: it has none
    reason: str = ""  # what happened, when it was not the command that ended by itself
    platform_code: int | None = None  # the platform's exit code, when it was the platform that failed
    stopped: bool = False  # it ended because it was asked to
    ended: int | None = None
    log: bytes = b""  # the end of what it wrote, if it failed


@dataclass(frozen=True)
class Note:
    """Something a task's owner should know while it runs; an event of the job."""

    type: str  # Normal or Warning
    reason: str
    message: str


class Engine(Protocol):
    """Every verb may be said again without harm: a task starts once, however often it is asked to."""

    name: str
    uses_images: bool

    def start(self, *launches: Launch) -> None:
        """Begin to run them; what goes wrong is told by poll."""

    def poll(self, task: Task) -> Exit | None:
        """How it ended, or None while it runs."""

    def stop(self, task: Task) -> None:
        """Ask it to end, and see to it that it does."""

    def notes(self, task: Task) -> Sequence[Note]:
        """What there is to tell of it that was not told before; after a new start, perhaps once more."""

    def logs(self, task: Task) -> dict[str, Path]:
        """Its log files, by name."""

    def close(self) -> None:
        """The server ends; tasks go on."""
