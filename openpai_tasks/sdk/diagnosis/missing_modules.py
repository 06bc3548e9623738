"""Modules that a job did not find, although they are installed in the user's virtual environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.clusters.inactive_python import activation, inactive_environments
from openpai_tasks.sdk.diagnosis import symptoms
from openpai_tasks.sdk.jobs import lookup

ENDINGS = ("", ".py", ".so", ".*.so")


def explain_missing(client: Backend, job: JobInfo, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return meaning and advice if the job lacked a module that is installed here; else None."""
    name = symptoms.missing_module(lines)
    active = python_folder(os.environ)
    known = [Path(active)] if active else inactive_environments(Path.cwd(), own=True)
    here = next((str(one) for one in known if name and _is_installed(name, one)), "")
    if not here:
        return None
    found = f"module {name} is installed in {here}"
    if not job.environment:
        return f"{found}, but not where the job ran", symptoms.INSTALL
    if job.python and os.path.realpath(job.python) == os.path.realpath(here):
        return f"{found}, but the command used another Python", "start `python` without a path before it"
    ran = f"with {job.python}" if job.python else "without a virtual environment"
    activate = "" if active else f"activate it (`{activation(Path(here))}`), then "
    again = f"`{lookup.command_for(client, 'job.resubmit', job)}` runs the job in your environment"
    return f"{found}, but the job ran {ran}", activate + again


def _is_installed(name: str, folder: Path) -> bool:
    """Whether one of the environment's folders of packages has the module."""
    top = name.partition(".")[0]
    return any(
        any(packages.glob(f"{top}{ending}"))
        for packages in folder.glob("lib/python3*/site-packages")
        for ending in ENDINGS
    )
