"""The filters, order and page of a job list, as SQL."""

from __future__ import annotations

from collections.abc import Iterable

from openpai_tasks.lazy_dataclass import dataclass

ORDERS = {
    "jobName": "name",
    "submissionTime": "submitted",
    "username": "user",
    "vc": "virtual_cluster",
    "retries": "user_retries + platform_retries",
    "totalTaskNumber": "tasks",
    "totalGpuNumber": "gpus",
    "state": "state",
    "completionTime": "completed",
    "jobPriority": "priority",
}
"""Fields to order a list by, and their columns."""

NO_PRIORITY = "default"


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
    order: str = "submissionTime"  # a key of ORDERS
    descending: bool = True
    offset: int = 0
    limit: int = 5000

    def where(self) -> tuple[str, list[object]]:
        """Return the SQL condition and its values."""
        parts: list[tuple[str, Iterable[object]]] = [
            (f"user IN ({_holes(self.users)})", self.users),
            (f"virtual_cluster IN ({_holes(self.virtual_clusters)})", self.virtual_clusters),
            (f"state IN ({_holes(self.states)})", self.states),
            (_KEYWORD, [self.keyword] * 3 if self.keyword else ()),
            (f"key IN ({_TAGGED} ({_holes(self.tags)}))", self.tags),
            (f"key NOT IN ({_TAGGED} ({_holes(self.without_tags)}))", self.without_tags),
            (f"coalesce(priority, '{NO_PRIORITY}') IN ({_holes(self.priorities)})", self.priorities),
        ]
        used = [(text, list(values)) for text, values in parts if values]
        condition = " AND ".join(text for text, _ in used) or "1"
        return condition, [value for _, values in used for value in values]

    def order_by(self) -> str:
        """Return the SQL order: NULL is larger than every value, equal rows follow the submission order."""
        known = self.order in ORDERS
        column = ORDERS.get(self.order, "submitted")
        direction = "DESC" if self.descending or not known else "ASC"
        return f"({column}) IS NULL {direction}, {column} {direction}, queued {direction}"


_KEYWORD = "(instr(user, ?) OR instr(name, ?) OR instr(virtual_cluster, ?))"
_TAGGED = "SELECT job FROM tags WHERE tag IN"


def _holes(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
