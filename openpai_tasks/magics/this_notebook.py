"""The notebook that is being worked in, as a job: finding its file, and what of it goes along."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.magics.commands import Failed, settings
from openpai_tasks.plain_text import one_line
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.jobs import lookup, submission, wishes
from openpai_tasks.sdk.notebooks import running as notebooks
from openpai_tasks.sdk.notebooks.running import Notebook, Options
from openpai_tasks.sdk.payloads.notebook_runner import source_of
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.local.mounted import mount_map

VS_CODE = "__vsc_ipynb_file__"  # a variable that VS Code sets in the notebook
JUPYTER = "JPY_SESSION_NAME"  # one of the environment, which Jupyter's server sets


def submit_this_notebook(
    path: str | Path | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    to: str | Sequence[str] = (),
    kernel: str = "",
    timeout_per_cell: str = "",
    allow_errors: bool = False,
    job_name: str = "",
    image: str | None = None,
    sources: str | Sequence[str] | None = None,
    pip_installs: str | Sequence[str] | None = None,
    python: str | None = None,
    cpu: int | None = None,
    gpu: int | None = None,
    memoryMB: int | str | None = None,
    shm: int | str | None = None,
    env: Mapping[str, str] | None = None,
    secret: str | Sequence[str] = (),
    retries: int = 0,
    max_time: str = "",
    tag: str | Sequence[str] = (),
    after: str | Sequence[str] = (),
    update: str | Sequence[str] = (),
    workspace: str | None = None,
    virtual_cluster: str | None = None,
    cluster_alias: str | None = None,
    memory: int | str | None = None,
    unsaved: bool = False,
    **unknown: Any,
) -> JobInfo | None:
    """Submit this notebook, as it is saved, as a job; what is given is as the flags of `notebook.run`.

    The cells that speak to the cluster (this one, and those with our magics) stay here. ``path`` is the
    notebook's file where it cannot be found out; ``unsaved`` sends the file even if it lacks this cell.
    ``memory`` is another name of ``memoryMB``. Values of secrets are taken from the environment.
    """
    if _is_run_by_a_job():
        _say(f"this is the job {os.environ['PAI_JOB_NAME']} itself: nothing is submitted")
        return None
    flags = {
        **{"image": image, "sources": sources if sources is None else _several(sources), "python": python},
        **{"pip_installs": pip_installs if pip_installs is None else _several(pip_installs)},
        **{"cpu": cpu, "gpu": gpu, "workspace": workspace, "virtual_cluster": virtual_cluster},
        "cluster_alias": cluster_alias or None,
    }
    try:
        _refuse(unknown)
        notebook = this_notebook(path, unsaved)
        options = notebooks.run_options(
            notebooks.typed(parameters or {}), _several(to), kernel, timeout_per_cell, allow_errors
        )
        size = memory if memoryMB is None else memoryMB
        flags["memory_mb"] = None if size is None else amounts.megabytes(size, "memoryMB")
        wish = wishes.Wish(
            name=job_name,
            shm=str(shm or ""),
            variables=tuple(f"{name}={value}" for name, value in (env or {}).items()),
            secrets=wishes.secrets(_several(secret), _secret),
            retries=retries,
            max_time=max_time,
        )
        _tell(notebook, options)
        order = _Order(_several(update), _several(after), _several(tag))
        return _submit(notebook, options, wish, settings(**flags), order)
    except PaiError as err:
        raise Failed(str(err), err.exit_code) from None


@dataclass(frozen=True)
class _Order:
    """What is changed in the document, what goes before the job, and what is put on it."""

    updates: tuple[str, ...]
    after: tuple[str, ...]
    tags: tuple[str, ...]


def _submit(
    notebook: Notebook,
    options: Options,
    wish: wishes.Wish,
    given: Settings,
    order: _Order,
) -> JobInfo:
    client = clusters.connect(given, say=_say)
    mounts = mount_map(given.storage_mounts)
    submission.check_tags(client, order.tags)
    draft = notebooks.plan_run(client, notebook, options, wish, given, Path.cwd(), mounts)
    sent = draft.submission(order.updates)
    lookup.wait_for_success(client, order.after, _say)
    job = submission.add_tags(client, lookup.submit(client, sent), order.tags)
    _say(f"job {job.name} is submitted to {client.cluster.alias}")
    _say(f"`%pai notebook.fetch {job.name} --follow` waits for its results and brings them")
    return job


def this_notebook(path: str | Path | None = None, unsaved: bool = False) -> Notebook:
    """The notebook that is being worked in, as it is saved."""
    here = Path.cwd()
    notebook = notebooks.read_notebook(str(path or find(_namespace(), os.environ, here)), here)
    if not unsaved:
        check_saved(notebook, _running_cell())
    return notebook


def find(namespace: Mapping[str, Any], environment: Mapping[str, str], here: Path) -> Path:
    """The file of the notebook, as VS Code or Jupyter's server tell it."""
    told = str(namespace.get(VS_CODE) or environment.get(JUPYTER) or "")
    ask = "name it: submit_this_notebook('its-file.ipynb')"
    if not told.endswith(notebooks.SUFFIX):
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


def _tell(notebook: Notebook, options: Options) -> None:
    """What a person should know of what is sent."""
    lines = notebooks.remarks(notebook, options)
    saved = time.strftime("%H:%M:%S", time.localtime(notebook.path.stat().st_mtime))
    for line in (f"{notebook.name} as it was saved at {saved}", *lines):
        _say(line)


def _several(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One word, or several."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def _secret(name: str) -> str:
    if name not in os.environ:
        hint = f"os.environ[{name!r}] = getpass.getpass()"
        raise ConfigError(f"the secret {name!r} is needed, and the environment does not have it: {hint}")
    return os.environ[name]


def _refuse(unknown: Iterable[str]) -> None:
    """An argument that there is not, as a command tells it."""
    known = inspect.signature(submit_this_notebook).parameters
    for name in unknown:
        hint = difflib.get_close_matches(name, known, 1)
        told = f", did you mean {hint[0]}?" if hint else ""
        raise ConfigError(f"submit_this_notebook takes no {name!r}{told}")


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
        sys.stderr.write(f"{one_line(line)}\n")
        sys.stderr.flush()
