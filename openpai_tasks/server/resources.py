"""Amounts of CPUs, memory and GPUs, and the demand of jobs."""

from __future__ import annotations

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, TaskRole

MACHINE = "this machine"
_MOST = 10**9  # more than any machine has, and small enough to be summed in a database


@dataclass(frozen=True)
class ResourceAmount:
    cpu: int = 0
    memory_mb: int = 0
    gpu: int = 0

    def __add__(self, other: ResourceAmount) -> ResourceAmount:
        return ResourceAmount(self.cpu + other.cpu, self.memory_mb + other.memory_mb, self.gpu + other.gpu)

    def __sub__(self, other: ResourceAmount) -> ResourceAmount:
        return ResourceAmount(self.cpu - other.cpu, self.memory_mb - other.memory_mb, self.gpu - other.gpu)

    def __mul__(self, times: int) -> ResourceAmount:
        return ResourceAmount(self.cpu * times, self.memory_mb * times, self.gpu * times)

    def fits(self, free: ResourceAmount) -> bool:
        """Whether this much is free; an amount of zero or less always fits."""
        pairs = ((self.cpu, free.cpu), (self.memory_mb, free.memory_mb), (self.gpu, free.gpu))
        return all(need <= 0 or need <= rest for need, rest in pairs)

    def __str__(self) -> str:
        return f"{self.cpu} CPU, {self.memory_mb} MB, {self.gpu} GPU"


NOTHING = ResourceAmount()


def task_demand(role: TaskRole) -> ResourceAmount:
    """Return the need of one instance; negative numbers count as zero, absurdly large ones are limited."""
    return ResourceAmount(*(min(max(0, number), _MOST) for number in (role.cpu, role.memory_mb, role.gpu)))


def start_demand(document: JobDocument) -> ResourceAmount:
    """Return what must be free at once: for all instances, or for each if they start one by one."""
    if document.gang:
        return demand(document)
    every = [NOTHING, *map(task_demand, document.roles)]
    return ResourceAmount(
        max(one.cpu for one in every), max(one.memory_mb for one in every), max(one.gpu for one in every)
    )


def demand(document: JobDocument) -> ResourceAmount:
    """Return the need of all instances together."""
    return sum((task_demand(role) * role.instances for role in document.roles), NOTHING)


@dataclass(frozen=True)
class Shortfall:
    """A resource of which a job asks for more than there is."""

    field: str  # of ResourceAmount
    place: str
    has: int
    asked: int

    @property
    def is_partial(self) -> bool:
        """Whether there are some GPUs: a training that gets fewer than it expects is worse than none."""
        return self.field == "gpu" and self.has > 0

    @property
    def supply(self) -> str:
        if self.field == "memory_mb":
            return f"{self.place} has {self.has} MB of memory"
        return f"{self.place} has {self.has or 'no'} {self.field.upper()}{'s' if self.has > 1 else ''}"

    @property
    def demand(self) -> str:
        return f"the job asks for {self.asked}{' MB' if self.field == 'memory_mb' else ''}"

    @property
    def warning(self) -> str:
        if self.field != "gpu" or self.place != MACHINE:
            return f"{self.supply}; {self.demand} and runs alone"
        if self.has:
            return f"{self.supply}; {self.demand} and runs with what is there"
        return f"{self.supply}; the job runs without"


def shortfalls(
    need: ResourceAmount, machine: ResourceAmount, cluster: str, share: ResourceAmount
) -> tuple[Shortfall, ...]:
    """Return what neither the machine nor, if that is large enough, the virtual cluster has."""
    place, has = (f"virtual cluster {cluster}", share) if need.fits(machine) else (MACHINE, machine)
    pairs = ((name, getattr(need, name), getattr(has, name)) for name in ("gpu", "cpu", "memory_mb"))
    return tuple(Shortfall(name, place, there, asked) for name, asked, there in pairs if asked > there)
