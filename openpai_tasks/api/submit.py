"""Submit a job in one line."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from openpai_tasks import sdk
from openpai_tasks.api.connection import Where, say
from openpai_tasks.api.drafts import CommandDraft
from openpai_tasks.api.job import Job
from openpai_tasks.errors import ConfigError, InvalidOption
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.sweeps.grid import value_text
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from openpai_tasks.api.options import JobOptions
    from openpai_tasks.sdk.sweeps.grid import Point

What = str | os.PathLike[str] | JobRequest
Axes = Mapping[str, Iterable[Any]] | Iterable[str]
"""The values of each parameter of a sweep, as a mapping or as ``name=value,value``."""

_JOB_FILE = re.compile(r"\S+\.(ya?ml|json)", re.IGNORECASE)


@overload
def submit(
    what: What = "",
    *,
    cluster: Where = None,
    cluster_alias: str | None = None,
    name: str | None = None,
    preview: bool = False,
    sweep: None = None,
    sweep_file: None = None,
    max_parallel: None = None,
    **options: Unpack[JobOptions],
) -> Job: ...


@overload
def submit(
    what: What = "",
    *,
    cluster: Where = None,
    cluster_alias: str | None = None,
    name: str | None = None,
    preview: bool = False,
    sweep: Axes | None = None,
    sweep_file: str | os.PathLike[str] | None = None,
    max_parallel: int | None = None,
    **options: Unpack[JobOptions],
) -> list[Job]: ...


def submit(
    what: What = "",
    *,
    cluster: Where = None,
    cluster_alias: str | None = None,
    name: str | None = None,
    preview: bool = False,
    sweep: Axes | None = None,
    sweep_file: str | os.PathLike[str] | None = None,
    max_parallel: int | None = None,
    **options: Unpack[JobOptions],
) -> Job | list[Job]:
    """Submit a command, a job file or a ``JobRequest``, and return the job.

    >>> from openpai_tasks import submit
    >>> job = submit("echo '{\\"loss\\": 0.25}'", cpu=1, env={"EPOCHS": 3})
    >>> job.result()
    {'loss': 0.25}

    The options are the flags of `job.sub`; what they do not say comes from the settings of the folder.
    ``name`` is the same as ``job_name``, and ``cluster_alias`` as ``cluster``.
    With ``preview`` nothing is sent: ``job.preview()`` shows what would be, ``job.submit()`` submits it.

    A sweep is a job for each combination of values; ``{name}`` in the command is replaced by the value:

    >>> jobs = submit("echo rate {rate}", sweep={"rate": [0.1, 0.01]})
    >>> [list(job.logs(follow=True)) for job in jobs]
    [['rate 0.1'], ['rate 0.01']]
    """
    job = make_job(what, one_of(cluster=cluster, cluster_alias=cluster_alias), name, options)
    if sweep is None and sweep_file is None:
        if max_parallel is not None:
            raise ConfigError("max_parallel is for sweeps")
        return job if preview else job.submit()
    if not isinstance(job.draft, CommandDraft):
        raise ConfigError("a sweep needs a command or a template")
    if preview:
        raise ConfigError("the jobs of a sweep have no preview: leave out preview")
    return _sweep(job, job.draft, _points(sweep, sweep_file), max_parallel)


def make_job(what: What, cluster: Where, name: str | None, options: JobOptions) -> Job:
    """Return a job that runs a command, a job file or a request, not submitted yet."""
    if chosen := one_of(name=name, job_name=options.get("job_name")):
        options = {**options, "job_name": chosen}
    job = Job(cluster=cluster)
    if not isinstance(what, (str, os.PathLike, JobRequest)):
        raise ConfigError(f"a job is a command, a path to a job file or a JobRequest, got {what!r}")
    if isinstance(what, JobRequest):
        return job.from_request(what, **options)
    if isinstance(what, os.PathLike) or _JOB_FILE.fullmatch(what):
        return job.from_file(what, **options)
    return job.from_command(what, **options)


def _points(sweep: Axes | None, file: str | os.PathLike[str] | None) -> list[Point]:
    """Return the combinations of all values, as texts."""
    rows = os.fspath(file) if file is not None else None
    if not isinstance(sweep, Mapping):
        axes = (sweep,) if isinstance(sweep, str) else tuple(sweep or ())
        return sdk.sweeps.parse_points(axes, rows)
    found = sdk.sweeps.parse_points((), rows) or [{}]
    values = [_values(name, several) for name, several in sweep.items()]
    return [
        {**row, **dict(zip(sweep, point, strict=True))}
        for row in found
        for point in itertools.product(*values)
    ]


def _values(name: str, several: Any) -> list[str]:
    texts = [] if isinstance(several, str) or not isinstance(several, Iterable) else list(several)
    if not texts:
        raise InvalidOption("sweep", f": {name} needs a list of values, got {several!r}")
    return [value_text(value) for value in texts]


def _sweep(job: Job, draft: CommandDraft, points: list[Point], most: int | None) -> list[Job]:
    """Submit the jobs of a sweep that are missing; return all of them."""
    request, given = draft.make_request()
    job.choose_cluster()
    backend, here = job.backend, Path.cwd()
    sdk.jobs.check_tags(backend, request.tags)
    packed, files = sdk.jobs.pack_files(backend, request, here, sdk.files.mounts(given))
    is_free = backend.capabilities.free_names
    for note in files.notes:
        say(note)
    planned = sdk.sweeps.plan_sweep(packed, files, points, bool(request.name), is_free)
    sdk.jobs.hooks_to_notify(backend, planned.hooks, False, bool(draft.options.notify))
    sdk.jobs.report_unused(backend, planned.hooks, say)
    sdk.jobs.check_dependencies(backend, request.policy.after, say)
    run = sdk.sweeps.SweepRun(backend, planned, here, say)
    for _ in run.until_over(most, detach=True):
        pass
    return [Job(name, job) for name in run.jobs]
