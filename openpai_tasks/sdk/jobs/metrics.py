"""The metrics that a job's program recorded: numbers by name, task and step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.logs.json_lines import JobLines, LineOrigin, number, parse_object, piece_size
from openpai_tasks.text import wildcards

TELLING = (("loss",), ("acc", "f1", "auc", "score", "reward", "bleu", "perplexity"))
"""Parts of the names of metrics that say most about a run, in this order."""
_LOWER_IS_BETTER = re.compile(r"loss|error|rmse|perplexity|(?<![a-z])(?:err|mae|mse|ppl)(?![a-z])", re.I)


def is_lower_better(name: str) -> bool:
    """Return whether the best value of a metric is its lowest, as for a loss or an error."""
    return bool(_LOWER_IS_BETTER.search(name))


class MetricPoint(NamedTuple):
    """One recorded value; ``step`` is None if the program gave none, ``time`` is in seconds since 1970."""

    value: float
    step: float | None
    time: float
    attempt: int


@dataclass(frozen=True)
class Metric:
    """A metric of one task and its points, in the order in which they were recorded."""

    job: str
    name: str
    role: str
    index: int
    points: tuple[MetricPoint, ...]

    @property
    def task(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def last(self) -> float:
        return self.points[-1].value

    @property
    def min(self) -> float | None:
        """The lowest value, without infinities and NaN; None without such a value."""
        return min(self._finite(), default=None)

    @property
    def max(self) -> float | None:
        """The highest value, without infinities and NaN; None without such a value."""
        return max(self._finite(), default=None)

    @property
    def step(self) -> float | None:
        """The last step."""
        return self.points[-1].step

    @property
    def count(self) -> int:
        return len(self.points)

    def _finite(self) -> Iterator[float]:
        return (point.value for point in self.points if math.isfinite(point.value))


def read_metrics(client: Backend, name: str, mounts: Mounts = ()) -> list[Metric]:
    """Return the metrics that the job has recorded so far, by name and task."""
    return MetricReader(client, name, mounts).read()


class MetricReader:
    """Reads a job's metrics as they grow: each call of ``read`` reads only new bytes."""

    def __init__(self, client: Backend, name: str, mounts: Mounts = ()) -> None:
        self._lines = JobLines(client, name, "metrics", mounts)
        self._points: dict[tuple[str, str, int], dict[int, list[MetricPoint]]] = {}

    @property
    def job(self) -> JobInfo:
        """The job as it was found first."""
        return self._lines.job

    def read(self, job: JobInfo | None = None) -> list[Metric]:
        """Return everything recorded so far; ``job`` is the job as of now."""
        sources = self._lines.sources(job or self.job)
        for source in sources:
            for line in source.new(piece_size(1), is_last=False):
                self._add(line, source.origin)
        for source in sources:
            if source.problem:
                raise source.problem
        return [
            Metric(self.job.name, name, role, index, tuple(_history(attempts)))
            for (name, role, index), attempts in sorted(self._points.items())
        ]

    def _add(self, line: bytes, origin: LineOrigin) -> None:
        """Keep the point of a line; any other line is torn, or no metric."""
        fields = parse_object(line)
        if fields is None or not isinstance(name := fields.get("name"), str):
            return
        origin = origin.updated(fields)
        point = _point(fields, origin.attempt)
        if point:
            attempts = self._points.setdefault((name, origin.role, origin.index), {})
            attempts.setdefault(origin.attempt, []).append(point)


def metric_rows(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """Return all points, a row for each, for programs."""
    return [
        {
            "job": metric.job,
            "name": metric.name,
            "role": metric.role,
            "index": metric.index,
            "attempt": point.attempt,
            "step": point.step,
            "time": point.time,
            "value": point.value,
        }
        for metric in metrics
        for point in metric.points
    ]


def select_metrics(metrics: Iterable[Metric], patterns: Iterable[str]) -> list[Metric]:
    """Return the metrics whose names match one of the patterns; all if there is no pattern."""
    wanted = list(patterns)
    return [
        metric
        for metric in metrics
        if not wanted or any(wildcards.matches(metric.name, pattern) for pattern in wanted)
    ]


def select_telling(metrics: Iterable[Metric], most: int) -> list[Metric]:
    """Return the metrics to show first, one of each name: losses, scores, then those with most points."""
    named: dict[str, Metric] = {}
    for metric in metrics:
        named.setdefault(metric.name, metric)
    return sorted(named.values(), key=_rank)[:most]


def _rank(metric: Metric) -> tuple[int, int, str]:
    name = metric.name.lower()
    kind = next((at for at, words in enumerate(TELLING) if any(word in name for word in words)), len(TELLING))
    return kind, -metric.count, metric.name


def _point(fields: dict[str, Any], attempt: int) -> MetricPoint | None:
    """Return the point, if the line has a value and a time; null means NaN."""
    value = math.nan if fields.get("value", "") is None else number(fields.get("value"))
    time = number(fields.get("time"))
    if value is None or time is None:
        return None
    step = number(fields.get("step"))
    if step is not None and not math.isfinite(step):
        step = None
    return MetricPoint(value, int(step) if step is not None and step.is_integer() else step, time, attempt)


def _history(attempts: dict[int, list[MetricPoint]]) -> list[MetricPoint]:
    """Return the points of all attempts; a step that a later attempt took again counts only once.

    A retried program continues at its last checkpoint: what was recorded after that is recorded again.
    """
    kept: list[list[MetricPoint]] = []
    begins = math.inf
    for attempt in sorted(attempts, reverse=True):
        points = attempts[attempt]
        kept.append([point for point in points if point.step is None or point.step < begins])
        first = points[0].step
        begins = begins if first is None else min(begins, first)
    return [point for points in reversed(kept) for point in points]
