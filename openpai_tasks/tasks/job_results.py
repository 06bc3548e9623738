"""Collect the results and the metrics of jobs."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, settings, show
from openpai_tasks.tasks.framework.task import task

NAMES_HELP = "jobs, sweeps, or patterns such as 'train-*'"
OUTPUT_HELP = "output format: table, csv, json or yaml"


@task(
    positional=["names"],
    iterable=["names"],
    kinds={"best": int},
    help={
        "names": NAMES_HELP,
        "sort": "sort by this value of the results or the sweep, highest first",
        "lowest": "with --sort: lowest first, as for a loss",
        "best": "with --sort: only the first jobs, so many",
        "output": OUTPUT_HELP,
    },
)
def results(c, names, sort=None, lowest=False, best=None, cluster_alias=None, output=None):
    """Collect each job's result: the last JSON line it printed, or its result.json."""
    views.sweeps.check_sorting(sort, lowest, best)
    mounted = sdk.files.mounts(settings(c))
    found = sdk.sweeps.gather_results(connect(c, cluster_alias), names, Path.cwd(), mounted)
    if sort is not None:
        found = sdk.sweeps.sort_results(found, sort, lowest, best)
    show(c, found, render.flat_table, output)


@task(
    positional=["names"],
    iterable=["names", "metric"],
    help={
        "names": NAMES_HELP,
        "metric": "only metrics with this name, or pattern such as 'val_*'; repeat for more",
        "plot": "draw the metrics by step",
        "picture": "write the plot to this file, as SVG",
        "follow": "update the view until the jobs end",
        "output": f"{OUTPUT_HELP}; all but the table have every point",
    },
)
def metrics(
    c,
    names,
    metric=None,
    plot=False,
    picture=None,
    follow=False,
    cluster_alias=None,
    output=None,
):
    """Show the metrics that jobs recorded: last and best values, or a plot by step."""
    views.metrics.check_picture(picture)
    how = (connect(c, cluster_alias), names, Path.cwd(), sdk.files.mounts(settings(c)))
    if follow:
        found = views.metrics.watch(sdk.sweeps.follow_metrics(*how), metric, plot)
    else:
        found = sdk.sweeps.gather_metrics(*how)
    chosen = sdk.jobs.select_metrics(found, metric)
    views.metrics.report_none(found, chosen)
    views.metrics.write_picture(chosen, picture)
    show(c, sdk.jobs.metric_rows(chosen), lambda _: views.metrics.view(plot)(chosen), output)
