"""A sweep on the screen: a table that updates, and the same table as data at the end."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.plain_text import counted
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.views.submitting import report_sources, show_preview

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.sweeps.plan import Sweep, SweepJob
    from openpai_tasks.sdk.sweeps.running import SweepRun

ORDER = {"FAILED": 0, "STOPPED": 0, "RUNNING": 1, "STOPPING": 1, "WAITING": 2, "": 3, "SUCCEEDED": 4}
"""Which jobs are shown first where there is no room for all."""


def run_sweep(
    c: Context,
    client: Backend,
    sweep: Sweep,
    most: int | None,
    detach: bool,
    preview: bool,
    output: str | None,
) -> None:
    """Submit a job for each point, show them as they run, and fail if one of them does."""
    sdk.jobs.check_tags(client, sweep.request.tags)
    report_sources(sweep.files)
    if preview:
        say(f"sweep {sweep.name}: {counted(len(sweep.points), 'job')}, of which the first is shown")
        show_preview(client, sweep.submission(next(iter(sweep.points))))
        return
    sdk.jobs.wait_for_success(client, sweep.request.after, say)
    screen = LiveView(sys.stderr, transient=True)
    run = sdk.sweeps.SweepRun(client, sweep, Path.cwd(), say, glance=0.5 if screen.is_drawn else 10)
    with _resumable(run), screen:
        for rows in run.until_over(most, detach):
            line = sdk.sweeps.describe_progress(sweep.name, rows)
            screen.show(render.Page([line, render.flat_table(_visible(rows))], spaced=False), line)
    show(c, run.rows, render.flat_table, output)
    sdk.sweeps.check_sweep(sweep.name, run.rows)


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
def _resumable(run: SweepRun) -> Iterator[None]:
    """After Ctrl-C, explain how to continue the sweep: submitted jobs keep running."""
    try:
        yield
    except KeyboardInterrupt:
        state = f"{run.submitted} of {counted(len(run.jobs), 'job')} of sweep {run.sweep.name} are submitted"
        say("", f"{state} and continue; run the same command again to submit the rest")
        raise
