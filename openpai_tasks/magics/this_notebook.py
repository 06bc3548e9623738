"""The notebook that is being worked in, as a job: finding its file, and what of it goes along."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.magics.commands import Failed, settings
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import clusters, jobs, notebooks, wishes
from openpai_tasks.sdk.notebook_runner import source_of
from openpai_tasks.sdk.notebooks import Notebook, Options
from openpai_tasks.storage.mounted import mount_map

VS_CODE = "__vsc_ipynb_file__"  # a variable that VS Code sets in the notebook
JUPYTER = "JPY_SESSION_NAME"  # one of the environment, which Jupyter's server sets
SUFFIX = ".ipynb"

_OURS = re.compile(r"^\s*%(load_ext|reload_ext)\s+openpai_tasks\b|^\s*(\w+\s*=\s*)?%pai\b|^%%pai_sub\b", re.M)
_CALL = "submit_this_notebook("


def submit_this_notebook(
    path: str | Path | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    to: Sequence[str] = (),
    kernel: str = "",
    timeout_per_cell: str = "",
    allow_errors: bool = False,
    job_name: str = "",
    image: str | None = None,
    sources: Sequence[str] | None = None,
    pip_installs: Sequence[str] | None = None,
    python: str | None = None,
    cpu: int | None = None,
    gpu: int | None = None,
    memory: int | str | None = None,
    env: Mapping[str, str] | None = None,
    max_time: str = "",
    workspace: str | None = None,
    virtual_cluster: str | None = None,
    cluster_alias: str | None = None,
    unsaved: bool = False,
) -> JobInfo | None:
    """Submit this notebook, as it is saved, as a job; what is given is as the flags of `notebook.run`.

    The cells that speak to the cluster (this one, and those with our magics) stay here. ``path`` is the
    notebook's file where it cannot be found out; ``unsaved`` sends the file even if it lacks this cell.
    """
    if _is_run_by_a_job():
        _say(f"this is the job {os.environ['PAI_JOB_NAME']} itself: nothing is submitted")
        return None
    flags = {
        **{"image": image, "sources": sources, "pip_installs": pip_installs, "python": python},
        **{"cpu": cpu, "gpu": gpu, "workspace": workspace, "virtual_cluster": virtual_cluster},
    }
    try:
        notebook = this_notebook(path, unsaved)
        options = notebooks.options(texts(parameters or {}), to, kernel, timeout_per_cell, allow_errors)
        flags["memory_mb"] = None if memory is None else wishes.megabytes(memory, "memory")
        variables = tuple(f"{name}={value}" for name, value in (env or {}).items())
        wish = wishes.Wish(name=job_name, variables=variables, max_time=max_time)
        return _submit(_told(notebook, options), options, wish, settings(**flags), cluster_alias)
    except PaiError as err:
        raise Failed(str(err), err.exit_code) from None


def _submit(
    sent: Notebook, options: Options, wish: wishes.Wish, given: Settings, alias: str | None
) -> JobInfo:
    client = clusters.connect(given, alias, _say)
    mounts = mount_map(given.storage_mounts)
    draft = notebooks.plan(client, sent, options, wish, given, Path.cwd(), mounts)
    job = jobs.submit(client, draft.submission())
    _say(f"job {job.name} is submitted to {client.cluster.alias}")
    _say(f"`%pai notebook.fetch {job.name} --follow` waits for its results and brings them")
    return job


def this_notebook(path: str | Path | None = None, unsaved: bool = False) -> Notebook:
    """The notebook that is being worked in, as it is saved."""
    here = Path.cwd()
    notebook = notebooks.read(str(path or find(_namespace(), os.environ, here)), here)
    if not unsaved:
        check_saved(notebook, _running_cell())
    return notebook


def find(namespace: Mapping[str, Any], environment: Mapping[str, str], here: Path) -> Path:
    """The file of the notebook, as VS Code or Jupyter's server tell it."""
    told = str(namespace.get(VS_CODE) or environment.get(JUPYTER) or "")
    ask = "name it: submit_this_notebook('its-file.ipynb')"
    if not told.endswith(SUFFIX):
        raise ConfigError(f"which file this notebook is in cannot be found out here; {ask}")
    places = [Path(told), here / Path(told).name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(f"this notebook was {told!r} when its kernel started, and is no more; {ask}")
    return found


def check_saved(notebook: Notebook, running: str) -> None:
    """The file must have the cell that is running now, or it is older than what is on the screen."""
    known = {source_of(cell).strip() for cell in notebook.cells}
    if running and running.strip() not in known:
        hint = "save the notebook and run this cell again (unsaved=True sends the file as it is)"
        raise ConfigError(f"{notebook.name} does not have this cell as it is now; {hint}")


def travelling(notebook: Notebook) -> tuple[Notebook, int]:
    """The notebook as it goes along, where our package is not; and how many cells of it stay here."""
    cells, stay = list[dict[str, Any]](), 0
    for cell in notebook.cells:
        if cell["cell_type"] == "code" and speaks_to_the_cluster(source_of(cell)):
            stay += 1
            rest = {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}
            cell = {**rest, "cell_type": "raw"}  # still to be read, never run
        cells.append(cell)
    return dataclasses.replace(notebook, content={**notebook.content, "cells": cells}), stay


def speaks_to_the_cluster(source: str) -> bool:
    return _CALL in source or _OURS.search(source) is not None


def texts(parameters: Mapping[str, Any]) -> list[str]:
    """Values as `-p` takes them."""
    found = []
    for name, value in parameters.items():
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            raise ConfigError(
                f"the parameter {name!r} cannot be sent: {type(value).__name__} is no JSON"
            ) from None
        found.append(f"{name}={text}")
    return found


def _told(notebook: Notebook, options: Options) -> Notebook:
    """The notebook that travels, after what a person should know of it."""
    sent, stay = travelling(notebook)
    if stay == sum(cell["cell_type"] == "code" for cell in notebook.cells):
        raise ConfigError(f"{notebook.name} has no other cells than those that speak to the cluster")
    saved = time.strftime("%H:%M:%S", time.localtime(notebook.path.stat().st_mtime))
    cells = "1 cell that speaks" if stay == 1 else f"{stay} cells that speak"
    _say(f"{notebook.name} as it was saved at {saved}; {cells} to the cluster stay here" if stay else "")
    for line in notebooks.remarks(sent, options):
        _say(line)
    return sent


def _is_run_by_a_job() -> bool:
    """Whether a job runs the notebook, and nobody works in it: it would submit itself without end."""
    return "PAI_JOB_NAME" in os.environ and JUPYTER not in os.environ and VS_CODE not in _namespace()


def _shell() -> Any:
    """IPython's, if it is what runs this."""
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
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
