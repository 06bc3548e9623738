"""Commands of the older clients whose words or flags differ from our tasks'; they call our tasks.

They are not listed: `pai` finds them by the names in flat_names.py. Tasks are called through the program, so
that a project's own version of a task counts here, too.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from typing import Any

from invoke.context import Context

from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import config, container
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks.framework import parser
from openpai_tasks.tasks.framework.base import say, settings
from openpai_tasks.tasks.framework.task import flags_of, with_flags
from openpai_tasks.tasks.framework.task import typed_task as task
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


@task(positional=["name"], help=USER_HELP)
@with_flags(flags_of(job_tasks.list_))
def list_jobs(c: Context, name: str | None = None, *, flags: dict[str, Any]) -> None:
    """List jobs, or show one."""
    if name is None:
        return _call(c, "job.list", **flags)
    shown = {key: flags.get(key) for key in ("cluster_alias", "output")}
    return _call(c, "job.status", _of_user(flags.get("user"), name), **shown)


@task(positional=["name"], help=USER_HELP)
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


@task(help=container.start.help)
@with_flags(flags_of(container.start))
def start_container(c: Context, *, flags: dict[str, Any]) -> None:
    """Start a container; open a shell in it, or print the ssh command if there is no terminal."""
    if not sys.stdin.isatty():
        flags["shell"] = False
    _task("container.start")(c, **flags)


@task(positional=["command"], help={**submit_command.help, **PIP_HELP})
@with_flags(flags_of(submit_command))
def sub(
    c: Context, command: str | None = None, *, flags: dict[str, Any], pip_path: str | None = None
) -> None:
    """Submit a command as a job."""
    _call(c, "job.sub", command, **_with_python(flags, pip_path))


@task(
    positional=["file"],
    help={
        **run_notebook.help,
        **PIP_HELP,
        "interactive": "serve the notebook from the job, as notebook.serve does",
        "token": "with --interactive: token of the server",
    },
)
@with_flags(flags_of(run_notebook))
def notebook_job(
    c: Context,
    file: str | None = None,
    *,
    flags: dict[str, Any],
    pip_path: str | None = None,
    interactive: bool = False,
    token: str | None = None,
) -> None:
    """Run a notebook as a job, or serve it from one."""
    flags = _with_python(flags, pip_path)
    if not interactive:
        if file is None:
            raise ConfigError("a notebook is needed, except with --interactive")
        if token:
            say("--token is ignored without --interactive")
        return _call(c, "notebook.run", file, **flags)
    served = {item.name for item in flags_of(serve_notebook)}
    unknown = sorted(f"--{name.replace('_', '-')}" for name in flags.keys() - served)
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} cannot be used with --interactive")
    return _call(c, "notebook.serve", *filter(None, [file]), **flags, token=token)


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


@task(positional=["values"], help=config.set_.help)
def set_(
    c: Context, values: list[str] | None = None, is_global: bool = False, output: str | None = None
) -> None:
    """Set defaults; without values, show all settings."""
    if values:
        return _call(c, "config.set", values, is_global=is_global)
    return _call(c, "config.show", output=output)


def _url(c: Context, path: str, storage_alias: str | None = None, cluster_alias: str | None = None) -> str:
    """Return the location of a path on a cluster's storage."""
    if "://" in path:
        return path
    alias = cluster_alias or settings(c).cluster_alias
    return f"pai://{alias}/{storage_alias or 0}/{path.lstrip('/')}"


on_storage = with_flags([*inspect.signature(_url).parameters.values()][2:])


@task(positional=["remote"], help=STORAGE_HELP)
@on_storage
def storage_list(
    c: Context, remote: str | None = None, *, flags: dict[str, Any], output: str | None = None
) -> None:
    """List the files of a folder on a storage, or a cluster's storages."""
    if remote is None or not ("/" in remote or any(flags.values())):  # no alias has a slash
        return _call(c, "storage.list", remote or flags.get("cluster_alias"), output=output)
    return _call(c, "storage.listdir", [_url(c, remote, **flags)], output=output)


@task(help=STORAGE_HELP)
@on_storage
def storage_status(c: Context, remote: str, *, flags: dict[str, Any], output: str | None = None) -> None:
    """Show details of a file or folder on a storage."""
    _call(c, "storage.getinfo", _url(c, remote, **flags), output=output)


@task(help={**STORAGE_HELP, "local": "file or folder on this machine", "overwrite": "has no effect"})
@on_storage
def storage_upload(
    c: Context,
    local: str,
    remote: str,
    overwrite: bool = False,
    *,
    flags: dict[str, Any],
    output: str | None = None,
) -> None:
    """Copy a file or folder to a storage."""
    _call(c, "storage.copy", [local, _url(c, remote, **flags)], output=output)


@task(help={**STORAGE_HELP, "local": "path on this machine"})
@on_storage
def storage_download(
    c: Context, remote: str, local: str, *, flags: dict[str, Any], output: str | None = None
) -> None:
    """Copy a file or folder from a storage."""
    _call(c, "storage.copy", [_url(c, remote, **flags), local], output=output)


@task(help=STORAGE_HELP)
@on_storage
def storage_delete(
    c: Context,
    remote: str,
    recursive: bool = False,
    ask: bool = False,
    yes: bool = False,
    *,
    flags: dict[str, Any],
) -> None:
    """Remove a file or folder from a storage."""
    _call(c, "storage.remove", [_url(c, remote, **flags)], recursive=recursive, ask=ask, yes=yes)


def _call(c: Context, name: str, *words: Any, **flags: Any) -> None:
    """Call a task as the program knows it, with the flags that were given."""
    _task(name)(c, *words, **{key: value for key, value in flags.items() if is_given(value)})


def _task(name: str) -> Any:
    line = parser.current_line.get()
    assert line is not None
    return line.program.collection[name]


def is_given(value: Any) -> bool:
    """Whether this is the value of a flag that was given; 0 is one."""
    return value is not None and value is not False and value != []


def _of_user(user: str | None, name: str) -> str:
    return f"{user}~{name}" if user and "~" not in name else name


def _with_python(flags: dict[str, Any], pip: str | None) -> dict[str, Any]:
    """Add the python next to this pip, which installs packages here."""
    if not pip:
        return flags
    folder, name = os.path.split(pip)
    found = re.fullmatch(r"pip([0-9.]*)", name)
    if not found or "python" in flags:
        raise ConfigError(f"--pip-path {pip}: give the python that installs packages instead, with --python")
    return {**flags, "python": os.path.join(folder, f"python{found[1]}")}
