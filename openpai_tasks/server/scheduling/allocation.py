"""What jobs need and whether there is room for it: plain arithmetic over one machine.

A job starts when its need fits both its virtual cluster's share and the machine. One that could
never fit starts once nothing else is running where it does not fit (or, with ``enforce``, never).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openpai_tasks.server.engines.machine import Resources

if TYPE_CHECKING:
    from openpai_tasks.protocol import JobDocument, TaskRole

NOTHING = Resources()
_MOST = 10**9  # more than any machine has, and few enough to be added up in a database


def task_demand(role: TaskRole) -> Resources:
    """What one instance needs; the protocol lets absurd numbers pass: those below 0 ask for nothing."""
    return Resources(*(min(max(0, number), _MOST) for number in (role.cpu, role.memory_mb, role.gpu)))


def demand(document: JobDocument) -> Resources:
    """What all instances need at once."""
    return sum((task_demand(role) * role.instances for role in document.roles), NOTHING)


@dataclass(frozen=True)
class Answer:
    """Whether to start now, and in words why not, or what is unusual about it."""

    start: bool
    why: str = ""
    hopeless: bool = False  # it can never start as things are, so nobody need wait behind it
    machine_full: bool = False  # its share has room, the machine has not: whoever comes later must not pass
    look_after: float | None = None  # seconds, where nobody tells when there is room


class Room:
    """What is left of the machine and of each virtual cluster's share, counted down as tasks start."""

    def __init__(
        self,
        machine: Resources,
        clusters: Mapping[str, Resources],
        used: Mapping[str, Resources],
        enforce: bool = False,
    ) -> None:
        self._machine = machine
        self._clusters = clusters
        self._used = dict(used)
        self._enforce = enforce

    def take(self, cluster: str, need: Resources) -> None:
        self._used[cluster] = self._used.get(cluster, NOTHING) + need

    def judge(self, cluster: str, need: Resources) -> Answer:
        share = self._clusters.get(cluster, NOTHING)
        free_share = share - self._used.get(cluster, NOTHING)
        free_machine = self._machine - sum(self._used.values(), NOTHING)
        if not need.fits(self._machine):
            return self._judge_giant(need, f"this machine ({self._machine})", self._machine - free_machine)
        if not need.fits(share):
            place = f"virtual cluster {cluster} ({share})"
            answer = self._judge_giant(need, place, self._used.get(cluster, NOTHING))
            if not answer.start:
                return answer
        else:
            answer = Answer(True)
            if _exceeded(free_share) or not need.fits(free_share):
                return Answer(False, _short(need, free_share, share, f"virtual cluster {cluster}"))
        if _exceeded(free_machine) or not need.fits(free_machine):
            return Answer(False, _short(need, free_machine, self._machine, "this machine"), machine_full=True)
        return answer

    def _judge_giant(self, need: Resources, place: str, used: Resources) -> Answer:
        if self._enforce:
            return Answer(False, f"needs {need}, more than {place} has: it cannot start", hopeless=True)
        if used != NOTHING:
            why = f"needs {need}, more than {place} has: it waits until it can run alone"
            return Answer(False, why, machine_full=place.startswith("this machine"))
        return Answer(True, f"needs {need}, more than {place} has: it runs alone")


class GpuPool:
    """Which GPUs are whose."""

    def __init__(self, indices: Iterable[int], held: Iterable[int]) -> None:
        self._all = tuple(indices)
        self._held = list(held)

    def take(self, count: int) -> tuple[int, ...]:
        """The least used ones; a task that wants more than there are gets all of them."""
        chosen = sorted(self._all, key=lambda index: (self._held.count(index), index))[: max(0, count)]
        self._held.extend(chosen)
        return tuple(sorted(chosen))


def _exceeded(free: Resources) -> bool:
    """Someone too large for it is running there, alone."""
    return min(free.cpu, free.memory_mb, free.gpu) < 0


def _short(need: Resources, free: Resources, total: Resources, place: str) -> str:
    left = Resources(max(0, free.cpu), max(0, free.memory_mb), max(0, free.gpu))
    return f"needs {need}; free in {place} are {left} of {total}"
