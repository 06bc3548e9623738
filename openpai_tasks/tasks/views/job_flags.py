"""The flags that tasks share: those of jobs in one table, and help texts of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import settings
from openpai_tasks.tasks.framework.task import Body, PaiTask, typed_task, with_flags

if TYPE_CHECKING:
    from invoke.context import Context

    from openpai_tasks.protocol.document.request import JobRequest
    from openpai_tasks.sdk.jobs import JobOptions
    from openpai_tasks.settings.config import Settings

COMMAND_HELP = "what to run, in quotes; or everything after --"
COPY_HELP = {
    "checksum": "compare files by content, not by size and time",
    "workers": "number of files to copy at once",
    "preview": "only show what would be done",
}

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


def job_options(flags: Mapping[str, Any], **more: Any) -> JobOptions:
    """Read the flags of a job; what is shown of it is not one of its options."""
    return sdk.jobs.read_options({name: flags[name] for name in flags if name != "preview"} | more)


def job_settings(c: Context, options: JobOptions) -> Settings:
    """Load the settings, overridden by the options that were given."""
    return settings(c, **sdk.jobs.setting_overrides(options))


def job_request(options: JobOptions, given: Settings) -> JobRequest:
    """Build the request from options and settings; ask for secrets that are not in the environment."""
    return sdk.jobs.build_request(options, given, secrets.job_secret)


def job_task(*flags: str, help: Mapping[str, str] | None = None, **options: Any) -> Callable[[Body], PaiTask]:
    """Make a task with these flags of the table; its body gets those that were given as ``flags``."""
    helps = {name.replace("_", "-"): FLAGS[name][1] for name in flags}
    added = with_flags(
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if FLAGS[name][0] is bool else None,
            annotation=FLAGS[name][0],
        )
        for name in flags
    )
    return lambda body: typed_task(help={**helps, **(help or {})}, **options)(added(body))
