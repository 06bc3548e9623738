"""Sweeps and metrics of jobs on the screen: tables and charts that update, and a picture."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.settings import keeping
from openpai_tasks.tasks.framework.base import say, settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.views.submitting import report_sources, show_preview
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.render import Chart, Page, TextTable
    from openpai_tasks.sdk.jobs.metrics import Metric
    from openpai_tasks.sdk.sweeps.comparison import ComparedRow, Comparison
    from openpai_tasks.sdk.sweeps.sweep import Sweep, SweepJob, SweepRun

METRICS_HEADER = ("JOB", "METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "COUNT")
ORDER = {"FAILED": 0, "STOPPED": 0, "RUNNING": 1, "STOPPING": 1, "WAITING": 2, "": 3, "SUCCEEDED": 4}
"""Which jobs are shown first where there is no room for all."""
BEST_MARK = "*"


def run_sweep(
    c: Context,
    client: Backend,
    sweep: Sweep,
    most: int | None,
    detach: bool,
    preview: bool,
    output: str | None,
    notify: str | None = None,
) -> None:
    """Submit a job for each point, show them as they run, and fail if one of them does."""
    sdk.jobs.check_tags(client, sweep.request.tags)
    _warn_of_removal(c, client, len(sweep.points))
    given = sweep.hooks
    hooks = sdk.jobs.hooks_to_notify(client, given, not detach, isinstance(notify, str))
    if preview:
        first = sweep.submission(next(iter(sweep.points)))
        show_preview(client, first, output, sweep.name, len(sweep.points))
        return
    report_sources(sweep.files)
    for note in sweep.files.notes:
        say(note)
    if not hooks:
        sdk.jobs.report_unused(client, given, say)
    sdk.jobs.check_dependencies(client, sweep.request.policy.after, say)
    screen = LiveView(sys.stderr, transient=True)
    run = sdk.sweeps.SweepRun(client, sweep, Path.cwd(), say, refresh_seconds=0.5 if screen.is_drawn else 10)
    with _explain_interrupt(run), screen:
        for rows in run.until_over(most, detach):
            line = sdk.sweeps.describe_progress(sweep.name, rows)
            screen.show(render.Page([line, render.flat_table(_visible(rows))], spaced=False), line)
    show(c, run.rows, render.flat_table, output)
    if hooks:
        facts = sdk.jobs.summary_facts("sweep", sweep.name, [row.state for row in run.rows])
        sdk.jobs.notify_all(hooks, facts, say)
    sdk.sweeps.check_sweep(sweep.name, run.rows)


def _warn_of_removal(c: Context, client: Backend, jobs: int) -> None:
    """Warn if the embedded cluster will not keep all finished jobs of a sweep."""
    most = keeping.parse_keep(settings(c).local_keep, "local.keep").jobs
    if client.cluster.is_embedded and most is not None and jobs > most:
        kept = f"the cluster keeps {counted(most, 'finished job')} (local.keep)"
        rest = f"{jobs - most} of this sweep will be removed, with their results"
        say(f"warning: {kept}: {rest}; `{command('config.set', 'local.keep=90d,10GB')}` removes this limit")


def check_sorting(sort: str | None, lowest: bool, best: int | None) -> None:
    """Raise for flags that need --sort, and say which values count as the best."""
    given = [flag for flag, value in (("--lowest", lowest or None), ("--best", best)) if value is not None]
    if given and sort is None:
        raise ConfigError(f"{given[0]} needs --sort: name the value to compare, such as --sort accuracy")
    if best is not None and not lowest:
        say(f"the best are those with the highest {sort}; use --lowest if lower is better")


def _visible(rows: list[SweepJob]) -> list[SweepJob]:
    """Return as many jobs as the terminal has lines for."""
    room = max(3, shutil.get_terminal_size().lines - 4)
    return rows if len(rows) <= room else sorted(rows, key=lambda row: ORDER.get(row.state, 1))[:room]


@contextlib.contextmanager
def _explain_interrupt(run: SweepRun) -> Iterator[None]:
    """After Ctrl-C, explain how to continue the sweep: submitted jobs keep running."""
    try:
        yield
    except KeyboardInterrupt:
        state = f"{run.submitted} of {counted(len(run.jobs), 'job')} of sweep {run.sweep.name} are submitted"
        say("", f"{state} and continue; run the same command again to submit the rest")
        raise


def check_picture(path: str | None) -> None:
    """Raise for a picture that is not SVG, before anything is read."""
    if path is not None and not path.lower().endswith(".svg"):
        raise ConfigError(f"--picture writes SVG: {path!r} must end with .svg")


def check_axis(by: str | None, is_drawn: bool) -> None:
    """Refuse an x axis without a plot, before anything is read."""
    if by and not is_drawn:
        raise ConfigError(f"--by {by} is for a plot; add --plot or --picture FILE.svg")
    if by not in (None, *render.X_AXES):
        raise ConfigError(f"--by must be one of {', '.join(render.X_AXES)}, got {by!r}")


def metric_charts(chosen: Sequence[Metric], by: str | None, found: Sequence[Metric]) -> list[Chart]:
    """Return the charts of the chosen metrics; ``found`` are all metrics of their jobs."""
    if chosen and by and by not in render.x_choices(found):
        raise ConfigError(f"--by {by}: no job recorded a metric {by!r} with steps")
    return render.metric_charts(chosen, by or "step", found)


def write_picture(charts: Sequence[Chart], path: str | None) -> None:
    """Write the charts to a file, if one is wanted."""
    if path is None:
        return
    try:
        Path(path).write_text(render.svg.draw(charts), encoding="utf-8")
    except OSError as err:
        raise PathError(f"cannot write {path}: {err.strerror}") from err
    say(f"plot written to {path}")


def watch_metrics(
    rounds: Iterable[list[Metric]], patterns: Sequence[str], plot: bool, by: str | None
) -> list[Metric]:
    """Show the metrics as they grow, and return the last ones."""
    found: list[Metric] = []
    with LiveView(sys.stderr, transient=True) as screen:
        for found in rounds:
            chosen = sdk.jobs.select_metrics(found, patterns)
            points = sum(metric.count for metric in chosen)
            charts = render.metric_charts(chosen, by or "step", found) if plot else ()
            words = f"{counted(points, 'point')} of {counted(len(chosen), 'metric')}"
            screen.show(metrics_view(chosen, charts), words)
    return found


def report_no_metrics(found: Sequence[Metric], chosen: Sequence[Metric]) -> None:
    """Say why there is nothing to show, if so."""
    if not found:
        say("no metrics found; a program records them with `runtime.log_metric(name, value, step)`")
    elif not chosen:
        names = ", ".join(dict.fromkeys(metric.name for metric in found))
        say(f"no metric has such a name (known: {names})")


def metrics_view(metrics: Sequence[Metric], charts: Sequence[Chart]) -> TextTable | Page:
    """Return a row for each metric of each task, below the charts."""
    rows = [
        (
            *(render.cell("name", text) for text in (metric.job, metric.name, metric.task)),
            *("-" if value is None else f"{value:.6g}" for value in (metric.last, metric.min, metric.max)),
            "-" if metric.step is None else str(metric.step),
            str(metric.count),
        )
        for metric in metrics
    ]
    table = render.TextTable(METRICS_HEADER, rows)
    return render.Page([*charts, table]) if charts else table


def comparison_view(found: Comparison, is_whole: bool) -> Page | str:
    """Return a table of what differs, or of everything: jobs as rows or, if they are too wide, as columns."""
    compared = found.rows if is_whole else found.differing
    if not compared:
        return "the jobs do not differ; --all shows their values"
    values = [_compared_cells(row) for row in compared]
    names = [render.cell("name", job.name) for job in found.jobs]
    header = [render.cell("name", row.name).upper() for row in compared]
    by_job = render.TextTable(["JOB", *header], [[*row] for row in zip(names, *values, strict=True)])
    by_value = render.TextTable(
        ["", *names], [[name, *row] for name, row in zip(header, values, strict=True)]
    )
    is_turned = by_job.width > shutil.get_terminal_size().columns and by_value.width < by_job.width
    legend = [f"{BEST_MARK} best of all"] if any(row.best for row in compared) else []
    return render.Page([by_value if is_turned else by_job, *legend], spaced=False)


def _compared_cells(row: ComparedRow) -> list[str]:
    """Return the values of a row for people, with a mark at the best."""
    cells = [f"{value:.6g}" if isinstance(value, float) else value for value in row.values]
    if row.name == "duration":
        cells = list(row.values)
    return [
        render.cell(row.name, value) + f" {BEST_MARK}" * (at in row.best) for at, value in enumerate(cells)
    ]
