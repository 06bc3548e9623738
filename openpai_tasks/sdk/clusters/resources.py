"""Resources, queues and load of clusters; several clusters are asked in parallel."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from openpai_tasks.backends.base import Amount, Backend, Say, VirtualCluster
from openpai_tasks.backends.kinds import KINDS
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import FINAL, RUNNING, STOPPING, WAITING
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import LOCAL, is_embedded

AT_ONCE = 500  # jobs per request
UNFINISHED = ",".join(sorted((RUNNING, STOPPING, WAITING)))


@dataclass(frozen=True)
class Resources:
    """One virtual cluster; or a cluster that did not answer, with the ``problem``.

    What is total is usable or unavailable: on nodes that are down, or GPUs that others use.
    """

    cluster: str
    virtual_cluster: str = ""
    gpus_used: Amount = None
    gpus_usable: Amount = None
    gpus_unavailable: Amount = None
    gpus_total: Amount = None
    vcores_used: Amount = None
    vcores_usable: Amount = None
    vcores_unavailable: Amount = None
    vcores_total: Amount = None
    memory_mb_used: Amount = None
    memory_mb_usable: Amount = None
    memory_mb_unavailable: Amount = None
    memory_mb_total: Amount = None
    gpu_types: str = ""
    free_gpus: str = ""
    taken_gpus: str = ""
    problem: str = ""

    @property
    def gpus(self) -> str:
        types = f" ({self.gpu_types})" if self.gpu_types else ""
        return f"{_share(self.gpus_used, self.gpus_usable)}{types}"

    @property
    def vcores(self) -> str:
        return _share(self.vcores_used, self.vcores_usable)

    @property
    def memory_mb(self) -> str:
        return _share(self.memory_mb_used, self.memory_mb_usable)

    @property
    def unavailable(self) -> str:
        """Return the resources that nobody can have now, and who uses such GPUs; empty if there are none."""
        amounts = (self.gpus_unavailable, self.vcores_unavailable, self.memory_mb_unavailable)
        words = zip(amounts, ("GPU" if self.gpus_unavailable == 1 else "GPUs", "vCores", "MB"), strict=True)
        found = ", ".join(f"{amount:.10g} {word}" for amount, word in words if amount)
        return f"{found} ({self.taken_gpus})" if self.taken_gpus else found


def list_resources(settings: Settings, alias: str | None, say: Say) -> list[Resources]:
    """Return the resources of the named cluster, or of all; a cluster that fails is a row with the reason."""
    book = clusters.open_registry(settings)
    if alias:
        book.get(alias)
        return cluster_resources(clusters.connect(settings, alias, say))
    known = [cluster.alias for cluster in book.clusters() if cluster.kind in KINDS]
    connect = {one: partial(clusters.connect, settings, one, say) for one in (LOCAL, *known)}
    return resources_of(settings, connect)


def resources_of(settings: Settings, connect: Mapping[str, Callable[[], Backend]]) -> list[Resources]:
    """Return the resources of these clusters, by alias; one that fails is a row with the reason."""
    rows = map_parallel(
        lambda alias: _row(alias, connect[alias]),
        list(connect),
        clusters.time_limit(settings),
        lambda alias: [Resources(alias, problem=clusters.timeout_message(settings))],
    )
    return [row for found in rows for row in found]


def _row(alias: str, connect: Callable[[], Backend]) -> list[Resources]:
    if is_embedded(alias) and not embedded.running():
        return [Resources(LOCAL, problem="not running; it starts with the first job")]
    try:
        return cluster_resources(connect())
    except PaiError as err:
        return [Resources(alias, problem=str(err))]


def cluster_resources(client: Backend) -> list[Resources]:
    """Return the virtual clusters that the user may use; all if that is not known."""
    found = client.virtual_clusters()
    granted = [name for name in client.cluster.virtual_clusters if name in found] or list(found)
    return [_resources(client, name, found[name]) for name in granted]


def _resources(client: Backend, name: str, found: VirtualCluster) -> Resources:
    columns = {"gpus": "gpu", "vcores": "cpu", "memory_mb": "memoryMB"}
    amounts: dict[str, Any] = {
        f"{column}_{part}": getattr(found.capacity(kind), part)
        for column, kind in columns.items()
        for part in ("used", "usable", "unavailable", "total")
    }
    usable = found.capacity("gpu").usable
    names = client.gpu_type_names(name) if usable and not found.gpu_types else ()
    counts = {names[0]: usable} if usable and len(names) == 1 else found.gpu_types
    types = _types(counts) or ", ".join(names)
    taken, free = ", ".join(found.taken_gpus), _free_gpus(found, counts, types)
    alias = client.cluster.alias
    return Resources(alias, name, **amounts, gpu_types=types, free_gpus=free, taken_gpus=taken)


def _free_gpus(found: VirtualCluster, types: Mapping[str, int | float], words: str) -> str:
    """Return the free GPUs by type, such as "3 of 8 A100"; of all types if the cluster does not know more."""
    gpus, free = found.capacity("gpu"), dict(found.free_gpus)
    if gpus.usable and gpus.used is not None and not free:
        left = max(0, gpus.usable - gpus.used)
        if len(types) != 1:
            return f"{left:.10g} of {gpus.usable:.10g}{f' ({words})' if words else ''}"
        free = dict.fromkeys(types, left)
    return ", ".join(f"{free[kind]:.10g} of {types[kind]:.10g} {kind}" for kind in free if kind in types)


def _types(types: Mapping[str, int | float]) -> str:
    return ", ".join(f"{count:.10g} {kind}" for kind, count in types.items())


def _share(used: Amount, total: Amount) -> str:
    if used is None and total is None:
        return ""
    return "/".join("?" if amount is None else f"{amount:.10g}" for amount in (used, total))


# Whether clusters answer


@dataclass(frozen=True)
class ClusterState:
    """What a cluster answered, or why it did not."""

    alias: str
    user: str = ""
    product: str = ""
    running: int | None = None
    waiting: int | None = None
    gpus_used: Amount = None
    gpus_usable: Amount = None
    problem: str = ""
    is_stopped: bool = False
    """Whether it is the embedded cluster, which starts when it is needed."""


def ask_clusters(connect: Mapping[str, Callable[[], Backend]], seconds: float) -> Iterator[ClusterState]:
    """Yield the state of each cluster as it answers, and at the end those that did not answer in time."""
    answers: queue.Queue[ClusterState] = queue.Queue()

    def ask(alias: str) -> None:
        answers.put(_state(alias, connect[alias]))

    for alias in connect:  # daemons, as the end of the program would wait for other threads
        threading.Thread(target=ask, args=(alias,), daemon=True).start()
    limit, missing = time.monotonic() + seconds, set(connect)
    while missing:
        try:
            state = answers.get(timeout=max(0.0, limit - time.monotonic()))
        except queue.Empty:
            break
        missing.discard(state.alias)
        yield state
    for alias in sorted(missing):
        yield ClusterState(alias, problem=f"no answer within {seconds:g} s")


def _state(alias: str, connect: Callable[[], Backend]) -> ClusterState:
    """Ask one cluster; never start the embedded one."""
    if is_embedded(alias) and not embedded.embedded_uri():
        return ClusterState(alias, is_stopped=True)
    try:
        client = connect()
        jobs = client.count_jobs(RUNNING, WAITING)
        gpus = [found.capacity("gpu") for found in client.virtual_clusters().values()]
    except PaiError as err:
        return ClusterState(alias, problem=str(err))
    return ClusterState(
        alias,
        client.user,
        client.product,
        jobs[RUNNING],
        jobs[WAITING],
        sum(one.used or 0 for one in gpus),
        sum(one.usable or 0 for one in gpus),
    )


# Jobs of all users


def list_queue(client: Backend, limit: int, user: str | None = None) -> list[JobInfo]:
    """Return the unfinished jobs of a user or of all, oldest first."""
    return client.jobs(username=user, state=UNFINISHED, order="submissionTime,ASC", limit=limit)


def list_recent(client: Backend, since: int, limit: int, user: str | None = None) -> list[JobInfo]:
    """Return the jobs of a user or of all that ended since a moment (ms), latest first, at most ``limit``."""
    found: list[JobInfo] = []
    states = ",".join(sorted(FINAL))
    while len(found) < limit:
        size = min(AT_ONCE, limit - len(found))
        rows = client.jobs(
            username=user, state=states, order="completionTime,DESC", offset=len(found), limit=size
        )
        recent = [job for job in rows if job.completed is not None and job.completed >= since]
        found += recent
        if len(recent) < size:
            break
    return found


def jobs_over_time(
    jobs: Iterable[JobInfo], start: int, end: int, points: int, amount: Callable[[JobInfo], float]
) -> list[float]:
    """Return the average amount of running jobs in each of ``points`` equal parts of a time span (ms)."""
    step = (end - start) / points
    totals = [0.0] * points
    for job in jobs:
        until = job.completed if job.final else end
        if job.launched is None or until is None:
            continue
        begun, ended = max(job.launched, start), min(until, end)
        weight = amount(job) if ended > begun else 0.0
        if not weight:
            continue
        for part in range(int((begun - start) / step), min(points, int((ended - start) / step) + 1)):
            inside = min(ended, start + (part + 1) * step) - max(begun, start + part * step)
            totals[part] += weight * max(0.0, inside) / step
    return totals
