"""What a job did not find, although it is there: modules of the user's environment, and storages."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.clusters.inactive_python import FOREIGN, activation, inactive_environments
from openpai_tasks.sdk.diagnosis import symptoms
from openpai_tasks.sdk.jobs import documents, lookup

ENDINGS = ("", ".py", ".so", ".*.so")
ROOT = "$PAI_MOUNT_ROOT"
FAILURE = re.compile(r"No such file or directory|Permission denied|does not exist", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.~}/-])/[^\s'\"\u2019:;,)\]]+")


def explain_module(client: Backend, job: JobInfo, lines: Sequence[str]) -> tuple[str, str] | None:
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
    activate = "" if active else _activate(Path(here))
    again = f"`{lookup.command_for(client, 'job.resubmit', job)}` runs the job in your environment"
    return f"{found}, but the job ran {ran}", activate + again


def _activate(environment: Path) -> str:
    how = activation(environment)
    return f"activate it (`{how}`), then " if how else f"{FOREIGN}; then "


def _is_installed(name: str, folder: Path) -> bool:
    """Whether one of the environment's folders of packages has the module."""
    top = name.partition(".")[0]
    return any(
        any(packages.glob(f"{top}{ending}"))
        for packages in folder.glob("lib/python3*/site-packages")
        for ending in ENDINGS
    )


def explain_mount(client: Backend, job: JobInfo, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return meaning and advice if the job looked for a storage at its path in containers; else None."""
    named = [path for line in lines if FAILURE.search(line) for path in PATH.findall(line)]
    for mount in _mounts(client, job) if named else ():
        if any(path == mount or path.startswith(f"{mount}/") for path in named):
            code = f"os.environ.get('PAI_MOUNT_ROOT', '') + '{mount}'"
            return (
                f"the storage is not at {mount} here",
                f"write ${{PAI_MOUNT_ROOT-}}{mount}; in Python, {code}",
            )
    return None


def _mounts(client: Backend, job: JobInfo) -> Iterator[str]:
    """Yield the paths in containers of storages that tasks of this cluster find below PAI_MOUNT_ROOT."""
    with contextlib.suppress(PaiError):
        points = [one.mount_point for one in client.storages() if one.mount_point.startswith(ROOT)]
        yield from (point.removeprefix(ROOT) for point in points)
        if points:
            extras = fields.mapping(documents.job_document(client, job.key)[1].get("extras"))
            paths = (fields.text(one.get("mountPath")) for one in fields.rows(extras.get("storages")))
            yield from (path.rstrip("/") for path in paths if path.startswith("/"))
