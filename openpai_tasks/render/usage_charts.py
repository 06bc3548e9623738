"""Charts of what tasks used over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openpai_tasks.render.charts import Chart, Series

UNITS = ((2 * 86400, "days", 86400), (2 * 3600, "hours", 3600), (300, "minutes", 60), (0, "seconds", 1))
"""From how many seconds on a time is counted in which unit, and its seconds."""


def usage_charts(tasks: Sequence[Any]) -> list[Chart]:
    """Return charts of processors, memory and GPUs over time, with a line for each task or GPU."""
    samples = [sample for task in tasks for sample in task.samples]
    if not samples:
        return []
    start = min(sample.time for sample in samples)
    span = max(sample.time / 1000 + sample.seconds for sample in samples) - start / 1000
    unit, size = next((name, size) for least, name, size in UNITS if span >= least)

    def chart(title: str, values: Callable[[Any], Iterator[tuple[str, float | None]]]) -> Chart | None:
        series = _series(tasks, values, lambda time: (time - start) / 1000 / size)
        return Chart(f"{title} by {unit}", series) if series else None

    found = [
        chart("CPU cores", lambda one: iter([("", _mean(one.cpu, 1))])),
        chart("Memory in GiB", lambda one: iter([("", _mean(one.memory, 1 << 30))])),
        chart("GPU use in %", lambda one: ((f"GPU {gpu.index}", _mean(gpu.percent, 1)) for gpu in one.gpus)),
        chart(
            "GPU memory in GiB",
            lambda one: ((f"GPU {gpu.index}", _mean(gpu.memory_mb, 1024)) for gpu in one.gpus),
        ),
    ]
    return [one for one in found if one]


def _mean(level: Any, unit: float) -> float | None:
    return None if level is None else level.mean / unit


def _series(
    tasks: Sequence[Any],
    values: Callable[[Any], Iterator[tuple[str, float | None]]],
    place: Callable[[float], float],
) -> list[Series]:
    """Return the lines with a value, named by task unless there is only one, and by GPU.

    Each begins with 0, so that it is drawn above 0 and not above its lowest value.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for task in tasks:
        for sample in task.samples:
            for name, value in values(sample):
                if value is not None:
                    words = [task.label] * (len(tasks) > 1) + [name] * bool(name)
                    line = points.setdefault(" ".join(words), [(place(sample.time), 0.0)])
                    line.append((place(sample.time + 1000 * sample.seconds), value))
    return [Series(name, found) for name, found in points.items()]
