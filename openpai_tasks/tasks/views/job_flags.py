"""The flags that tasks share: those of jobs in one table, and help texts of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import say, settings
from openpai_tasks.tasks.framework.task import Body, PaiTask, typed_task, with_flags

if TYPE_CHECKING:
    from invoke.context import Context

    from openpai_tasks.protocol.document.request import JobRequest
    from openpai_tasks.sdk.jobs import JobOptions
    from openpai_tasks.sdk.jobs.placement import Demand, Describe
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
    "retries": (int, "how many times to retry the job after a failure"),
    "max_time": (str, "stop each task after this time (90s, 30m, 2h), with exit code 124"),
    "tag": (list, "tag for the job; repeat for more"),
    "after": (list, "start only after these jobs have succeeded: A,B; repeat for more"),
    "update": (
        list,
        "change the job document, path=value such as defaults.virtualCluster=lab; repeat for more",
    ),
    "workspace": (str, "folder on the storage for the job's files"),
    "virtual_cluster": (str, "virtual cluster to run in"),
    "requeue_on_timeout": (int, "how many times to run a task again that reaches --max-time (docs/jobs.md)"),
    "grace": (str, "how long before --max-time such a task gets TERM (default: 10 %, at most 60s)"),
    "idle_stop": (str, "stop the job when its GPUs have been idle for this time (30m, 1h)"),
    "preview": (bool, "show the plan, and send nothing; -o yaml, a file or a pipe gets the document"),
    "after_any": (list, "start only after these jobs have ended in any way; repeat for more"),
    "after_failed": (list, "start only after these jobs have failed; repeat for more"),
    "priority": (str, "low, normal or high: the order among waiting jobs (docs/jobs.md)"),
}
"""Each flag with its type and its help, which a task may override."""

BATCH_ONLY = ("retries", "max_time", "requeue_on_timeout", "grace", "idle_stop")
"""The flags of jobs that end by themselves; those that a user works in have their own limits."""
RUN = tuple(name for name in FLAGS if name not in ("instances", "role", "ports"))
"""The flags of jobs that run a single task."""


def job_options(flags: Mapping[str, Any], **more: Any) -> JobOptions:
    """Read the flags of a job; what is shown of it is not one of its options."""
    return sdk.jobs.read_options({name: flags[name] for name in flags if name != "preview"} | more)


def notify_option(value: str | None) -> dict[str, tuple[str, ...]]:
    """Return the option ``notify`` if the flag has a value; without one, it is not an option of the job.

    In a tuple, an empty value counts as given.
    """
    return {"notify": (value,)} if isinstance(value, str) else {}


def job_settings(c: Context, options: JobOptions, cluster_alias: str | None = None) -> Settings:
    """Load the settings for a job on this cluster, overridden by the options that were given."""
    return settings(c, **sdk.jobs.setting_overrides(options), cluster_alias=cluster_alias or None)


def choose_cluster(
    c: Context, cluster_alias: str | None, options: JobOptions, has_files: bool = False, ssh: bool = False
) -> str | None:
    """Return the named cluster; for `any`, the one that can start a job with these options first."""
    if cluster_alias != user_settings.registry.ANY:
        return cluster_alias
    return sdk.jobs.choose_cluster(settings(c), describe_job(c, options, has_files, ssh=ssh), say)


def describe_job(
    c: Context, options: JobOptions, has_files: bool = False, gpu_type: str = "", ssh: bool = False
) -> Describe:
    """Return a function that tells what a job with these options needs on a cluster."""

    def describe(alias: str) -> Demand:
        given = job_settings(c, options, alias)
        request = sdk.templates.build_request(options, given, lambda name: name, Path.cwd())
        mounts = sdk.files.mounts(given)
        return sdk.jobs.demand_of(request, mounts, has_files, gpu_type, ssh or options.needs_ssh)

    return describe


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
