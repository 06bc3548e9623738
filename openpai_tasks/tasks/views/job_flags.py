"""The flags of every task that makes a job, in one table."""

from __future__ import annotations

import functools
import inspect

from openpai_tasks import sdk
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import settings, task

FLAGS = {
    "job_name": (str, "its name; each $ becomes random letters; made from the command if not given"),
    "image": (str, "the docker image to run in"),
    "sources": (list, "file or folder to take along; repeat for more"),
    "pip_installs": (list, "package to install first; repeat for more"),
    "python": (str, "the python that installs packages"),
    "instances": (int, "how many tasks run the command"),
    "role": (
        list,
        "name:key=value,... (instances cpu gpu mem shm image ports command); repeat for more roles",
    ),
    "cpu": (int, "CPU cores of each task"),
    "gpu": (int, "GPUs of each task"),
    "memoryMB": (str, "memory of each task: MB, or a size such as 16g"),
    "shm": (str, "shared memory of each task: MB, or a size such as 1g"),
    "ports": (list, "ports of each task, label=count; repeat for more"),
    "env": (list, "variable for the job, NAME=VALUE; repeat for more"),
    "secret": (list, "name of a secret variable; its value is in the environment here, or asked for"),
    "retries": (int, "how often the job is tried again after a failure"),
    "max_time": (str, "end each task after this time (90s, 30m, 2h), with exit code 124"),
    "tag": (list, "tag to put on the job; repeat for more"),
    "after": (list, "submit only after this job has succeeded; repeat for more"),
    "update": (
        list,
        "change the document first, path=value such as defaults.virtualCluster=lab; repeat for more",
    ),
    "workspace": (str, "folder on the storage that the job's files are kept in"),
    "virtual_cluster": (str, "the part of the cluster to run in"),
    "preview": (bool, "show exactly what would be sent (secrets masked), and send nothing"),
}
"""Each with its kind and what it is for, unless a task says that better."""

RUN = tuple(name for name in FLAGS if name not in ("instances", "role", "ports"))
"""Those of a job that is one task."""


SETTINGS = ("image", "sources", "pip_installs", "python", "cpu", "gpu", "workspace", "virtual_cluster")
"""Flags that are settings, too: one that is given is stronger than every other place."""


def job_settings(c, flags):
    """The settings of the job."""
    memory = flags.get("memoryMB")
    return settings(
        c,
        memory_mb=None if memory is None else sdk.amounts.megabytes(memory, "--memoryMB"),
        **{name: flags.get(name) for name in SETTINGS},
    )


def job_request(flags, given, **more):
    """The request that flags and settings make; secrets that are not in the environment are asked for."""
    return sdk.jobs.build_request({**flags, **more}, given, secrets.for_job)


def job_task(*flags, iterable=(), kinds=None, help=None, **options):
    """A task with these flags of the table; its body takes those that were given as ``flags``."""

    def decorate(body):
        return task(
            iterable=[*(name for name in flags if FLAGS[name][0] is list), *iterable],
            kinds={name: int for name in flags if FLAGS[name][0] is int} | (kinds or {}),
            help=helps(*flags) | (help or {}),
            **options,
        )(_spliced(body, flags))

    return decorate


def helps(*flags):
    """What these flags are for, as a task is told it."""
    return {name.replace("_", "-"): FLAGS[name][1] for name in flags}


def _is_given(value):
    return value is not None and value is not False and value != []


def _spliced(body, flags):
    """The body with the flags in its signature, which is where Invoke reads them."""

    @functools.wraps(body)
    def taking(*words, **given):
        job = {name: given.pop(name) for name in flags if name in given}
        job = {
            name: value
            for name, value in job.items()
            if value is not None and value is not False and value != []
        }
        return body(*words, flags=job, **given)

    own = inspect.signature(body).parameters.values()
    spliced = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if FLAGS[name][0] is bool else None
        )
        for name in flags
    ]
    first = [item for item in own if item.kind is not item.KEYWORD_ONLY]
    last = [item for item in own if item.kind is item.KEYWORD_ONLY and item.name != "flags"]
    taking.__signature__ = inspect.Signature([*first, *spliced, *last])  # type: ignore[attr-defined]
    return taking
