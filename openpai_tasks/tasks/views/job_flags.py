"""The flags of every task that makes a job: one table, and one value that carries them."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace

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

NOT_GIVEN = {list: (), bool: False}

RUN = tuple(name for name in FLAGS if name not in ("instances", "role", "ports"))
"""Those of a job that is one task."""


class JobFlags(SimpleNamespace):
    """The values by name; a flag that the task does not have is as one that was not given."""

    def __init__(self, **given):
        said = {name: value for name, value in given.items() if value is not None}
        super().__init__(**{name: NOT_GIVEN.get(kind) for name, (kind, _) in FLAGS.items()} | said)

    def given(self):
        """Those that were given, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, [], ())}

    @property
    def memory_mb(self):
        return None if self.memoryMB is None else sdk.amounts.megabytes(self.memoryMB, "--memoryMB")

    def settings(self, c):
        """The settings of the job; what was given here is stronger than every other place."""
        return settings(
            c,
            image=self.image,
            sources=self.sources,
            pip_installs=self.pip_installs,
            python=self.python,
            cpu=self.cpu,
            gpu=self.gpu,
            memory_mb=self.memory_mb,
            workspace=self.workspace,
            virtual_cluster=self.virtual_cluster,
        )

    def wish(self, **more):
        """What is wished for beyond the settings; secrets that are not in the environment are asked for."""
        wished = {
            "name": self.job_name or "",
            "instances": 1 if self.instances is None else self.instances,
            "roles": tuple(self.role),
            "ports": tuple(self.ports),
            "shm": self.shm or "",
            "variables": tuple(self.env),
            "secrets": sdk.jobs.secrets(self.secret, secrets.for_job),
            "retries": self.retries or 0,
            "max_time": self.max_time or "",
        }
        return sdk.jobs.Wish(**{**wished, **more})


def job_task(*flags, iterable=(), kinds=None, help=None, **options):
    """A task with these flags of the table; its body takes them as one value, the keyword ``job``."""

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


def _spliced(body, flags):
    """The body with the flags in its signature, which is where Invoke reads them."""

    @functools.wraps(body)
    def taking(*words, **given):
        job = {name: given.pop(name) for name in flags if name in given}
        return body(*words, job=JobFlags(**job), **given)

    own = inspect.signature(body).parameters.values()
    spliced = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if FLAGS[name][0] is bool else None
        )
        for name in flags
    ]
    first = [item for item in own if item.kind is not item.KEYWORD_ONLY]
    last = [item for item in own if item.kind is item.KEYWORD_ONLY and item.name != "job"]
    taking.__signature__ = inspect.Signature([*first, *spliced, *last])  # type: ignore[attr-defined]
    return taking
