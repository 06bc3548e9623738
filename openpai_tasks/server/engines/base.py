"""The interface between the scheduler and the engines that run tasks.

An engine is a class with these methods and one row in ``settings/engines.py``, or an entry point of another
package. It is created with the folder of all jobs, and with the keyword argument ``options``: the values of
the options in its row. Tasks may run on machines that share no file system with the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.engines.wakeups import WakePipe
from openpai_tasks.server.resources import NOTHING, ResourceAmount
from openpai_tasks.server.state.records import NewEvent, Task

if TYPE_CHECKING:
    from openpai_tasks.protocol import JobDocument
    from openpai_tasks.server.ssh import SshLogin
    from openpai_tasks.server.storages import Mount

ADDRESS = "127.0.0.1"
"""The address of tasks on this machine."""
Ports = dict[str, tuple[int, ...]]
"""Port numbers by label."""


@dataclass(frozen=True)
class Node:
    """A machine that runs tasks."""

    name: str
    resources: ResourceAmount
    address: str = ADDRESS


@dataclass(frozen=True)
class EngineCapacity:
    """The machines of an engine."""

    nodes: tuple[Node, ...]
    partitions: Mapping[str, ResourceAmount] = field(default_factory=dict)
    """The virtual clusters of an engine that has its own; ``default`` is one of them."""
    skus: Mapping[str, Mapping[str, ResourceAmount]] = field(default_factory=dict)
    """The types of GPUs by virtual cluster, each with the part of its node that comes with one."""
    gpu_types: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many GPUs of each type a virtual cluster has."""
    free_gpus: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many of these no task has, if the engine knows."""

    @property
    def total(self) -> ResourceAmount:
        return sum((node.resources for node in self.nodes), NOTHING)

    def node_name(self, address: str) -> str:
        """Return the name of the node with this address, or the address if there is none."""
        return next((node.name for node in self.nodes if node.address == address), address)


@dataclass(frozen=True)
class MemoryLimits:
    """Whether tasks that use more memory than they asked for are ended."""

    enforced: bool
    how: str  # what does it, or why nothing does

    def __str__(self) -> str:
        return f"memory enforced ({self.how})" if self.enforced else f"memory not enforced: {self.how}"


@dataclass(frozen=True)
class RegistryLogin:
    """Credentials for an image registry; an empty ``registry`` is Docker Hub."""

    user: str
    password: str = field(repr=False)
    registry: str = ""


@dataclass(frozen=True)
class ContainerSpec:
    """The limits of a task and, for engines with containers, the settings of its container."""

    cpu: int = 0  # 0: no limit, here and below
    memory_mb: int = 0
    is_memory_asked: bool = True  # by the submitter; otherwise it is a default
    gpu: int = 0  # how many, for engines that choose them when the task starts
    gpu_type: str = ""
    shm_mb: int | None = None
    gpus: tuple[int, ...] = ()
    login: RegistryLogin | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """Everything that an engine needs to start one attempt of one task."""

    uid: str
    user: str
    folder: Path  # on the machine of the server, for what the engine keeps about the task
    scripts: Mapping[str, str]  # ``command`` is run; the others are files next to it
    environment: dict[str, str]
    image: str
    mounts: tuple[Mount, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)  # variables of all tasks of the job attempt
    container: ContainerSpec = ContainerSpec()
    ssh: SshLogin | None = None  # the SSH service to start with the task
    virtual_cluster: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)  # how many of each label
    role: str = ""
    index: int = 0
    seconds: int = 0  # its time limit, for engines that have one themselves
    extras: Mapping[str, Any] = field(default_factory=dict)  # of the document
    link: str = ""  # a path at which the task also looks for what is below PAI_MOUNT_ROOT

    def __repr__(self) -> str:
        return f"Launch({self.uid})"  # the scripts may contain secrets


@dataclass(frozen=True)
class TaskQueued:
    """The engine has accepted the task but not started it yet."""

    reason: str = ""


@dataclass(frozen=True)
class TaskPlace:
    """Where and when the engine has started a task, if only the engine knows."""

    ip: str
    ports: Ports
    gpus: tuple[int, ...] = ()
    began: int | None = None  # in ms; None counts as now


@dataclass(frozen=True)
class TaskRunning:
    """The task is running, or about to start without further waiting."""

    place: TaskPlace | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TaskExit:
    """How a task ended."""

    user_code: int | None  # the command's exit code, 128+n after signal n; None if there is none
    reason: str = ""  # what happened, if the command did not end by itself
    platform_code: int | None = None  # the platform's exit code, if the platform failed
    stopped: bool = False  # it ended because of a stop request
    ended: int | None = None  # when, in ms; None if the engine does not know, which counts as now
    peak_memory_mb: int | None = None  # None if it is not known
    cpu_seconds: float | None = None
    gpu_percent: float | None = None  # the scheduler reads it from the log ``usage``
    place: TaskPlace | None = field(default=None, compare=False)
    timed_out: bool = False  # the engine's own time limit ended it


TaskStatus = TaskQueued | TaskRunning | TaskExit


class Shortage(PaiError):
    """Raised when too little is free now; there may be enough later."""

    retry_after = 5.0  # seconds


class PortShortage(Shortage):
    """Raised when too few ports are free."""


class GpuShortage(Shortage):
    """Raised when others use the GPUs; without a message if that is being found out."""

    retry_after = 1.0


class Engine(Protocol):
    """Runs tasks. Every method can be repeated safely: a task starts at most once."""

    name: str
    uses_images: bool
    mounts_at_root: bool
    """Whether tasks find storages at the paths of the document, not below PAI_MOUNT_ROOT."""
    schedules: bool
    """Whether the engine schedules by itself.

    The scheduler then hands over every job at once, without counting resources, and shows the state that
    ``poll`` reports.
    """
    places_late: bool
    """Whether the engine alone knows where a task runs, and only when it starts.

    ``poll`` then reports the place, and the task learns from the engine where it and its peers are.
    """
    serves_ssh_in_image: bool
    """Whether the SSH service of a task runs in its image, rather than next to it."""
    ssh_host: str
    """The address of the SSH services, if these are not where the tasks are: on this machine, by asyncssh."""
    separates_streams: bool
    """Whether a task's output and errors are separate logs, besides the log with both."""
    records_usage: bool
    """Whether what tasks use over time is recorded, in a log with the name ``usage``; see runner/usage.py."""
    has_task_folders: bool
    """Whether the folder of a task on this machine is the one in which it runs."""
    where: str
    """Where tasks run: completes "jobs run as processes of ..."."""
    memory: MemoryLimits
    wakeups: WakePipe
    """What the engine, or a task that has ended, wakes the scheduler with."""

    def capacity(self) -> EngineCapacity:
        """Return the engine's machines; called for each request, so it must be fast."""

    def problem(self, document: JobDocument) -> str:
        """Return why the engine can never run a job, which is then refused; empty if it may run."""

    def hold(self, tasks: Iterable[Task]) -> None:
        """Learn the ports and GPUs of unfinished tasks; no others are in use by tasks."""

    def assign_ports(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        """Choose ports for several tasks, by uid and label: for all of them, or raise PortShortage."""

    def assign_gpus(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Choose GPUs for several tasks, by uid: for all of them, or raise GpuShortage."""

    def taken_gpus(self) -> Mapping[int, str]:
        """Return who uses GPUs of this machine, by index, other than the tasks; it may take seconds."""

    def address(self, task: Task) -> str:
        """Return the host at which peers reach a task that is about to start."""

    def variables(self, task: Task) -> dict[str, str]:
        """Return the variables that depend on where a task runs: its folders, and the GPUs that it sees."""

    def start(self, *launches: Launch) -> None:
        """Start tasks; ``poll`` reports failures."""

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        """Return the states of many tasks, by uid; leave out tasks whose state cannot be read now."""

    def stop(self, task: Task) -> None:
        """Ask the task to end, and kill it after the grace period."""

    def forget(self, task: Task) -> None:
        """Remove what was only needed until the task's end was recorded."""

    def notes(self, task: Task) -> Sequence[NewEvent]:
        """Return new events of the task; after a restart of the server, old ones may be repeated."""

    def is_ssh_ready(self, task: Task) -> bool:
        """Return whether the SSH service of a running task answers."""

    def logs(self, task: Task) -> dict[str, int]:
        """Return the existing logs and their sizes in bytes, by name.

        ``times`` has the times of the output, as the runner records them, if the engine has them.
        """

    def open_log(self, task: Task, name: str) -> BinaryIO:
        """Open a log for reading at any position; FileNotFoundError if it does not exist."""

    def close(self) -> None:
        """Release what the engine holds in this process; tasks continue."""


class SchedulingEngine:
    """Base of engines that schedule by themselves: a task gets its machine, ports and GPUs when it starts."""

    name: str
    schedules = places_late = True

    def hold(self, tasks: Iterable[Task]) -> None:
        """Hold nothing here."""

    def assign_ports(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        return {uid: {} for uid in wanted}

    def assign_gpus(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {uid: () for uid in counts}

    def taken_gpus(self) -> dict[int, str]:
        return {}

    def address(self, task: Task) -> str:
        return task.ip

    def priority_note(self, document: JobDocument) -> str:
        """Return in one line why the engine does not act on a job's priority; empty if it does."""
        return f"the priority has no effect: {self.name} orders its jobs by itself"


@dataclass(frozen=True)
class Orphan:
    """What an embedded cluster that is gone has left in the cluster of its engine."""

    name: str
    job: str
    home: str  # HOST:FOLDER of the embedded cluster


@runtime_checkable
class RemovesOrphans(Protocol):
    """An engine whose tasks outlive the machine of the server."""

    def remove_orphans(self, preview: bool) -> Sequence[Orphan]:
        """Remove what embedded clusters of this machine whose folder is gone have left, or only list it."""


@runtime_checkable
class LinksAtRoot(Protocol):
    """An engine whose tasks are processes that can have a root folder of their own."""

    def can_link(self, path: str) -> bool:
        """Return whether a task finds what is at ``path`` below PAI_MOUNT_ROOT at ``path``, too."""


def image_not_used(engine: Engine, images: Iterable[str]) -> str:
    """Return the message about the images of a job, which its tasks do not run in."""
    names = ", ".join(dict.fromkeys(images))
    return f"the image {names} is not used: jobs run as processes of {engine.where}"
