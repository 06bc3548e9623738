"""The filters, order and page of a job list, as SQL, and the indexes that serve them.

Each order has an index that also holds the columns of the filters, so that only the jobs of the page are read
from the table; only the state, which changes, has an index of its own. In the default order, a list can also
start from the jobs of a user, a state or a virtual cluster; several of them are merged. The number of jobs
comes from the table ``job_counts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openpai_tasks.lazy_dataclass import dataclass

ORDERS: dict[str, tuple[str, ...]] = {
    "jobName": ("name",),
    "submissionTime": ("submitted",),
    "username": ("user",),
    "vc": ("virtual_cluster",),
    "retries": ("user_retries + platform_retries",),
    "totalTaskNumber": ("tasks",),
    "totalGpuNumber": ("gpus",),
    "state": ("state",),
    "completionTime": ("completed IS NULL", "completed"),  # NULL is larger than every value
    "jobPriority": ("priority IS NULL", "priority"),
}
"""Fields to order a list by, and their SQL terms."""

STARTS = {"users": "user", "virtual_clusters": "virtual_cluster", "states": "state"}
"""Filters that a list in the default order can start from, and their columns."""

DEFAULT_ORDER = "submissionTime"
NO_PRIORITY = "default"
MOST_MERGED = 8  # values of a filter; with more, the list does not start from it

_FILTERED = ("queued", "user", "virtual_cluster", "priority")
_STATE = "(SELECT state FROM jobs AS same INDEXED BY states WHERE same.key = jobs.key)"
_SUMMED = {"retries": ("user_retries", "platform_retries")}  # SQLite looks these up without their sum
_TAGGED = "EXISTS (SELECT 1 FROM tags WHERE job = key AND tag IN ({}))"
_NAME = "substr(key, length(user) + 2)"  # unlike the column, in every index
_UNCOUNTED = {
    "keyword": f"(instr(user, {{0}}) OR instr({_NAME}, {{0}}) OR instr(virtual_cluster, {{0}}))",
    "tags": _TAGGED,
    "without_tags": f"NOT {_TAGGED}",
}
_CONDITIONS = {
    "users": "user IN ({})",
    "virtual_clusters": "virtual_cluster IN ({})",
    "states": "{state} IN ({})",
    "priorities": f"coalesce(priority, '{NO_PRIORITY}') IN ({{}})",
    **_UNCOUNTED,
}

_SUM = "SELECT coalesce(sum(jobs), 0) FROM job_counts"

Statement = tuple[str, list[object]]
"""SQL, and the values of its numbered parameters."""


@dataclass(frozen=True)
class JobQuery:
    """Filters of jobs: a job matches one value of each filter; empty filters match all."""

    users: tuple[str, ...] = ()
    virtual_clusters: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    keyword: str = ""
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()  # "default" means no priority
    order: str = DEFAULT_ORDER  # a key of ORDERS
    descending: bool = True
    offset: int = 0
    limit: int = 5000

    def count(self) -> Statement:
        """Return a statement for the number of matching jobs."""
        if any(getattr(self, name) for name in _UNCOUNTED):
            condition, values = self._where(_CONDITIONS, _STATE)
            return f"SELECT count(*) FROM jobs INDEXED BY by_{DEFAULT_ORDER} WHERE {condition}", values
        condition, values = self._where(_CONDITIONS)
        return f"{_SUM} WHERE {condition}", values

    def starts(self) -> list[str]:
        """Return the filters that the page can start from."""
        if self._order != DEFAULT_ORDER:
            return []
        return [name for name in STARTS if 0 < len(getattr(self, name)) <= MOST_MERGED]

    def count_start(self, start: str) -> Statement:
        """Return a statement for the number of jobs that match this filter."""
        condition, values = self._where([start])
        return f"{_SUM} WHERE {condition}", values

    def page(self, start: str = "") -> Statement:
        """Return a statement for the keys of the page; it starts from the jobs of one filter, or from all."""
        index = f"of_{STARTS[start]}" if start else f"by_{self._order}"
        others = [name for name in _CONDITIONS if name != start]
        condition, values = self._where(others, "state" if index == "by_state" else _STATE)
        conditions = [condition]
        if start:
            chosen = list(dict.fromkeys(getattr(self, start)))
            first = len(values) + 1
            holes = range(first, first + len(chosen))
            conditions = [f"{STARTS[start]} = ?{hole} AND {condition}" for hole in holes]
            values += chosen
        terms = [*ORDERS[self._order], "queued"]
        selected = ", ".join(["key", *(f"{term} AS term_{place}" for place, term in enumerate(terms))])
        parts = [f"SELECT {selected} FROM jobs INDEXED BY {index} WHERE {where}" for where in conditions]
        direction = "DESC" if self.descending or self.order not in ORDERS else "ASC"
        order = ", ".join(f"term_{place} {direction}" for place in range(len(terms)))
        limits = f"LIMIT ?{len(values) + 1} OFFSET ?{len(values) + 2}"
        return f"{' UNION ALL '.join(parts)} ORDER BY {order} {limits}", [*values, self.limit, self.offset]

    @property
    def _order(self) -> str:
        return self.order if self.order in ORDERS else DEFAULT_ORDER

    def _where(self, names: Iterable[str], state: str = "state") -> Statement:
        """Return the condition of these filters; ``state`` is the SQL for a job's state."""
        parts: list[str] = []
        values: list[object] = []
        for name in names:
            found = getattr(self, name)
            if found:
                chosen = [found] if isinstance(found, str) else list(found)
                holes = ", ".join(f"?{len(values) + place}" for place in range(1, len(chosen) + 1))
                parts.append(_CONDITIONS[name].format(holes, state=state))
                values += chosen
        return " AND ".join(parts) or "1", values


def indexes() -> Iterator[str]:
    """Yield a statement for each index of the lists."""
    for order, terms in ORDERS.items():
        yield _index(f"by_{order}", *terms, *_FILTERED, *_SUMMED.get(order, ()))
    for column in STARTS.values():
        yield _index(f"of_{column}", column, *ORDERS[DEFAULT_ORDER], *_FILTERED)
    yield _index("states", "key", "state")


def _index(name: str, *terms: str) -> str:
    return f"CREATE INDEX IF NOT EXISTS {name} ON jobs ({', '.join(dict.fromkeys(terms))});"
