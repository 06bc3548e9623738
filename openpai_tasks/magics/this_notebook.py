"""Submit the current notebook as a job."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.api.options import NAMES, read_options, words
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.magics.commands import Failed, settings
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.files import storages
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.options import build_request, setting_overrides
from openpai_tasks.sdk.notebooks import running as notebooks
from openpai_tasks.sdk.notebooks.notebook_file import SUFFIX, Notebook, read_notebook
from openpai_tasks.sdk.notebooks.running import RunOptions
from openpai_tasks.sdk.payloads.notebook_runner import source_of
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.value_types import one_of
from openpai_tasks.text.plain import one_line

VS_CODE = "__vsc_ipynb_file__"  # a variable that VS Code sets in the notebook
JUPYTER = "JPY_SESSION_NAME"  # an environment variable that Jupyter's server sets

COMMAND_FLAGS = {"instances", "role", "ports", "ssh", "template", "parameter"}  # of jobs that run a command
FLAGS = {*NAMES} - COMMAND_FLAGS | {"cluster", "cluster_alias", "memory", "name"}


def submit_this_notebook(
    path: str | Path | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    to: str | Sequence[str] = (),
    kernel: str = "",
    timeout_per_cell: str = "",
    allow_errors: bool = False,
    unsaved: bool = False,
    **given: Any,
) -> JobInfo | None:
    """Submit this notebook, as saved, as a job; ``given`` are the flags of `notebook.run`.

    job_name or name, image, sources, outputs, pip_installs, python, cpu, gpu, memory (or memoryMB), shm, env
    (a mapping), secret, retries, max_time, tag, after, after_any, after_failed, update, workspace,
    virtual_cluster, cluster_alias (or cluster). Values of secrets are taken from the environment.

    Cells that use the cluster (this one, and those with our magics) are left out. ``path`` is the notebook's
    file, if it cannot be found automatically; ``unsaved`` submits the file even if it lacks this cell.
    """
    if _is_run_by_a_job():
        _say(f"running in job {os.environ['PAI_JOB_NAME']} itself: nothing is submitted")
        return None
    try:
        _check_arguments(given)
        notebook = this_notebook(path, unsaved)
        options = notebooks.run_options(
            notebooks.check_parameters(parameters or {}),
            words(to, "to"),
            kernel,
            timeout_per_cell,
            allow_errors,
        )
        alias = one_of(cluster=given.pop("cluster", None), cluster_alias=given.pop("cluster_alias", None))
        name = one_of(name=given.pop("name", None), job_name=given.pop("job_name", None))
        memory = given.pop("memory", None)
        wanted = read_options({"memoryMB": memory, "job_name": name, **given}, FLAGS)
        chosen = settings(cluster_alias=alias, **setting_overrides(wanted))
        request = build_request(wanted, chosen, _secret)
        _report(notebook, options)
        return _submit(notebook, options, request, chosen)
    except PaiError as err:
        raise Failed(str(err), err.exit_code) from None


def _submit(notebook: Notebook, options: RunOptions, request: JobRequest, given: Settings) -> JobInfo:
    client = clusters.connect(given, say=_say)
    submission.check_tags(client, request.tags)
    made = notebooks.plan_run(client, notebook, options, request, Path.cwd(), storages.mounts(given))
    job = submission.submit_when_ready(client, made, _say)
    _say(f"job {job.name} submitted to {client.cluster.alias}")
    _say(f"`%pai notebook.fetch {job.name} --follow` waits for its results and fetches them")
    return job


def this_notebook(path: str | Path | None = None, unsaved: bool = False) -> Notebook:
    """Read the current notebook from its file."""
    here = Path.cwd()
    notebook = read_notebook(str(path or find(_namespace(), os.environ, here)), here)
    if not unsaved:
        check_saved(notebook, _running_cell())
    return notebook


def find(namespace: Mapping[str, Any], environment: Mapping[str, str], here: Path) -> Path:
    """Return the file of the notebook, as set by VS Code or Jupyter's server."""
    name = str(namespace.get(VS_CODE) or environment.get(JUPYTER) or "")
    hint = "name it: submit_this_notebook('its-file.ipynb')"
    if not name.endswith(SUFFIX):
        raise ConfigError(f"cannot find out which file this notebook is in; {hint}")
    places = [Path(name), here / Path(name).name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(
            f"this notebook was {name!r} when its kernel started, but that file is gone; {hint}"
        )
    return found


def check_saved(notebook: Notebook, running: str) -> None:
    """Raise if the file lacks the running cell, which means that the notebook was not saved."""
    known = {source_of(cell).strip() for cell in notebook.cells}
    if running and running.strip() not in known:
        hint = "save the notebook and run this cell again (unsaved=True submits the file as it is)"
        raise ConfigError(f"{notebook.name} does not contain this cell as it is now; {hint}")


def _report(notebook: Notebook, options: RunOptions) -> None:
    """Report what is submitted."""
    lines = notebooks.remarks(notebook, options)
    saved = time.strftime("%H:%M:%S", time.localtime(notebook.path.stat().st_mtime))
    for line in (f"{notebook.name} as it was saved at {saved}", *lines):
        _say(line)


def _secret(name: str) -> str:
    if name not in os.environ:
        hint = f"os.environ[{name!r}] = getpass.getpass()"
        raise ConfigError(f"secret {name!r} is not in the environment; set it with {hint}")
    return os.environ[name]


def _check_arguments(given: Iterable[str]) -> None:
    """Raise for an argument that does not exist, as a command line does."""
    known = [*inspect.signature(submit_this_notebook).parameters, *FLAGS]
    for name in set(given) - FLAGS:
        hint = difflib.get_close_matches(name, known, 1)
        guess = f", did you mean {hint[0]}?" if hint else ""
        raise ConfigError(f"submit_this_notebook has no argument {name!r}{guess}")


def _is_run_by_a_job() -> bool:
    """Whether a job runs the notebook non-interactively, where it would submit itself without end."""
    return "PAI_JOB_NAME" in os.environ and JUPYTER not in os.environ and VS_CODE not in _namespace()


def _shell() -> Any:
    """Return the IPython shell, if there is one."""
    found = sys.modules.get("IPython")
    return found.get_ipython() if found else None


def _namespace() -> Mapping[str, Any]:
    shell = _shell()
    return shell.user_ns if shell else {}


def _running_cell() -> str:
    shell = _shell()
    return str(shell.history_manager.input_hist_raw[-1]) if shell else ""


def _say(line: str) -> None:
    if line:
        sys.stderr.write(f"{one_line(line)}\n")
        sys.stderr.flush()
