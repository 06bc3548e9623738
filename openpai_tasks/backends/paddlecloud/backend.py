"""The backend of PaddleCloud: the operations of every cluster, on the calls of its client."""

from __future__ import annotations

import functools
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from openpai_tasks import protocol
from openpai_tasks.backends import listing
from openpai_tasks.backends.base import (
    Capabilities,
    Capacity,
    ClusterDescription,
    ClusterNode,
    ClusterSample,
    ClusterStorage,
    Document,
    ExitMeaning,
    JobFilter,
    RemovedJob,
    RemovedOrphan,
    TaskLog,
    TaskUsage,
    UsageReport,
    VirtualCluster,
    unsupported,
)
from openpai_tasks.backends.paddlecloud import jobs, packages
from openpai_tasks.backends.paddlecloud.answers import PSERVER, TrainerSet
from openpai_tasks.backends.paddlecloud.client import JOBS, STORAGE, WORKERS, PaddleClient
from openpai_tasks.backends.paddlecloud.job_records import JobRecord, JobRecords
from openpai_tasks.backends.paddlecloud.log_reader import PaddleLog
from openpai_tasks.errors import ApiError, Conflict, NotFound, ProtocolError
from openpai_tasks.protocol import JobDocument
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.protocol.models import EventInfo, JobInfo, SshInfo, TaskInfo
from openpai_tasks.protocol.quantities import parse_quantity

if TYPE_CHECKING:
    from typing_extensions import Unpack

RESOURCES = {
    "cpu": ("requests.cpu", "cpu"),
    "memoryMB": ("requests.memory", "memory"),
    "gpu": ("alpha.kubernetes.io/nvidia-gpu", "requests.nvidia.com/gpu"),
}
"""Resources of a job document, and their names in quotas of Kubernetes."""
COMMAND_FAILED = ExitMeaning("the command failed", "look at its output: PaddleCloud shows its own exit code")
EXITS = {
    137: ExitMeaning(
        "the container was killed, most likely as it used more memory than it asked for",
        "ask for more memory (`--memoryMB`)",
    )
}
MB = 1 << 20


class PaddleBackend(PaddleClient):
    """A connection to a datacenter as one user."""

    # The cluster

    @property
    def product(self) -> str:
        return self.label

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def namespace(self) -> str:
        """The namespace of the user's jobs, used as the virtual cluster."""
        return re.sub(r"[@._]", "-", self.user)

    def describe(self) -> ClusterDescription:
        return ClusterDescription(version=self.cluster.generation, launcher="kubernetes", login="basic")

    def authenticate(self) -> str:
        self.token_user()
        return self.token()

    def virtual_clusters(self) -> dict[str, VirtualCluster]:
        """Return the quota of the user; where there are several, the smallest limit counts."""
        quotas = self.quotas()
        found = {}
        for resource, names in RESOURCES.items():
            parts = [
                (parse_quantity(quota.hard[name]), parse_quantity(quota.used.get(name, "")))
                for quota in quotas
                for name in names
                if name in quota.hard
            ]
            limits = [(hard, used) for hard, used in parts if hard is not None]
            if limits:
                hard, used = min(limits, key=lambda pair: pair[0])
                found[resource] = _capacity(resource, hard, used)
        return {self.namespace: VirtualCluster(found)} if quotas else {}

    def nodes(self) -> tuple[ClusterNode, ...]:
        return ()

    def storages(self, default: bool = False) -> tuple[ClusterStorage, ...]:
        mount_point = f"$PAI_MOUNT_ROOT{MOUNTS}{STORAGE}"  # nothing is mounted: see packages.py
        home = f"/home/{self.user}"
        return (ClusterStorage(STORAGE, STORAGE, default=True, home=home, mount_point=mount_point),)

    def storage(self, name: str) -> ClusterStorage:
        (found,) = self.storages()
        if name != found.name:
            raise NotFound(f"{self._where()} has no storage {name!r}, only {found.name!r}", 404)
        data = {"endpoint": self.cluster.rest, "datacenter": self.datacenter, "token": self.token()}
        return ClusterStorage(found.name, found.type, data, default=True, home=found.home)

    # Jobs

    @functools.cached_property
    def _records(self) -> JobRecords:
        return JobRecords(self)

    def check_document(self, document: Document) -> None:
        self._checked_document(document)

    def submit(
        self, document: Document, environment: Mapping[str, str] | None = None, hooks: str = ""
    ) -> tuple[str, ...]:
        checked = self._checked_document(document)
        name, mark = checked.name, secrets.token_hex(6)
        if self._find(name) is not None:
            raise Conflict(f"{self._where()} has a job named {name!r} already; choose another name", 409)
        made = packages.package(checked, self.user, mark)
        self._records.upload(made, mark)
        try:
            notices = self.submit_training(made.request)
        except ApiError as err:
            if 300 <= err.status < 500:
                self._records.withdraw(made, mark)
            raise
        self._records.accept(name, mark)
        return notices

    def submit_url(self, document: Document) -> str:
        self._require_v2(document)
        return self.cluster.rest + JOBS

    def jobs(self, **query: Unpack[JobFilter]) -> list[JobInfo]:
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        found, records, pods = self.trainer_sets(), self._records.accepted(), self.workers()
        listed = [
            jobs.job_info(self.user, self.namespace, one, jobs.pods_of(one.job, pods), records.get(one.job))
            for one in found
        ]
        gone = [record for name, record in records.items() if name not in {one.job for one in found}]
        kept = self._records.kept() if gone else set()
        killed = [jobs.killed_job(self.user, self.namespace, one) for one in gone if one.name in kept]
        return listing.select([*listed, *killed], asked)

    def count_jobs(self, *states: str, **query: Unpack[JobFilter]) -> dict[str, int]:
        found = Counter(job.state for job in self.jobs(**query))
        return {state: found[state] for state in states}

    def job_list_version(self, **query: Unpack[JobFilter]) -> str:
        return ""

    def gpu_type_names(self, virtual_cluster: str) -> tuple[str, ...]:
        return ()

    def cluster_usage(self, seconds: int, points: int) -> tuple[ClusterSample, ...]:
        raise unsupported(self, "usage_history")

    def usage_report(self, by: str, seconds: int, user: str, points: int) -> UsageReport:
        raise unsupported(self, "usage_report")

    def printed_results(self, jobs: Sequence[JobInfo]) -> dict[str, dict[str, Any]]:
        return {}

    def task_usage(self, job: JobInfo, task: TaskInfo, points: int) -> TaskUsage:
        raise unsupported(self, "usage_history")

    def clean_jobs(self, keep: str, preview: bool) -> list[RemovedJob]:
        raise unsupported(self, "job_removal")

    def clean_orphans(self, preview: bool) -> list[RemovedOrphan]:
        raise unsupported(self, "job_removal")

    def job(self, key: str) -> JobInfo:
        name = self._name(key)
        found = self._find(name)
        if found is None:
            raise NotFound(f"{self._where()} has no job {name!r}", 404)
        trainers, record = found
        document = self._document(record) if record else None
        if trainers is None:
            assert record is not None
            return jobs.killed_job(self.user, self.namespace, record, document)
        pods = jobs.pods_of(name, self.workers(name, "all"))
        return jobs.job_info(self.user, self.namespace, trainers, pods, record, document)

    def job_attempt(self, key: str, attempt: int) -> JobInfo:
        raise unsupported(self, "attempts")

    def job_document(self, key: str) -> Any:
        name = self._name(key)
        found = self._find(name)
        if found is None or found[1] is None:
            raise NotFound(f"{self._where()} has no document of job {name!r}", 404)
        return protocol.read(self._records.document(found[1])).value

    def job_events(self, key: str) -> tuple[EventInfo, ...]:
        raise unsupported(self, "events")

    def job_page(self, job: JobInfo) -> str:
        return f"{self.cluster.rest}{WORKERS}?jobname={quote(job.name)}"

    def stop_job(self, key: str) -> None:
        """Kill the job unless it has ended: the server would forget it, and we would show it as killed."""
        if not self.job(key).final:
            self.kill(self._name(key))

    def move_first(self, key: str) -> None:
        raise unsupported(self, "queue_moves")

    def add_tag(self, key: str, tag: str) -> None:
        raise unsupported(self, "tags")

    def explain_exit(self, code: int) -> ExitMeaning | None:
        return EXITS.get(code) or (COMMAND_FAILED if 0 < code < 256 else None)

    # Tasks

    def log_locations(self, key: str, attempt: int, role: str, index: int, retry: int) -> dict[str, str]:
        return {}

    def open_log(self, job: JobInfo, task: TaskInfo, stream: str, retries: bool = True) -> TaskLog:
        if stream != "all":
            raise unsupported(self, "separate_streams")
        is_known = bool(task.container) or task.role != PSERVER  # pods of killed jobs are not listed
        has_started = not task.container or task.launched is not None
        return PaddleLog(self, job.name, task.container, task.index, has_started, is_known)

    def ssh_endpoints(self, job: JobInfo) -> dict[str, SshInfo]:
        raise unsupported(self, "ssh")

    def job_private_key(self, job: JobInfo) -> str:
        raise unsupported(self, "job_keys")

    # Details

    def _require_v2(self, document: Document) -> str:
        """Return the text of a version 2 document; raise for any other."""
        if not isinstance(document, str):
            raise unsupported(self, "v1_documents")
        return document

    def _checked_document(self, document: Document) -> JobDocument:
        where = f"cluster {self.cluster.alias!r} ({self.product})"
        return packages.check(self._require_v2(document), where, self.namespace)

    def _name(self, key: str) -> str:
        """Return the name in a key; jobs of other users are not shown."""
        owner, _, name = key.rpartition("~")
        if owner not in ("", self.user):
            raise NotFound(f"{self._where()} shows only your own jobs, not those of {owner!r}", 404)
        return name

    def _find(self, name: str) -> tuple[TrainerSet | None, JobRecord | None] | None:
        """Return what the cluster lists of a job, and the record of its submission."""
        trainers = next((one for one in self.trainer_sets() if one.job == name), None)
        if trainers is not None:
            return trainers, self._records.of_listed(name)
        record = self._records.accepted().get(name)
        return (None, record) if record and name in self._records.kept() else None

    def _document(self, record: JobRecord) -> JobDocument | None:
        """Return the document of a job without its secrets; None if it is missing or damaged."""
        try:
            value = protocol.read(self._records.document(record)).value
            return protocol.validate(
                protocol.dump({key: part for key, part in value.items() if key != "secrets"})
            )
        except (NotFound, ProtocolError):
            return None


def _capacity(resource: str, hard: float, used: float | None) -> Capacity:
    unit = MB if resource == "memoryMB" else 1
    limit = int(hard / unit) if float(hard / unit).is_integer() else hard / unit
    return Capacity(None if used is None else round(used / unit, 3), limit, limit)
