"""Whose job is next: users take turns, and so do the sweeps and the single jobs of a user.

The next turn belongs to whoever uses the smallest part of the machine or, among equals, has waited longest
for a turn. A high priority puts a job before the others of its user, a low one behind those of everybody.
Waiting raises a priority, so that every job starts in the end.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from openpai_tasks.protocol.document.policy import HIGHEST, NORMAL
from openpai_tasks.server.resources import NOTHING, ResourceAmount
from openpai_tasks.server.scheduling.queries import Party, SchedulerQueries, WaitingJob
from openpai_tasks.server.state.state import now

STEP_MS = 24 * 3600 * 1000  # of waiting, which raises a priority by one
PAGE = 20  # waiting jobs per query; often, only the first can start
MOST_PARTIES = 10_000  # whose last turn is remembered


class Turns:
    """What users and sweeps use of the machine, when they last had a turn, and who keeps a turn."""

    def __init__(self, queries: SchedulerQueries) -> None:
        self._queries = queries
        self._total: ResourceAmount | None = None
        self._used: dict[Party, ResourceAmount] = {}
        self._last: dict[Party, int] = {}
        self._count = 0
        self._kept: Mapping[
            Party, int
        ] = {}  # whose job waits for room -> how many virtual clusters it blocks

    def begin(self, total: ResourceAmount | None, used: Mapping[Party, ResourceAmount]) -> None:
        """Begin a pass of the scheduler; without ``total``, jobs are ordered by their submission."""
        self._total, self._used = total, {}
        for party, amount in used.items():
            self._use(party, amount)

    def in_order(self, heads: Iterable[WaitingJob], blocked: Container[str] = ()) -> Iterator[WaitingJob]:
        """Yield the waiting jobs in their order, without those of virtual clusters that become ``blocked``.

        ``heads`` are the first jobs of their groups. A job that is started changes the order of the others.
        """
        time = now()
        queues = [(self._order(head, time), head, self._following(head)) for head in heads]
        heapq.heapify(queues)
        while queues:
            _, one, rest = heapq.heappop(queues)
            count = self._count
            yield one
            if one.job.virtual_cluster in blocked:
                queues = [queue for queue in queues if queue[1].job.virtual_cluster not in blocked]
                heapq.heapify(queues)
            elif following := next(rest, None):
                heapq.heappush(queues, (self._order(following, time), following, rest))
            if self._count != count:
                queues = [(self._order(head, time), head, rest) for _, head, rest in queues]
                heapq.heapify(queues)

    def _following(self, one: WaitingJob) -> Iterator[WaitingJob]:
        """Yield the jobs after this one in its group."""
        while page := self._queries.following(one, PAGE):
            yield from page
            one = page[-1]

    def _order(self, one: WaitingJob, now: int) -> tuple[float, ...]:
        """Return the key of a waiting job: the job with the smallest one is next."""
        if self._total is None:
            return (one.queued,)
        party, level = one.group[:3], rank_now(one.rank, now - one.since)
        return (level < NORMAL, *self._standing(party[:2]), -level, *self._standing(party), one.queued)

    def take(self, one: WaitingJob) -> None:
        """Note that the job has started."""
        party = one.group[:3]
        self._use(party, one.need)
        self._count += 1
        for each in (party, party[:2]):
            self._last.pop(each, None)
            self._last[each] = self._count
        self._kept = {each: count for each, count in self._kept.items() if each[:2] != party[:2]}
        while len(self._last) > MOST_PARTIES:
            del self._last[next(iter(self._last))]

    def keep(self, blocked: Mapping[str, WaitingJob]) -> None:
        """Let the jobs that wait for room keep their turns; given by the virtual clusters that they block."""
        parties = [one.group[:3] for one in blocked.values()]
        self._kept = Counter([*parties, *(party[:2] for party in parties)])

    def _use(self, party: Party, amount: ResourceAmount) -> None:
        for each in (party, party[:2]):
            self._used[each] = self._used.get(each, NOTHING) + amount

    def _standing(self, party: Party) -> tuple[int, float, int]:
        """Return a kept turn, the used part of the machine, by the scarcest resource, and the last turn."""
        used, total = self._used.get(party, NOTHING), self._total or NOTHING
        pairs = ((used.cpu, total.cpu), (used.memory_mb, total.memory_mb), (used.gpu, total.gpu))
        part = max(some / max(1, whole) for some, whole in pairs)
        return -self._kept.get(party, 0), part, self._last.get(party, 0)


def rank_now(rank: int, waited_ms: int) -> int:
    """Return the rank of a job that has waited so long; one that was moved to the front is above all."""
    return rank if rank > HIGHEST else min(rank + max(0, waited_ms) // STEP_MS, HIGHEST)
