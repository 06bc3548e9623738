"""Gangs: tasks that start together, whose pods are created only if all can be placed.

Pods of a gang that Kubernetes cannot place as a whole are deleted again, so that two jobs that have started
by half never wait for each other. No task of a gang begins before all of its pods run, so nothing is lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError, path, reading
from openpai_tasks.server.engines.kubernetes.capacity import list_if_allowed, quantity, usable_nodes
from openpai_tasks.server.engines.kubernetes.pod_state import PodState, read_time
from openpai_tasks.server.engines.kubernetes.site import KubeSite

STUCK_SECONDS = 30.0  # that some pods of a gang may wait for a node while others have one
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0  # seconds before a gang that was withdrawn is tried again
LOOKS = (1.0, 2.0, 5.0, 10.0)  # seconds between two looks at a cluster that is full
NEW_SECONDS = 30.0  # that a pod without a node counts as if it had one

Amounts = Mapping[str, float]
"""Amounts by the name of the resource, as Kubernetes writes it."""


@dataclass(frozen=True)
class PodNeed:
    """What a pod asks for."""

    amounts: Amounts
    labels: Mapping[str, str]  # of its node


class FreeNode(NamedTuple):
    labels: Mapping[str, str]
    free: dict[str, float]


def pod_need(spec: Mapping[str, Any]) -> PodNeed:
    """Return what the spec of a pod asks for: the sum of its containers, or what a first one needs."""
    first = [_requests(one) for one in spec.get("initContainers") or ()]
    found = _sum(_requests(one) for one in spec["containers"])
    for one in first:
        found = {name: max(found.get(name, 0), one.get(name, 0)) for name in {**found, **one}}
    found = _sum([found, {name: quantity(text) for name, text in (spec.get("overhead") or {}).items()}])
    return PodNeed({**found, "pods": 1}, spec.get("nodeSelector") or {})


def _requests(container: Mapping[str, Any]) -> dict[str, float]:
    wanted = container.get("resources") or {}
    both = {**(wanted.get("limits") or {}), **(wanted.get("requests") or {})}
    return {name: quantity(text) for name, text in both.items()}


def _sum(amounts: Iterable[Amounts]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in amounts:
        for name, value in one.items():
            found[name] = found.get(name, 0) + value
    return found


def place_all(nodes: Sequence[FreeNode], needs: Iterable[PodNeed]) -> PodNeed | None:
    """Take what pods need from the nodes, the largest first; return the first that fits nowhere."""
    for need in sorted(needs, key=lambda need: _size(need.amounts), reverse=True):
        node = next((node for node in nodes if _fits(node, need)), None)
        if node is None:
            return need
        _take(node, need)
    return None


def _take(node: FreeNode, need: PodNeed) -> None:
    for name, value in need.amounts.items():
        node.free[name] = node.free.get(name, 0) - value


def _size(amounts: Amounts) -> tuple[float, float, float]:
    rare = sum(value for name, value in amounts.items() if "/" in name)  # such as GPUs
    return rare, amounts.get("cpu", 0), amounts.get("memory", 0)


def _fits(node: FreeNode, need: PodNeed) -> bool:
    has_labels = all(node.labels.get(name) == value for name, value in need.labels.items())
    return has_labels and all(
        value <= node.free.get(name, 0) + 1e-6 for name, value in need.amounts.items() if value
    )


def over_quota(quotas: Iterable[Mapping[str, Any]], needs: Iterable[PodNeed]) -> str:
    """Return which quota of a namespace has too little left for these pods together; empty if none."""
    wanted = _sum(need.amounts for need in needs)
    wanted["secrets"] = wanted["pods"]
    for quota in quotas:
        if (quota.get("spec") or {}).get("scopes"):  # of other pods, perhaps
            continue
        status = quota.get("status") or {}
        for name, limit in (status.get("hard") or {}).items():
            left = quantity(limit) - quantity((status.get("used") or {}).get(name))
            for prefix in ("requests.", "limits.", "count/"):
                resource = name.removeprefix(prefix)
                if wanted.get(resource, 0) > left + 1e-6:
                    used = (
                        f"{resource} {_text(resource, wanted[resource])} of {_text(resource, max(left, 0))}"
                    )
                    return f"the quota {quota['metadata']['name']} leaves too little ({used})"
    return ""


def _text(resource: str, value: float) -> str:
    return f"{value / (1 << 20):.0f} MB" if resource == "memory" else f"{value:g}"


def describe(need: PodNeed) -> str:
    """Return the amounts that a user has asked for."""
    known = {"cpu": "CPUs", "memory": "memory"}
    found = {known.get(name, name): (name, value) for name, value in need.amounts.items() if name != "pods"}
    return ", ".join(f"{label} {_text(name, value)}" for label, (name, value) in found.items() if value)


class Member(Protocol):
    """A task of a gang; its driver."""

    launch: Launch
    namespace: str
    since: int

    @property
    def pod(self) -> PodState | None: ...
    @property
    def is_created(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    def need(self) -> PodNeed: ...
    def note_wait(self, why: str) -> None: ...
    def begin_again(self) -> None: ...


class Gang:
    """Tasks that start together; ``admitted`` is set when their pods may be created."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.admitted = asyncio.Event()
        self.not_before = 0.0
        self.withdrawn = 0  # how often
        self._stuck_since = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether all pods have a node, or one of the tasks ends, so that it is not to start any more."""
        return any(one.is_ending for one in self.members) or all(
            one.is_created and one.pod and one.pod.is_scheduled for one in self.members
        )

    @property
    def has_pods(self) -> bool:
        """Whether it has pods, perhaps of a server that was killed before it noted them."""
        return any(one.is_created or one.pod for one in self.members)

    def is_stuck(self) -> bool:
        """Whether some pods have waited for a node for long, while others have one."""
        placed = [bool(one.pod and one.pod.is_scheduled) for one in self.members]
        if not self.admitted.is_set() or not any(placed) or self.is_settled:
            self._stuck_since = 0.0
            return False
        self._stuck_since = self._stuck_since or time.monotonic()
        return time.monotonic() > self._stuck_since + STUCK_SECONDS

    def withdraw(self) -> None:
        """Give up the pods, and try again after a pause of random length, which gets longer."""
        pause = min(FIRST_PAUSE * 2**self.withdrawn, LONGEST_PAUSE) * random.uniform(0.5, 1.5)
        self.withdrawn += 1
        self.not_before = time.monotonic() + pause
        waiting = next((one.pod for one in self.members if one.pod and not one.pod.is_scheduled), None)
        why = waiting.why_unscheduled if waiting else ""
        self._stuck_since = 0.0
        self.admitted.clear()
        for one in self.members:
            one.begin_again()
        self.note_wait(
            "its tasks could not be placed all at once, so none of them was started"
            + (f" ({why})" if why else "")
            + f"; they are tried again in {pause:.0f} s"
        )

    def note_wait(self, why: str) -> None:
        for one in self.members:
            one.note_wait(why)


class GangQueue:
    """Admits gangs, the oldest first, and withdraws those that are stuck."""

    def __init__(self, api: KubeApi, site: KubeSite) -> None:
        self._api, self._site = api, site
        self._gangs: list[Gang] = []
        self._looks = 0  # in a row at a full cluster
        self.changed = asyncio.Event()  # a pod has changed, so there may be room

    def add(self, gang: Gang) -> None:
        self._gangs.append(gang)
        self._looks = 0
        self.changed.set()

    async def run(self) -> None:
        """Admit and withdraw gangs until cancelled."""
        while True:
            self._gangs = [gang for gang in self._gangs if not gang.is_settled]
            for gang in self._gangs:
                if gang.has_pods:  # it was admitted before the server was restarted
                    gang.admitted.set()
            for gang in [gang for gang in self._gangs if gang.is_stuck()]:
                gang.withdraw()
            try:
                with reading():
                    await self._admit()
            except KubeError as err:
                for gang in self._waiting():
                    gang.note_wait(f"Kubernetes: {err}")
            self.changed.clear()
            await self._pause()

    async def _pause(self) -> None:
        if not self._gangs:
            await self.changed.wait()
            return
        await asyncio.sleep(LOOKS[0])  # so that many changes cost one look
        if all(gang.admitted.is_set() for gang in self._gangs):
            return
        rest = LOOKS[min(self._looks, len(LOOKS) - 1)] - LOOKS[0]
        if rest > 0:
            try:
                await asyncio.wait_for(self.changed.wait(), rest)
            except asyncio.TimeoutError:
                return

    def _waiting(self) -> list[Gang]:
        """Return the gangs to admit, the oldest first."""
        found = [one for one in self._gangs if not one.admitted.is_set()]
        return sorted(
            (one for one in found if one.not_before <= time.monotonic()),
            key=lambda gang: min(one.since for one in gang.members),
        )

    async def _admit(self) -> None:
        waiting = self._waiting()
        if not waiting:
            return
        known = await usable_nodes(self._api, self._site)
        nodes = await self._free_nodes(known, waiting) if known else []
        blocked: set[str] = set()  # namespaces in which an older gang waits
        for gang in waiting:
            namespace, needs = gang.members[0].namespace, [one.need() for one in gang.members]
            if namespace in blocked:
                gang.note_wait("waits for jobs that were submitted earlier")
                continue
            quotas = await list_if_allowed(self._api, path(namespace, "resourcequotas"))
            why = over_quota(quotas, needs)
            trial = [FreeNode(one.labels, dict(one.free)) for one in nodes]
            # A gang that is larger than the whole cluster is left to Kubernetes, which may add nodes.
            missing = None if why else place_all(trial, needs)
            if missing and not place_all([_free_node(one) for one in known], needs):
                why = f"no node has room for a task with {describe(missing)} beside the others"
            if why:
                gang.note_wait(f"waits until its {len(needs)} tasks can start together: {why}")
                blocked.add(namespace)
                continue
            nodes = trial
            self._looks = 0
            gang.note_wait("it is being created")
            gang.admitted.set()
        self._looks += bool(blocked)

    async def _free_nodes(
        self, known: Iterable[Mapping[str, Any]], waiting: Sequence[Gang]
    ) -> list[FreeNode]:
        """Return what is free on each node."""
        nodes = {one["metadata"]["name"]: _free_node(one) for one in known}
        pending: list[PodNeed] = []
        async for pod in self._pods({gang.members[0].namespace for gang in waiting}):
            need, name = pod_need(pod["spec"]), pod["spec"].get("nodeName", "")
            if name in nodes:
                _take(nodes[name], need)
            elif not name and _age(pod) < NEW_SECONDS:
                pending.append(need)
        pending += [
            one.need()
            for gang in self._gangs
            for one in gang.members
            if gang.admitted.is_set() and not one.is_created
        ]
        for need in pending:
            place_all(list(nodes.values()), [need])
        return list(nodes.values())

    async def _pods(self, namespaces: Iterable[str]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the pods that use nodes: all, or only those in our namespaces if we may not ask for all."""
        try:
            async for pod in self._list("/api/v1/pods"):
                yield pod
        except KubeError as err:
            if err.may_pass:
                raise
            for name in namespaces:
                async for pod in self._list(path(name, "pods")):
                    yield pod

    async def _list(self, where: str) -> AsyncGenerator[dict[str, Any], None]:
        async for page in self._api.pages(
            where, fieldSelector="status.phase!=Succeeded,status.phase!=Failed"
        ):
            for pod in page["items"]:
                yield pod


def _free_node(node: Mapping[str, Any]) -> FreeNode:
    amounts = node["status"].get("allocatable") or {}
    labels = node["metadata"].get("labels") or {}
    return FreeNode(labels, {name: quantity(text) for name, text in amounts.items()})


def _age(pod: Mapping[str, Any]) -> float:
    return time.time() - read_time(pod["metadata"]["creationTimestamp"]).timestamp()
