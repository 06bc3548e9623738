"""Histories made from a seed: what each client does, and which faults happen meanwhile."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.endurance.world import Record, World

Options = dict[str, Any]


class Operation:
    """Something that a client does with one command, and what must be true of it afterwards."""

    kind = ""
    weight = 1
    """How often it is chosen."""

    def fits(self, world: World) -> bool:
        """Whether it can be done on this engine and machine."""
        return True

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options | None:
        """Choose the options; None if it needs a job, and none of ``labels`` was submitted before.

        ``label`` is unique in the history. A submission adds it to ``labels``.
        """
        return {}

    def prepare(self, world: World) -> None:
        """Start what it needs in the driver, before a history that has it."""

    def command(self, world: World, options: Options) -> list[str]:
        raise NotImplementedError

    def collect(self, world: World, steps: Sequence[Step]) -> Any:
        """Return what is there when all has ended and nothing disturbs any more, for `check`."""
        return None

    def finish(self, world: World) -> None:
        """End what `prepare` has started."""

    def check(self, record: Record) -> Iterator[str]:
        """Yield each promise about this operation that was broken."""
        return iter(())


class Fault:
    """Something that goes wrong meanwhile."""

    kind = ""
    weight = 1
    order = 2
    """When it is prepared: 0 before any process starts, 1 before the server of today does."""

    def fits(self, world: World) -> bool:
        """Whether it can be caused on this engine and machine."""
        return True

    def plan(self, chance: random.Random) -> Options:
        return {}

    def prepare(self, world: World) -> None:
        """Set up what it needs, before the clients of a history with this fault begin."""

    def inject(self, world: World, options: Options) -> str | None:
        """Cause it, and mend it if it lasts; return what was done, None if there was nothing to hurt."""
        raise NotImplementedError

    def repair(self, world: World) -> None:
        """Undo what an interrupted injection may have left."""


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of a client or a fault, ``pause`` seconds after the one before it."""

    kind: str
    pause: float = 0.0
    options: Options = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.pause:.2f} s, {self.kind} {words}".rstrip()


@dataclasses.dataclass(frozen=True)
class Plan:
    """A history to carry out: the steps of each client, and the faults."""

    seed: int
    clients: tuple[tuple[Step, ...], ...]
    faults: tuple[Step, ...]

    def __str__(self) -> str:
        parts = [(f"client {number}", steps) for number, steps in enumerate(self.clients)]
        return "\n".join(
            f"{who}: {step}" for who, steps in [*parts, ("fault", self.faults)] for step in steps
        )

    def has(self, fault: str) -> bool:
        return any(step.kind == fault for step in self.faults)

    @property
    def size(self) -> int:
        return len(self.faults) + sum(map(len, self.clients))


def make_plan(
    seed: int,
    operations: Mapping[str, Operation],
    faults: Mapping[str, Fault],
    *,
    clients: int = 3,
    steps: int = 8,
    most_faults: int = 6,
    fault_pause: float = 1.2,
) -> Plan:
    """Return the history of this seed, made of these operations and faults."""
    chance = random.Random(seed)
    labels: list[str] = []
    made = tuple(
        tuple(_operation(chance, operations, f"c{client}n{number}", labels) for number in range(steps))
        for client in range(clients)
    )
    return Plan(seed, made, tuple(_fault(chance, faults, fault_pause) for _ in range(most_faults)))


def _operation(
    chance: random.Random, operations: Mapping[str, Operation], label: str, labels: list[str]
) -> Step:
    while True:
        (chosen,) = chance.choices(list(operations.values()), [one.weight for one in operations.values()])
        pause = chance.choice((0.0, 0.0, 0.1, 0.5))
        options = chosen.plan(chance, label, labels)
        if options is not None:
            return Step(chosen.kind, pause, options)


def _fault(chance: random.Random, faults: Mapping[str, Fault], pause: float) -> Step:
    (chosen,) = chance.choices(list(faults.values()), [one.weight for one in faults.values()])
    return Step(chosen.kind, round(chance.expovariate(1 / pause), 2), chosen.plan(chance))
