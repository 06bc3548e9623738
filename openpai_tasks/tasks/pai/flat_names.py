"""The commands of the older clients, and the tasks that they run; for `pai` alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.tasks.framework.contexts import Classic

ASK = ("--ask",)


def _old(name: str) -> Callable[[], Any]:
    """Return a function that loads a task of old_commands.py."""

    def load() -> Any:
        from openpai_tasks.tasks.pai import old_commands

        return getattr(old_commands, name)

    return load


ADD_CLUSTER = Classic("cluster.add", renamed={"--authen-token": "--token"})
UPDATE_TOKEN = Classic("cluster.update", renamed={"--authen-token": "--token"})
LIST_JOBS = Classic("job.list", task=_old("list_jobs"))
JOB_STATUS = Classic("job.status", task=_old("job_status"))
NOTEBOOK_JOB = Classic("notebook.run", task=_old("notebook_job"), renamed={"--notebook-token": "--token"})
SUB = Classic("job.sub", greedy=True, task=_old("sub"))
STOP_JOBS = Classic("job.stop")
REMOVE = Classic("storage.remove", words=ASK)
LIST_STORAGES = Classic("storage.list")

CLASSIC = {
    "add-cluster": ADD_CLUSTER,
    "add-storage-cluster": Classic("storage.add"),
    "cluster-resources": Classic("cluster.resources"),
    "connect-job": Classic("job.connect"),
    "copy": Classic("storage.copy"),
    "cp": Classic("storage.copy", short=True),
    "delete": REMOVE,
    "delete-cluster": Classic("cluster.delete", words=ASK),
    "doctor": Classic("config.doctor", short=True),
    "edit-clusters": Classic("cluster.edit"),
    "getinfo": Classic("storage.getinfo"),
    "init": Classic("config.init", short=True),
    "job-status": JOB_STATUS,
    "list-clusters": Classic("cluster.list"),
    "list-jobs": LIST_JOBS,
    "list-storages": LIST_STORAGES,
    "listdir": Classic("storage.listdir"),
    "logs": Classic("job.logs", short=True),
    "ls": Classic("job.list", short=True),
    "makedir": Classic("storage.makedir"),
    "makedirs": Classic("storage.makedir"),
    "notebook-job": NOTEBOOK_JOB,
    "portal": Classic("cluster.portal", short=True),
    "remove": REMOVE,
    "run": Classic("job.sub", short=True),
    "select-cluster": Classic("cluster.select"),
    "select-storage": Classic("storage.select"),
    "set": Classic("config.set", task=_old("set_")),
    "ssh": Classic("container.ssh", short=True),
    "ssh-container": Classic("container.ssh", task=_old("ssh_container")),
    "start-container": Classic("container.start", task=_old("start_container")),
    "stop": Classic("job.stop", short=True),
    "stop-job": STOP_JOBS,
    "stop-jobs": STOP_JOBS,
    "sub": SUB,
    "submit": Classic("job.submit"),
    "top": Classic("container.top", short=True),
    "unset": Classic("config.unset"),
    "update-clusters": Classic("cluster.update"),
    "update-token": UPDATE_TOKEN,
    "why": Classic("job.why", short=True),
}
"""Flat commands: those of the older `pai`, and short names of ours."""

SHORT = {classic.target: name for name, classic in CLASSIC.items() if classic.short}
"""Our short names, by the task that they run."""

SPACED = {
    "cluster add": ADD_CLUSTER,
    "cluster attach-hdfs": Classic("storage.add", task=_old("attach_hdfs")),
    "job list": LIST_JOBS,
    "job notebook": NOTEBOOK_JOB,
    "job status": JOB_STATUS,
    "job sub": SUB,
    "notebook FILE": NOTEBOOK_JOB,
    "storage delete": Classic("storage.remove", words=ASK, task=_old("storage_delete")),
    "storage download": Classic("storage.copy", task=_old("storage_download")),
    "storage list": Classic("storage.list", task=_old("storage_list")),
    "storage list-storage": LIST_STORAGES,
    "storage status": Classic("storage.getinfo", task=_old("storage_status")),
    "storage upload": Classic("storage.copy", task=_old("storage_upload")),
}
"""Two words of `opai` that mean something else than the task with these words, or take other flags."""
