"""What the clusters have and what of it is taken, per virtual cluster, all asked at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openpai_tasks.config import Settings
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol.fields import mapping, number
from openpai_tasks.registry import LOCAL, Cluster
from openpai_tasks.sdk import clusters, local
from openpai_tasks.sdk.abreast import abreast
from openpai_tasks.sdk.signin import Say

Amount = int | float | None


@dataclass(frozen=True)
class Resources:
    """One virtual cluster; or a cluster that gave no answer, with the ``problem``."""

    cluster: str
    virtual_cluster: str = ""
    gpus_used: Amount = None
    gpus_total: Amount = None
    vcores_used: Amount = None
    vcores_total: Amount = None
    memory_mb_used: Amount = None
    memory_mb_total: Amount = None
    problem: str = ""

    @property
    def gpus(self) -> str:
        return _share(self.gpus_used, self.gpus_total)

    @property
    def vcores(self) -> str:
        return _share(self.vcores_used, self.vcores_total)

    @property
    def memory_mb(self) -> str:
        return _share(self.memory_mb_used, self.memory_mb_total)


def resources(settings: Settings, alias: str | None, say: Say) -> list[Resources]:
    """Of the cluster named, or of all; a dead one is a row that says why."""
    book = clusters.registry(settings)
    if alias:
        book.get(alias)
        return _of(settings, alias, say)
    own = Cluster(LOCAL, "")
    known = [cluster for cluster in book.clusters() if cluster.kind == "openpai"]
    rows = abreast(
        lambda cluster: _row(settings, cluster, say),
        [own, *known],
        clusters.longest(settings),
        lambda cluster: [Resources(cluster.alias, problem=clusters.too_late(settings))],
    )
    return [row for found in rows for row in found]


def _row(settings: Settings, cluster: Cluster, say: Say) -> list[Resources]:
    if cluster.alias == LOCAL and not local.running():
        return [Resources(LOCAL, problem="not running; it starts with the first job")]
    try:
        return _of(settings, cluster.alias, say)
    except PaiError as err:
        return [Resources(cluster.alias, problem=str(err))]


def _of(settings: Settings, alias: str, say: Say) -> list[Resources]:
    """The virtual clusters that the user may use; all where that is not known."""
    client = clusters.connect(settings, alias, say)
    found = client.virtual_clusters()
    granted = [name for name in client.cluster.virtual_clusters if name in found] or list(found)
    return [_resources(alias, name, found[name]) for name in granted]


def _resources(alias: str, name: str, record: dict[str, Any]) -> Resources:
    used, total = (mapping(record.get(key)) for key in ("resourcesUsed", "resourcesTotal"))
    return Resources(
        cluster=alias,
        virtual_cluster=name,
        gpus_used=_amount(used, "GPUs", "gpu"),
        gpus_total=_amount(total, "GPUs", "gpu"),
        vcores_used=_amount(used, "vCores", "cpu"),
        vcores_total=_amount(total, "vCores", "cpu"),
        memory_mb_used=_amount(used, "memory"),
        memory_mb_total=_amount(total, "memory"),
    )


def _amount(side: dict[str, Any], *names: str) -> Amount:
    """Generations call it differently."""
    return next((found for name in names if (found := number(side.get(name))) is not None), None)


def _share(used: Amount, total: Amount) -> str:
    if used is None and total is None:
        return ""
    return "/".join("?" if amount is None else f"{amount:.10g}" for amount in (used, total))
