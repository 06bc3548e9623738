"""Total and used resources of the clusters, per virtual cluster; all clusters are asked in parallel."""

from __future__ import annotations

from typing import Any

from openpai_tasks.backends.base import Amount, Backend, Say, VirtualCluster
from openpai_tasks.backends.kinds import KINDS
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import LOCAL, Cluster


@dataclass(frozen=True)
class Resources:
    """One virtual cluster; or a cluster that did not answer, with the ``problem``.

    What is total is usable or, on nodes that are down, unavailable.
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
        """Return the resources on nodes that are down; empty if all nodes work."""
        amounts = (self.gpus_unavailable, self.vcores_unavailable, self.memory_mb_unavailable)
        words = zip(amounts, ("GPUs", "vCores", "MB"), strict=True)
        return ", ".join(f"{amount:.10g} {word}" for amount, word in words if amount)


def list_resources(settings: Settings, alias: str | None, say: Say) -> list[Resources]:
    """Return the resources of the named cluster, or of all; a cluster that fails is a row with the reason."""
    book = clusters.open_registry(settings)
    if alias:
        book.get(alias)
        return _of(settings, alias, say)
    own = Cluster(LOCAL, "")
    known = [cluster for cluster in book.clusters() if cluster.kind in KINDS]
    rows = map_parallel(
        lambda cluster: _row(settings, cluster, say),
        [own, *known],
        clusters.longest(settings),
        lambda cluster: [Resources(cluster.alias, problem=clusters.too_late(settings))],
    )
    return [row for found in rows for row in found]


def _row(settings: Settings, cluster: Cluster, say: Say) -> list[Resources]:
    if cluster.is_embedded and not embedded.running():
        return [Resources(LOCAL, problem="not running; it starts with the first job")]
    try:
        return _of(settings, cluster.alias, say)
    except PaiError as err:
        return [Resources(cluster.alias, problem=str(err))]


def _of(settings: Settings, alias: str, say: Say) -> list[Resources]:
    return cluster_resources(clusters.connect(settings, alias, say))


def cluster_resources(client: Backend) -> list[Resources]:
    """Return the virtual clusters that the user may use; all if that is not known."""
    found = client.virtual_clusters()
    granted = [name for name in client.cluster.virtual_clusters if name in found] or list(found)
    return [_resources(client.cluster.alias, name, found[name]) for name in granted]


def _resources(alias: str, name: str, found: VirtualCluster) -> Resources:
    columns = {"gpus": "gpu", "vcores": "cpu", "memory_mb": "memoryMB"}
    amounts: dict[str, Any] = {
        f"{column}_{part}": getattr(found.capacity(kind), part)
        for column, kind in columns.items()
        for part in ("used", "usable", "unavailable", "total")
    }
    types = ", ".join(f"{count:.10g} {kind}" for kind, count in found.gpu_types.items())
    return Resources(cluster=alias, virtual_cluster=name, **amounts, gpu_types=types)


def _share(used: Amount, total: Amount) -> str:
    if used is None and total is None:
        return ""
    return "/".join("?" if amount is None else f"{amount:.10g}" for amount in (used, total))
