"""Metrics of jobs: a table of the last and best values, charts, and a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.plain_text import counted
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.tasks.framework.screen import LiveView

if TYPE_CHECKING:
    from openpai_tasks.render import Page, TextTable
    from openpai_tasks.sdk.jobs.metrics import Metric

HEADER = ("JOB", "METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "COUNT")
PICTURES = ".svg"


def check_picture(path: str | None) -> None:
    """Raise for a picture that is not SVG, before anything is read."""
    if path is not None and not path.lower().endswith(PICTURES):
        raise ConfigError(f"--picture writes SVG: {path!r} must end with {PICTURES}")


def write_picture(metrics: Sequence[Metric], path: str | None) -> None:
    """Write the charts to a file, if one is wanted."""
    if path is None:
        return
    try:
        Path(path).write_text(render.svg.draw(render.metric_charts(metrics)), encoding="utf-8")
    except OSError as err:
        raise PathError(f"cannot write {path}: {err.strerror}") from err
    say(f"plot written to {path}")


def watch(rounds: Iterable[list[Metric]], patterns: Sequence[str], plot: bool) -> list[Metric]:
    """Show the metrics as they grow, and return the last ones."""
    found: list[Metric] = []
    with LiveView(sys.stderr, transient=True) as screen:
        for found in rounds:
            chosen = sdk.jobs.select_metrics(found, patterns)
            points = sum(metric.count for metric in chosen)
            screen.show(view(plot)(chosen), f"{counted(points, 'point')} of {counted(len(chosen), 'metric')}")
    return found


def report_none(found: Sequence[Metric], chosen: Sequence[Metric]) -> None:
    """Say why there is nothing to show, if so."""
    if not found:
        say("no metrics found; a program records them with `runtime.log_metric(name, value, step)`")
    elif not chosen:
        names = ", ".join(dict.fromkeys(metric.name for metric in found))
        say(f"no metric has such a name (known: {names})")


def view(plot: bool) -> Callable[[Sequence[Metric]], TextTable | Page]:
    """Return the function that makes the view: the table, and the charts above it."""
    return page if plot else table


def page(metrics: Sequence[Metric]) -> Page:
    return render.Page([*render.metric_charts(metrics), table(metrics)])


def table(metrics: Sequence[Metric]) -> TextTable:
    """Return a row for each metric of each task."""
    rows = [
        (
            *(render.cell("name", text) for text in (metric.job, metric.name, metric.task)),
            *(_number(value) for value in (metric.last, metric.min, metric.max)),
            "-" if metric.step is None else str(metric.step),
            str(metric.count),
        )
        for metric in metrics
    ]
    return render.TextTable(HEADER, rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
