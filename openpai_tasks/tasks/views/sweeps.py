"""A sweep on the screen: one table that updates, and the same table as data at the end."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.screen import Screen
from openpai_tasks.tasks.views.submitting import report_sources, show_preview


def run_sweep(c, client, sweep, most, detach, preview, output):
    """Submit a job for each point, show them as they go, and fail if one of them does."""
    sdk.jobs.check_tags(client, sweep.request.tags)
    report_sources(sweep.files)
    if preview:
        say(f"sweep {sweep.name}: {len(sweep.points)} jobs, of which the first is shown")
        show_preview(client, sweep.submission(next(iter(sweep.points))))
        return
    sdk.jobs.wait_for_success(client, sweep.request.after, say)
    screen = Screen(sys.stderr)
    run = sdk.sweeps.SweepRun(client, sweep, Path.cwd(), say, glance=0.5 if sys.stderr.isatty() else 10)
    with _resumable(run), client.saying(screen.say):
        for rows in run.until_over(most, detach):
            screen.show(_picture(sweep.name, rows), sdk.sweeps.describe_progress(sweep.name, rows))
    screen.clear()
    show(c, run.rows, render.flat_table, output)
    sdk.sweeps.check_sweep(sweep.name, run.rows)


def _picture(name, rows):
    """As many jobs as the screen has lines for, those that move first."""
    room = max(3, shutil.get_terminal_size().lines - 4)
    order = {"FAILED": 0, "STOPPED": 0, "RUNNING": 1, "STOPPING": 1, "WAITING": 2, "": 3, "SUCCEEDED": 4}
    shown = rows if len(rows) <= room else sorted(rows, key=lambda row: order.get(row.state, 1))[:room]
    return f"{render.flat_table(shown)}\n{sdk.sweeps.describe_progress(name, rows)}"


@contextlib.contextmanager
def _resumable(run):
    """Ctrl-C ends the submitting and the watching; the same command goes on from there."""
    try:
        yield
    except KeyboardInterrupt:
        told = f"{run.submitted} of {len(run.jobs)} jobs of sweep {run.sweep.name} are submitted and go on"
        say("", f"{told}; the same command again submits what is missing")
        raise
