"""What jobs found out."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework.base import connect, settings, show, task

mounts = lazy("openpai_tasks.storage.local.mounted")
render = lazy("openpai_tasks.render")
results_ = lazy("openpai_tasks.sdk.sweeps.results")


@task(
    positional=["names"],
    iterable=["names"],
    help={
        "names": "jobs, sweeps, or patterns such as 'train-*'",
        "output": "how to show it: table, csv, json or yaml",
    },
)
def results(c, names, cluster_alias=None, output=None):
    """Gather the JSON line that each job printed last, or its result.json."""
    mounted = mounts.mount_map(settings(c).storage_mounts)
    found = results_.gather(connect(c, cluster_alias), names, Path.cwd(), mounted)
    show(c, found, render.flat_table, output)
