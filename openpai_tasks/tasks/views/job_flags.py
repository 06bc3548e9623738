"""The flags that all tasks that submit jobs share, in one table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import settings
from openpai_tasks.tasks.framework.task import Body, PaiTask, task

if TYPE_CHECKING:
    from invoke.context import Context

    from openpai_tasks.protocol.document.request import JobRequest
    from openpai_tasks.settings.config import Settings

FLAGS: dict[str, tuple[type, str]] = {
    "job_name": (str, "name of the job; each $ becomes random letters (default: made from the command)"),
    "image": (str, "docker image to run in"),
    "sources": (list, "file or folder to upload with the job; repeat for more"),
    "outputs": (list, "files to keep when the job ends, such as 'model/*.pt'; repeat for more"),
    "pip_installs": (list, "package to install before the command; repeat for more"),
    "python": (str, "python in the image that installs the packages"),
    "instances": (int, "number of tasks that run the command"),
    "role": (
        list,
        "task role, name:key=value,... (instances cpu gpu mem shm image ports command); repeat for more",
    ),
    "cpu": (int, "CPU cores per task"),
    "gpu": (int, "GPUs per task"),
    "memoryMB": (str, "memory per task, in MB or as a size such as 16g"),
    "shm": (str, "shared memory per task, in MB or as a size such as 1g"),
    "ports": (
        list,
        "ports per task, label=count, or label=8080 for where a program listens; repeat for more",
    ),
    "env": (list, "environment variable of the job, NAME=VALUE; repeat for more"),
    "secret": (list, "name of a secret variable, read from your environment or asked for; repeat for more"),
    "retries": (int, "how often to retry the job after a failure"),
    "max_time": (str, "end each task after this time (90s, 30m, 2h), with exit code 124"),
    "tag": (list, "tag for the job; repeat for more"),
    "after": (list, "submit only after this job has succeeded; repeat for more"),
    "update": (
        list,
        "change the job document, path=value such as defaults.virtualCluster=lab; repeat for more",
    ),
    "workspace": (str, "folder on the storage for the job's files"),
    "virtual_cluster": (str, "virtual cluster to run in"),
    "preview": (bool, "show exactly what would be sent (secrets masked), and send nothing"),
}
"""Each flag with its type and its help, which a task may override."""

RUN = tuple(name for name in FLAGS if name not in ("instances", "role", "ports"))
"""The flags of jobs that run a single task."""


def job_settings(c: Context, flags: Mapping[str, Any]) -> Settings:
    """Load the settings, overridden by the flags that were given."""
    return settings(c, **sdk.jobs.setting_overrides(flags))


def job_request(flags: Mapping[str, Any], given: Settings, **more: Any) -> JobRequest:
    """Build the request from flags and settings; ask for secrets that are not in the environment."""
    return sdk.jobs.build_request({**flags, **more}, given, secrets.job_secret)


def job_task(
    *flags: str,
    iterable: Iterable[str] = (),
    kinds: Mapping[str, type] | None = None,
    help: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[Body], PaiTask]:
    """Make a task with these flags of the table; its body gets those that were given as ``flags``."""

    def decorate(body: Body) -> PaiTask:
        return task(
            iterable=[*(name for name in flags if FLAGS[name][0] is list), *iterable],
            kinds={name: int for name in flags if FLAGS[name][0] is int} | dict(kinds or {}),
            help=helps(*flags) | dict(help or {}),
            **options,
        )(_with_flags(body, flags))

    return decorate


def helps(*flags: str) -> dict[str, str]:
    """Return the help of these flags, by the names that a task takes."""
    return {name.replace("_", "-"): FLAGS[name][1] for name in flags}


def _with_flags(body: Body, flags: tuple[str, ...]) -> Body:
    """Put the flags into the body's signature, which is where Invoke reads them."""

    @functools.wraps(body)
    def wrapper(*words: Any, **given: Any) -> Any:
        job = {name: given.pop(name) for name in flags if name in given}
        job = {
            name: value
            for name, value in job.items()
            if value is not None and value is not False and value != []
        }
        return body(*words, flags=job, **given)

    wrapper.__signature__ = _signature(body, flags)  # type: ignore[attr-defined]
    return wrapper


def _signature(body: Body, flags: tuple[str, ...]) -> inspect.Signature:
    own = inspect.signature(body).parameters.values()
    spliced = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if FLAGS[name][0] is bool else None
        )
        for name in flags
    ]
    first = [item for item in own if item.kind is not item.KEYWORD_ONLY]
    last = [item for item in own if item.kind is item.KEYWORD_ONLY and item.name != "flags"]
    return inspect.Signature([*first, *spliced, *last])
