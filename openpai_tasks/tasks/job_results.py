"""Collect the results of jobs."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework.base import connect, settings, show
from openpai_tasks.tasks.framework.task import task


@task(
    positional=["names"],
    iterable=["names"],
    help={
        "names": "jobs, sweeps, or patterns such as 'train-*'",
        "output": "output format: table, csv, json or yaml",
    },
)
def results(c, names, cluster_alias=None, output=None):
    """Collect each job's result: the last JSON line it printed, or its result.json."""
    mounted = sdk.files.mounts(settings(c))
    found = sdk.sweeps.gather_results(connect(c, cluster_alias), names, Path.cwd(), mounted)
    show(c, found, render.flat_table, output)
