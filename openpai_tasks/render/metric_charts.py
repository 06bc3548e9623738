"""Metrics of jobs as charts. Prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openpai_tasks.render.charts import Chart, Series


def metric_charts(metrics: Sequence[Any]) -> list[Chart]:
    """Return a chart for each name, with a line for each job and task."""
    by_name: dict[str, list[Any]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    return [Chart(name, _series(group)) for name, group in by_name.items()]


def _series(group: Sequence[Any]) -> list[Series]:
    """Return a line for each metric, named by what distinguishes it from the others: job, task or both."""
    jobs = len({metric.job for metric in group})
    has_tasks = len(group) > jobs
    return [
        Series(" ".join([metric.job] * (jobs > 1) + [metric.task] * has_tasks), _points(metric))
        for metric in group
    ]


def _points(metric: Any) -> list[tuple[float, float]]:
    """Return the values by step, or by their number if there are no steps."""
    return [
        (number if point.step is None else point.step, point.value)
        for number, point in enumerate(metric.points)
    ]
