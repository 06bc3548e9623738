"""Check job files, here or in an editor."""

from __future__ import annotations

import json
from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import show
from openpai_tasks.tasks.framework.task import task


@task(positional=["files"], iterable=["files"], help={"files": "job files: v2 YAML or v1 JSON"})
def validate(c, files, output=None):
    """Check job files without a cluster."""
    verdicts = [sdk.jobs.validate_file(Path(file)) for file in files]
    show(c, verdicts, render.verdicts, output)
    sdk.jobs.check_verdicts(verdicts)


@task(help={"settings": "print the schema of the settings in an invoke.yaml instead"})
def schema(c, settings=False):
    """Print the JSON Schema of job files, for editors."""
    terminal.put(
        json.dumps(sdk.templates.settings_schema() if settings else sdk.templates.job_schema(), indent=2)
    )
