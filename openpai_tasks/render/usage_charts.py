"""Charts of what tasks used over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openpai_tasks.render.charts import Chart, Series

Values = Iterable[tuple[str, Any]]
"""Levels of a sample, each with the name of its line besides that of the task."""


def usage_charts(tasks: Sequence[Any]) -> list[Chart]:
    """Return charts of processors, memory and GPUs over time, with a line for each task or GPU."""
    found = [
        _chart(tasks, "CPU cores", lambda one: [("", one.cpu)], 1),
        _chart(tasks, "Memory in GiB", lambda one: [("", one.memory)], 1 << 30),
        _chart(tasks, "GPU use in %", lambda one: [(f"GPU {gpu.index}", gpu.percent) for gpu in one.gpus], 1),
        _chart(
            tasks,
            "GPU memory in GiB",
            lambda one: [(f"GPU {gpu.index}", gpu.memory_mb) for gpu in one.gpus],
            1024,
        ),
    ]
    return [chart for chart in found if chart.series]


def _chart(tasks: Sequence[Any], title: str, values: Callable[[Any], Values], unit: float) -> Chart:
    """Return means over the seconds since the first task began, in a unit."""
    start = min((sample.time for task in tasks for sample in task.samples), default=0)
    points: dict[str, list[tuple[float, float]]] = {}
    for task in tasks:
        for sample in task.samples:
            begin = (sample.time - start) / 1000
            for name, level in values(sample):
                if level is not None:
                    words = [task.label] * (len(tasks) > 1) + [name] * bool(name)
                    value = level.mean / unit
                    line = points.setdefault(" ".join(words), [(begin, value)])
                    line.append((begin + sample.seconds, value))
    return Chart(title, [Series(name, line) for name, line in points.items()], x="time", from_zero=True)
