"""Decide whether a job may start: plain arithmetic with the free resources.

A job starts when its need fits both its virtual cluster's share and the machine. A job that never fits starts
once nothing else is running where it does not fit (or, with ``enforce``, never).
"""

from __future__ import annotations

from collections.abc import Mapping

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.resources import NOTHING, ResourceAmount


@dataclass(frozen=True)
class StartDecision:
    """Whether to start now; ``why`` is the reason not to, or what is unusual about the start.

    It is empty if the reason is not known yet.
    """

    start: bool
    why: str = ""
    never_starts: bool = False  # it can never start, so later jobs need not wait behind it
    machine_full: bool = False  # its share has room but the machine has not: later jobs must not overtake it
    retry_after: float | None = None  # seconds, if nothing signals when there is room


class FreeResources:
    """The free resources of the machine and of each virtual cluster's share, reduced as tasks start.

    An engine that schedules by itself has no ``machine``, and everything starts.
    """

    def __init__(
        self,
        machine: ResourceAmount | None,
        clusters: Mapping[str, ResourceAmount],
        used: Mapping[str, ResourceAmount],
        enforce: bool = False,
    ) -> None:
        self._machine = machine
        self._clusters = clusters
        self._used = dict(used)
        self._enforce = enforce

    def take(self, cluster: str, need: ResourceAmount) -> None:
        self._used[cluster] = self._used.get(cluster, NOTHING) + need

    def judge(self, cluster: str, need: ResourceAmount) -> StartDecision:
        if self._machine is None:
            return StartDecision(True)
        share = self._clusters.get(cluster, NOTHING)
        free_share = share - self._used.get(cluster, NOTHING)
        used = sum(self._used.values(), NOTHING)
        free_machine = self._machine - used
        if not need.fits(self._machine):
            return self._judge_oversized(need, f"this machine ({self._machine})", used)
        if not need.fits(share):
            place = f"virtual cluster {cluster} ({share})"
            answer = self._judge_oversized(need, place, self._used.get(cluster, NOTHING))
            if not answer.start:
                return answer
        else:
            answer = StartDecision(True)
            if _is_exceeded(free_share) or not need.fits(free_share):
                return StartDecision(False, _shortage(need, free_share, share, f"virtual cluster {cluster}"))
        if _is_exceeded(free_machine) or not need.fits(free_machine):
            return StartDecision(
                False, _shortage(need, free_machine, self._machine, "this machine"), machine_full=True
            )
        return answer

    def _judge_oversized(self, need: ResourceAmount, place: str, used: ResourceAmount) -> StartDecision:
        if self._enforce:
            return StartDecision(
                False, f"needs {need}, more than {place} has: it cannot start", never_starts=True
            )
        if used != NOTHING:
            why = f"needs {need}, more than {place} has: it waits until it can run alone"
            return StartDecision(False, why, machine_full=place.startswith("this machine"))
        return StartDecision(True, f"needs {need}, more than {place} has: it runs alone")


def _is_exceeded(free: ResourceAmount) -> bool:
    """Whether a task that is too large is running there alone."""
    return min(free.cpu, free.memory_mb, free.gpu) < 0


def _shortage(need: ResourceAmount, free: ResourceAmount, total: ResourceAmount, place: str) -> str:
    left = ResourceAmount(max(0, free.cpu), max(0, free.memory_mb), max(0, free.gpu))
    return f"needs {need}; free in {place} are {left} of {total}"
