"""The interface to clusters: the operations of every kind of cluster, and the optional capabilities."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from openpai_tasks.errors import Unsupported
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import EventInfo, JobInfo, SshInfo, TaskInfo
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.text.hints import option

if TYPE_CHECKING:
    from typing_extensions import Unpack

Amount = int | float | None
Ask = Callable[[str], str]
Say = Callable[[str], None]
Document = str | Mapping[str, Any]
"""A job document: the text of a version 2 document, or the content of a version 1 document."""


# Optional capabilities


def _ability(refusal: str, advice: str, *options: str) -> bool:
    """Declare a capability, absent by default, with the message for clusters without it."""
    words = {"refusal": refusal, "advice": advice, "options": options}
    absent: bool = field(default=False, metadata=words)
    return absent


@dataclass(frozen=True)
class Capabilities:
    """What users can do on this cluster beyond the operations of every cluster; see ``require``."""

    tags: bool = _ability("has no tags", "leave out {}", "tag")
    events: bool = _ability("keeps no events of jobs", "look at the output of the job instead")
    attempts: bool = _ability("shows only the latest attempt of a job", "leave out {}", "attempt")
    job_keys: bool = _ability(
        "makes no SSH keys for jobs", "submit with {}, and your own key opens the containers", "ssh"
    )
    v1_documents: bool = _ability("accepts no job documents of version 1", "convert it to version 2 first")
    ownerless_jobs: bool = _ability("has no jobs without an owner", "name the job as USER~NAME")
    application_tokens: bool = _ability(
        "issues no application tokens", "sign in with a password, or with a token of its web portal"
    )
    job_removal: bool = _ability(
        "keeps finished jobs as its administrators decide", "only the embedded cluster can be cleaned"
    )
    token_checks: bool = _ability("cannot check a token by itself", "sign in with it")
    separate_streams: bool = _ability(
        "keeps one log for each task", "leave out {} and {}", "stdout", "stderr"
    )
    retries: bool = _ability("does not retry jobs", "leave out {}", "retries")
    free_names: bool = _ability("names jobs as Kubernetes does", "use lower case letters, digits and '-'")
    ssh: bool = _ability("gives no ssh into containers", "look at the output of the job instead")
    usage_history: bool = _ability(
        "keeps no history of what jobs use", "leave out {} to see what a job uses now", "history"
    )
    dependencies: bool = _ability(
        "keeps no dependencies between jobs", "submit it with `job.sub --after`, which waits for them"
    )
    queue_moves: bool = _ability(
        "orders waiting jobs by itself", "submit with {} high to have a job start earlier", "priority"
    )
    requeues: bool = _ability(
        "does not run a task again at its time limit", "leave out {}", "requeue_on_timeout"
    )
    exact_requeues: bool = _ability(
        "counts its other retries of a job as runs at the time limit, too",
        "it may run fewer times than {} says",
        "requeue_on_timeout",
    )
    idle_gpus: bool = _ability("does not watch the GPUs of jobs", "leave out {} and {}", "idle_stop", "idle")
    usage_report: bool = _ability(
        "does not report the GPUs and the end of past jobs", "look at its jobs one by one"
    )
    hooks: bool = _ability(
        "keeps no hooks", "follow the job, and the command notifies at its end, or leave out {}", "notify"
    )
    kept_failures: bool = _ability(
        "does not keep failed tasks", "leave out {}, or let the command itself wait", "keep_failed"
    )


def require(backend: Backend, ability: str) -> None:
    """Raise Unsupported, with advice, unless the cluster has the capability."""
    if not getattr(backend.capabilities, ability):
        raise unsupported(backend, ability)


def unsupported(backend: Backend, ability: str) -> Unsupported:
    """Return the error, with advice, for a capability that the cluster does not have."""
    (words,) = (one.metadata for one in dataclasses.fields(Capabilities) if one.name == ability)
    where = f"cluster {backend.cluster.alias!r} ({backend.product})"
    advice = words["advice"].format(*map(option, words["options"]))
    return Unsupported(f"{where} {words['refusal']}: {advice}")


# Answers of clusters


@dataclass(frozen=True)
class ClusterDescription:
    """How a cluster describes itself; "" for each missing field."""

    version: str = ""
    launcher: str = ""
    login: str = ""


@dataclass(frozen=True)
class Capacity:
    """One resource of a virtual cluster; ``total`` also counts nodes that are down and GPUs in other use."""

    used: Amount = None
    usable: Amount = None
    total: Amount = None

    @property
    def unavailable(self) -> Amount:
        return None if self.total is None or self.usable is None else max(0, self.total - self.usable)


@dataclass(frozen=True)
class VirtualCluster:
    """A part of a cluster and its resources, named as in job documents."""

    resources: Mapping[str, Capacity] = field(default_factory=dict)
    gpu_types: Mapping[str, int | float] = field(default_factory=dict)  # how many of each, if it has types
    taken_gpus: tuple[str, ...] = ()  # each with who uses it, other than jobs of the cluster
    free_gpus: Mapping[str, int | float] = field(default_factory=dict)  # of each type, if that is known
    runs_images: bool = True  # False if tasks run without the image of their job

    def capacity(self, resource: str) -> Capacity:
        """Return the amounts of ``gpu``, ``cpu`` or ``memoryMB``."""
        return self.resources.get(resource, Capacity())


@dataclass(frozen=True)
class ClusterNode:
    """A machine of a cluster; its resources are named as in job documents."""

    name: str
    address: str = ""
    is_ready: bool = True
    resources: Mapping[str, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterStorage:
    """A storage that a cluster grants; a list of storages has fewer details than ``Backend.storage``."""

    name: str
    type: str = ""
    data: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain account keys
    share: bool = True
    read_only: bool = False
    default: bool | None = None  # None if only the list of default storages shows it
    folder: str = ""  # folder on this machine, as an embedded cluster reports it
    home: str = ""  # folder of the user on it; "" if it follows from ``share``
    mount_point: str = ""  # in tasks, as a list of storages reports it; "" is /mnt/NAME


@dataclass(frozen=True)
class RemovedJob:
    """A finished job that was removed from a cluster, or would be; ``ended`` is in ms."""

    name: str
    ended: int | None
    size: int


@dataclass(frozen=True)
class RemovedOrphan:
    """What an embedded cluster that is gone has left, such as a pod; ``home`` is HOST:FOLDER."""

    name: str
    job: str
    home: str


@dataclass(frozen=True)
class UsageLevel:
    """The mean and the maximum of a value."""

    mean: float
    maximum: float


@dataclass(frozen=True)
class GpuSample:
    """What a task used of one GPU."""

    index: int
    percent: UsageLevel | None = None
    memory_mb: UsageLevel | None = None


@dataclass(frozen=True)
class UsageSample:
    """What a task used from ``time`` (ms) on, for some seconds; memory is in bytes."""

    time: int
    seconds: float
    cpu: UsageLevel | None = None  # cores
    memory: UsageLevel | None = None
    gpus: tuple[GpuSample, ...] = ()


@dataclass(frozen=True)
class TaskUsage:
    """What a task used over time; ``unrecorded`` says why nothing is, if so."""

    role: str
    index: int
    samples: tuple[UsageSample, ...] = ()
    unrecorded: str = ""

    @property
    def label(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class ClusterSample:
    """How busy a cluster was from ``time`` (ms) on: tasks, and what the running ones asked for."""

    time: int
    running: float
    waiting: float
    cpu: float
    memory_mb: float
    gpu: float


@dataclass(frozen=True)
class UsageRow:
    """What the jobs of a user, a tag or a sweep had and used; None for what is not known."""

    name: str  # "" for jobs without a tag or a sweep
    jobs: int
    gpu_hours: float | None = None
    gpu_used: float | None = None  # percent, of the tasks for which it was recorded
    cpu_hours: float | None = None
    cpu_used: float | None = None
    waited: float | None = None  # seconds, the mean of all jobs
    failed: float | None = None  # percent of the GPU-hours, or of the CPU-hours if there are none


@dataclass(frozen=True)
class UsageReport:
    """What jobs had and used from ``since`` to ``until`` (ms), most GPU-hours first."""

    by: str
    since: int
    until: int
    user: str  # "all" for everyone's
    rows: tuple[UsageRow, ...] = ()
    gpu_series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    cpu_series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The hours of each row in equal parts of the time."""
    removed: int | None = None  # when the last of the jobs that the cluster has removed had ended
    notes: tuple[str, ...] = ()  # what the numbers leave out


@dataclass(frozen=True)
class ExitMeaning:
    """The reason for an exit code of the platform, and a possible solution."""

    reason: str
    solution: str = ""


class JobFilter(TypedDict, total=False):
    """Filters of the job list; texts may contain several values, separated by commas."""

    username: str | None
    state: str | None
    vc: str | None
    keyword: str | None
    tagsContain: str | None
    tagsNotContain: str | None
    order: str | None  # a field and a direction: "jobName,ASC"
    offset: int | None
    limit: int | None


class TaskLog(Protocol):
    """The log of one task; each read continues where the last one ended."""

    is_absent: bool
    """Whether the cluster does not know this log."""

    def read(self) -> Iterator[bytes]:
        """Yield the new bytes."""

    def rewind(self) -> None:
        """Start again from the beginning."""

    def size(self) -> int | None:
        """Return the size in bytes; None if this log can only be read from its beginning."""

    def read_range(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, or to the end; ``read`` is not affected."""

    def read_end(self, length: int) -> tuple[int, bytes] | None:
        """Return the last bytes and where they begin, in one request; None if only ``size`` can tell."""

    def seek(self, offset: int) -> None:
        """Let the next ``read`` begin at ``offset``, for a log with a size."""


# Operations


class Backend(Protocol):
    """A connection to a cluster as one user."""

    cluster: Cluster
    patience: float
    """Seconds without an answer after which watching a job ends."""

    def __hash__(self) -> int: ...

    @property
    def user(self) -> str:
        """Name of the user."""

    @property
    def product(self) -> str:
        """The kind of cluster and its version, for messages: ``OpenPAI 1.8``."""

    @property
    def capabilities(self) -> Capabilities:
        """The optional capabilities of the cluster."""

    @property
    def polls_cheaply(self) -> bool:
        """Whether the cluster may be asked several times a second."""

    @property
    def runs_here(self) -> bool:
        """Whether jobs run on this machine, where they can use the user's own Python."""

    def say(self, line: str) -> None:
        """Show a message to the user."""

    def ahead(self, *calls: functools.partial[Any]) -> AbstractContextManager[None]:
        """Start calls of this object side by side; equal calls in the block take their answers, each once.

        It only saves time: what cannot be started ahead is called as usual.
        """

    def forget_facts(self) -> bool:
        """Forget what is kept about the cluster, such as its storages; return whether there was anything."""

    # The cluster

    def describe(self) -> ClusterDescription:
        """Return how the cluster described itself when the user signed in."""

    def answers(self) -> bool:
        """Return whether the server answers the first request."""

    def token(self) -> str:
        """Return the user's token; log in first if there is none."""

    def renew(self, refused: str = "") -> str:
        """Log in to get a token other than the refused one."""

    def authenticate(self) -> str:
        """Return a token that the cluster accepts now; renew an expired one."""

    def virtual_clusters(self) -> dict[str, VirtualCluster]:
        """Return the virtual clusters by name."""

    def gpu_type_names(self, virtual_cluster: str) -> tuple[str, ...]:
        """Return the types of GPUs that a virtual cluster has; none if the cluster does not report them."""

    def cluster_usage(self, seconds: int, points: int) -> tuple[ClusterSample, ...]:
        """Return how busy the cluster was, in about ``points`` samples; needs ``usage_history``."""

    def usage_report(self, by: str, seconds: int, user: str, points: int) -> UsageReport:
        """Return what jobs had and used, by user, tag or sweep; needs ``usage_history``.

        An empty ``user`` means all users for administrators, and otherwise the caller.
        """

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the machines; none if the cluster does not show them to this user."""

    def storages(self, default: bool = False) -> tuple[ClusterStorage, ...]:
        """Return the storages granted to the user, or only the default ones."""

    def storage(self, name: str) -> ClusterStorage:
        """Return a storage with all its details."""

    # Jobs

    def check_document(self, document: Document) -> None:
        """Raise if the cluster cannot run a valid document; nothing is sent."""

    def submit(
        self, document: Document, environment: Mapping[str, str] | None = None, hooks: str = ""
    ) -> tuple[str, ...]:
        """Submit a job document unchanged; return what will not be as it asks for, one line each.

        ``environment`` is for processes of this machine; ``hooks`` is the value of their header, for clusters
        with the capability ``hooks``.
        """

    def submit_url(self, document: Document) -> str:
        """Return the URL that the document would be sent to."""

    def jobs(self, **query: Unpack[JobFilter]) -> list[JobInfo]:
        """List jobs, newest first."""

    def count_jobs(self, *states: str, **query: Unpack[JobFilter]) -> dict[str, int]:
        """Return the number of jobs in each of these states, of those that the query selects."""

    def job_list_version(self, **query: Unpack[JobFilter]) -> str:
        """Return a text that changes with the list of these jobs.

        Empty if one of them may still change, or if only the whole list would show it.
        """

    def clean_jobs(self, keep: str, preview: bool) -> list[RemovedJob]:
        """Remove the finished jobs beyond the limits, or only list them; needs ``job_removal``."""

    def clean_orphans(self, preview: bool) -> list[RemovedOrphan]:
        """Remove what embedded clusters that are gone have left, or only list it; needs ``job_removal``."""

    def job(self, key: str) -> JobInfo:
        """Return a job by ``user~name``, or by its bare name if it has no owner."""

    def job_attempt(self, key: str, attempt: int) -> JobInfo:
        """Return a job as of one of its attempts, counted from 0; needs ``attempts``."""

    def job_document(self, key: str) -> Any:
        """Return a job's document, version 1 or 2, with secrets masked."""

    def job_events(self, key: str) -> tuple[EventInfo, ...]:
        """Return the events of a job; needs ``events``."""

    def job_page(self, job: JobInfo) -> str:
        """Return the URL of a job's page in the web portal."""

    def stop_job(self, key: str) -> None:
        """Ask the cluster to stop a job, which may take a while."""

    def move_first(self, key: str) -> None:
        """Put a waiting job before the others of its owner; needs ``queue_moves``."""

    def add_tag(self, key: str, tag: str) -> None:
        """Add a tag to a job; needs ``tags``."""

    def explain_exit(self, code: int) -> ExitMeaning | None:
        """Return what an exit code means on this cluster, if that differs from the usual meaning."""

    # Tasks

    def open_log(self, job: JobInfo, task: TaskInfo, stream: str, retries: bool = True) -> TaskLog:
        """Open a task's log: stdout, stderr or all. Without ``retries``, failures are raised at once."""

    def log_locations(self, key: str, attempt: int, role: str, index: int, retry: int) -> Mapping[str, str]:
        """Return the addresses of a task's logs, where ``open_log`` needs a request to find them."""

    def printed_results(self, jobs: Sequence[JobInfo]) -> dict[str, dict[str, Any]]:
        """Return the last JSON objects that ended jobs printed, by key; {} for a job that printed none.

        Empty, or without some of the jobs, if the cluster can only serve their logs.
        """

    def task_usage(self, job: JobInfo, task: TaskInfo, points: int) -> TaskUsage:
        """Return what a task used over time, in at most ``points`` samples; needs ``usage_history``."""

    def ssh_endpoints(self, job: JobInfo) -> dict[str, SshInfo]:
        """Return the SSH endpoints of a job's containers, by task label."""

    def job_private_key(self, job: JobInfo) -> str:
        """Return the private key that the cluster created for a job; needs ``job_keys``."""


# Finding and signing in to a cluster


@dataclass(frozen=True)
class ForeignCluster:
    """A cluster in the file of another program, which is never changed."""

    cluster: Cluster
    path: Path
    password: str = field(default="", repr=False)


@dataclass(frozen=True)
class ForeignClusters:
    clusters: tuple[ForeignCluster, ...] = ()
    problems: tuple[str, ...] = ()  # what is wrong with the file, one line each


@dataclass(frozen=True)
class TokenStore:
    """The stored token of a user, which commands share."""

    read: Callable[[], str] = lambda: ""
    save: Callable[[str], None] = lambda token: None


NOT_SHARED = TokenStore()


class Driver(Protocol):
    """The functions that a kind of cluster provides; a row of the table in kinds.py loads them."""

    def candidates(self, address: str) -> tuple[str, ...]:
        """Return the addresses that the typed text may stand for, best first."""

    def learn(self, cluster: Cluster, seconds: float) -> Cluster:
        """Complete the record with the server's description; raise if the server has moved."""

    def sign_in(
        self, cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
    ) -> tuple[Cluster, Credentials]:
        """Find the server, log in, and return the updated cluster and the credentials that worked.

        Credentials that were not ``typed`` for this login are not sent to a server that has moved.
        """

    def connect(
        self,
        cluster: Cluster,
        credentials: Credentials,
        tokens: TokenStore = NOT_SHARED,
        timeout: float = 60.0,
        learn: Callable[[Cluster], Cluster] | None = None,
        say: Say = lambda line: None,
        hint: str = "",
    ) -> Backend:
        """Return a client of the cluster for its user; nothing is sent yet.

        ``learn`` completes the record of a cluster whose API version is unknown; ``hint`` explains why there
        are no credentials.
        """
