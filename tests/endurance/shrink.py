"""Cut a failing history down: leave out steps as long as it still fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tests.endurance.plan import Plan


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a shorter plan that fails, too; ``fails`` also limits the time by returning False."""
    part = max(1, plan.size // 2)
    while True:
        smaller = next((one for one in _without(plan, part) if fails(one)), None)
        if smaller is not None:
            plan = smaller
        elif part == 1:
            return plan
        else:
            part //= 2


def _without(plan: Plan, count: int) -> Iterator[Plan]:
    """Yield the plan without each run of ``count`` steps, in the order of its text."""
    owners = [(who, at) for who, steps in enumerate((*plan.clients, plan.faults)) for at in range(len(steps))]
    for first in range(0, len(owners), count):
        gone = set(owners[first : first + count])
        kept = [
            tuple(step for at, step in enumerate(steps) if (who, at) not in gone)
            for who, steps in enumerate((*plan.clients, plan.faults))
        ]
        yield dataclasses.replace(plan, clients=tuple(kept[:-1]), faults=kept[-1])
