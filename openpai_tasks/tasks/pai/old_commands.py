"""Commands of the older clients whose words or flags differ from our tasks'; they call our tasks.

They are not listed: `pai` finds them by the names in flat_names.py. Tasks are called through the program, so
that a project's own version of a task counts here, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from invoke.context import Context

from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks.framework import parser
from openpai_tasks.tasks.framework.base import say, settings
from openpai_tasks.tasks.framework.task import same_flags_as, task
from openpai_tasks.tasks.job import submit_command
from openpai_tasks.tasks.notebook import run as run_notebook
from openpai_tasks.tasks.notebook import serve as serve_notebook

QUERIES = {None: "job.status", "config": "job.config", "ssh": "container.list"}
PIP_HELP = {"pip-path": "pip in the image that installs the packages"}
USER_HELP = {"user": "whose job it is (default: yours)"}
STORAGE_HELP = {
    "remote": "path on the storage",
    "storage-alias": "the storage (default: the selected one)",
}


@task(positional=["name", "query"], help={**USER_HELP, "query": "config or ssh (default: the status)"})
def job_status(
    c: Context,
    name: str,
    query: str | None = None,
    user: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show one job, its document (config), or the ssh addresses of its containers (ssh)."""
    if query not in QUERIES:
        known = ", ".join(filter(None, QUERIES))
        raise ConfigError(f"job-status shows {known} or, without a word, the status; got {query!r}")
    _call(c, QUERIES[query], _of_user(user, name), cluster_alias=cluster_alias, output=output)


@task(positional=["name"], iterable=job_tasks.list_.iterable, kinds=job_tasks.list_.kinds, help=USER_HELP)
@same_flags_as(job_tasks.list_, word="name")
def list_jobs(c: Context, name: str, flags: dict[str, Any]) -> None:
    """List jobs, or show one."""
    if name is None:
        return _call(c, "job.list", **flags)
    shown = {key: flags[key] for key in ("cluster_alias", "output")}
    return _call(c, "job.status", _of_user(flags["user"], name), **shown)


@task(positional=["name"], kinds={"index": int}, help=USER_HELP)
def ssh_container(
    c: Context,
    name: str | None = None,
    job_name: str | None = None,
    user: str | None = None,
    role: str | None = None,
    index: int | None = None,
    cluster_alias: str | None = None,
) -> None:
    """Open a shell in a container."""
    job = name or job_name
    if not job:
        raise ConfigError("ssh-container needs the job: --job-name NAME")
    _call(c, "container.ssh", _of_user(user, job), role=role, index=index, cluster_alias=cluster_alias)


@task(
    positional=["command"],
    iterable=submit_command.iterable,
    kinds=submit_command.kinds,
    help={**submit_command.help, **PIP_HELP},
)
@same_flags_as(submit_command, more={"pip_path": None})
def sub(c: Context, command: str, flags: dict[str, Any]) -> None:
    """Submit a command as a job."""
    _call(c, "job.sub", command, **_with_python(flags))


@task(
    positional=["file"],
    iterable=run_notebook.iterable,
    kinds=run_notebook.kinds,
    help={
        **run_notebook.help,
        **PIP_HELP,
        "interactive": "serve the notebook from the job, as notebook.serve does",
        "token": "with --interactive: token of the server",
    },
)
@same_flags_as(run_notebook, more={"pip_path": None, "interactive": False, "token": None})
def notebook_job(c: Context, file: str, flags: dict[str, Any]) -> None:
    """Run a notebook as a job, or serve it from one."""
    flags = _with_python(flags)
    if not flags.pop("interactive", False):
        if flags.pop("token", None):
            say("--token is ignored without --interactive")
        return _call(c, "notebook.run", file, **flags)
    served = {argument.name for argument in serve_notebook.get_arguments()}
    unknown = sorted(f"--{name.replace('_', '-')}" for name in flags.keys() - served)
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} cannot be used with --interactive")
    return _call(c, "notebook.serve", file, **flags)


@task(
    help={
        "storage-alias": "your name for the storage",
        "web-hdfs-uri": "address of its name node",
        "default": "select it",
    },
)
def attach_hdfs(
    c: Context,
    storage_alias: str = "hdfs",
    web_hdfs_uri: str = "",
    default: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Add an HDFS to a cluster."""
    where = {"cluster_alias": cluster_alias, "output": output}
    _call(c, "storage.add", storage_alias, type="hdfs", address=web_hdfs_uri, **where)
    if default:
        _call(c, "storage.select", storage_alias, **where)


@task(positional=["remote"], help=STORAGE_HELP)
def storage_list(
    c: Context,
    remote: str | None = None,
    storage_alias: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List the files of a folder on a storage, or a cluster's storages."""
    if remote is None or not (storage_alias or cluster_alias):
        return _call(c, "storage.list", remote or cluster_alias, output=output)
    return _call(c, "storage.listdir", [_url(c, remote, cluster_alias, storage_alias)], output=output)


@task(positional=["remote"], help=STORAGE_HELP)
def storage_status(
    c: Context,
    remote: str,
    storage_alias: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show details of a file or folder on a storage."""
    _call(c, "storage.getinfo", _url_or_path(c, remote, cluster_alias, storage_alias), output=output)


@task(
    positional=["local", "remote"],
    help={**STORAGE_HELP, "local": "file or folder on this machine", "overwrite": "has no effect"},
)
def storage_upload(
    c: Context,
    local: str,
    remote: str,
    overwrite: bool = False,
    storage_alias: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Copy a file or folder to a storage."""
    _call(c, "storage.copy", [local, _url(c, remote, cluster_alias, storage_alias)], output=output)


@task(positional=["remote", "local"], help={**STORAGE_HELP, "local": "path on this machine"})
def storage_download(
    c: Context,
    remote: str,
    local: str,
    storage_alias: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Copy a file or folder from a storage."""
    _call(c, "storage.copy", [_url(c, remote, cluster_alias, storage_alias), local], output=output)


@task(positional=["remote"], help=STORAGE_HELP)
def storage_delete(
    c: Context,
    remote: str,
    recursive: bool = False,
    ask: bool = False,
    yes: bool = False,
    storage_alias: str | None = None,
    cluster_alias: str | None = None,
) -> None:
    """Remove a file or folder from a storage."""
    path = _url_or_path(c, remote, cluster_alias, storage_alias)
    _call(c, "storage.remove", [path], recursive=recursive, ask=ask, yes=yes)


def _call(c: Context, name: str, *words: Any, **flags: Any) -> None:
    """Call a task as the program knows it, with the flags that were given."""
    line = parser.current_line.get()
    assert line is not None
    given = {key: value for key, value in flags.items() if value not in (None, False, [])}
    line.program.collection[name](c, *words, **given)


def _of_user(user: str | None, name: str) -> str:
    return f"{user}~{name}" if user and "~" not in name else name


def _with_python(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``pip_path`` by the python next to it, which installs packages here; drop flags not given."""
    given = {name: value for name, value in flags.items() if value not in (None, False, [])}
    pip = given.pop("pip_path", "")
    if not pip:
        return given
    folder, name = os.path.split(pip)
    found = re.fullmatch(r"pip([0-9.]*)", name)
    if not found or "python" in given:
        raise ConfigError(f"--pip-path {pip}: give the python that installs packages instead, with --python")
    return {**given, "python": os.path.join(folder, f"python{found[1]}")}


def _url(c: Context, path: str, cluster_alias: str | None, storage: str | None) -> str:
    """Return the location of a path on a cluster's storage."""
    if path.startswith("pai://"):
        return path
    alias = cluster_alias or settings(c).cluster_alias
    return f"pai://{alias}/{storage or 0}/{path.lstrip('/')}"


def _url_or_path(c: Context, path: str, cluster_alias: str | None, storage: str | None) -> str:
    """Return the location on a storage if one is named, else the path itself."""
    return _url(c, path, cluster_alias, storage) if cluster_alias or storage else path
