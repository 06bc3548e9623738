"""Names seen by commands, in plain lists that the completion scripts read.

Under ``~/.openpai/cache/names``: ``clusters``, ``virtual-clusters``, ``storages``, ``templates``, ``paths``
(of storages, ``pai://``) and ``jobs/<alias>``, a name on each line; exit codes of failed commands are under
``~/.openpai/cache/exits``. All are only a convenience: a list that cannot be written is ignored, and two
commands at once may lose a name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FAILED
from openpai_tasks.settings.home import home, write_private
from openpai_tasks.settings.registry import ANY, LOCAL, Cluster
from openpai_tasks.text.plain import one_line

if TYPE_CHECKING:
    from openpai_tasks.sdk.files.operations import FileInfo

MOST_JOBS = 500
MOST_EXITS = 2000
MOST_PATHS = 2000
MOST_STORAGES = 100

TaskPlace = tuple[int, str, int, int]
"""The attempt of a job, and the role, index and attempt of its task."""
USUAL_TASK: TaskPlace = (0, "main", 0, 0)

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TASK = re.compile(r"(\S+) ([0-9]{1,9}) (\S+) ([0-9]{1,9}) ([0-9]{1,9})")
_PLAIN = re.compile(r"[\w.~@+:][\w.~@+:-]*")
"""Names from a server that are safe in a shell's command line; real names match."""


def folder() -> Path:
    """Return the folder of the lists, which the completion scripts know too."""
    return home() / "cache" / "names"


def note_jobs(client: Backend, jobs: Iterable[JobInfo]) -> None:
    """Note jobs of the client's cluster, newest first; other users' as ``user~name``."""
    names = [job.name if job.user in ("", client.user) else job_key(job.user, job.name) for job in jobs]
    path = _file(client, "names/jobs")
    if names:
        _write(path, _plain([*names, *_read(path)]), MOST_JOBS)


def known_jobs(client: Backend) -> list[str]:
    """Return the noted jobs of the client's cluster."""
    return _read(_file(client, "names/jobs"))


def forget_job(client: Backend, name: str) -> None:
    """Forget a job that no longer exists."""
    path = _file(client, "names/jobs")
    _write(path, [other for other in _read(path) if other != name], MOST_JOBS)


def note_exits(client: Backend, jobs: Iterable[JobInfo]) -> None:
    """Note the exit codes of failed commands, which lists of jobs do not have."""
    ended = [job for job in jobs if job.final and job.exit_code and job.submitted]
    if ended:
        path = _file(client, "exits")
        lines = [f"{_exit_key(job)} {job.exit_code}" for job in ended]
        _write(path, [*lines, *_read(path)], MOST_EXITS)


def add_exits(client: Backend, jobs: list[JobInfo]) -> list[JobInfo]:
    """Return listed jobs with the exit codes of their commands that commands on this machine have seen."""
    lacking = [job for job in jobs if job.state == FAILED and job.exit_code is None]
    lines = _read(_file(client, "exits")) if lacking else []
    known = {key: code for key, _, code in (line.rpartition(" ") for line in lines) if code.isdecimal()}
    codes = {job.key: int(known[_exit_key(job)]) for job in lacking if _exit_key(job) in known}
    return [dataclasses.replace(job, exit_code=codes[job.key]) if job.key in codes else job for job in jobs]


def _exit_key(job: JobInfo) -> str:
    """Identify the job among all that have had its name."""
    return f"{job.key} {job.submitted}"


def note_task(client: Backend, job: JobInfo) -> None:
    """Note where the output of a distant job's first task is, if that is not the usual place."""
    if client.polls_cheaply:
        return
    path = _file(client, "tasks")
    known = [line for line in _read(path) if not line.startswith(f"{job.key} ")]
    task = next(iter(job.tasks), None)
    place = (job.attempt, task.role, task.index, task.attempt) if task else USUAL_TASK
    if place != USUAL_TASK:
        known.insert(0, " ".join(map(str, (job.key, *place))))
    _write(path, known, MOST_JOBS)


def likely_task(client: Backend, key: str) -> TaskPlace:
    """Return where the output of a job's first task probably is: the noted place, or the usual one."""
    for found in filter(None, map(_TASK.fullmatch, _read(_file(client, "tasks")))):
        if found[1] == key:
            return int(found[2]), found[3], int(found[4]), int(found[5])
    return USUAL_TASK


def note_clusters(clusters: Iterable[Cluster]) -> None:
    """Note all known clusters and their virtual clusters; forget the jobs of other clusters."""
    others = [cluster for cluster in clusters if not cluster.is_embedded]
    known = [LOCAL, *(cluster.alias for cluster in others)]
    _write(folder() / "clusters", [*known, *([ANY] if others else [])])
    parts = [name for cluster in others for name in cluster.virtual_clusters]
    _write(folder() / "virtual-clusters", _plain(["default", *parts]))
    for kept in (folder() / "jobs", folder().parent / "exits", folder().parent / "tasks"):
        with contextlib.suppress(OSError):
            for path in kept.iterdir():
                if path.name not in known:
                    path.unlink()


def note_templates(names: Iterable[str]) -> None:
    """Note all templates."""
    _write(folder() / "templates", names)


def note_storages(names: Iterable[str]) -> None:
    """Note storages of any cluster."""
    path = folder() / "storages"
    _write(path, _plain([*names, *_read(path)]), MOST_STORAGES)


def note_paths(found: Iterable[FileInfo]) -> Iterator[FileInfo]:
    """Yield the files, and note the ``pai://`` paths of the first ones; those of folders end with a slash."""
    urls: list[str] = []
    for info in found:
        if len(urls) < MOST_PATHS and info.url.startswith("pai://"):
            urls.append(info.url + ("/" if info.type == "folder" else ""))
        yield info
    if urls:
        path = folder() / "paths"
        _write(path, sorted([*dict.fromkeys([*urls, *_read(path)])][:MOST_PATHS]))


def _plain(names: Iterable[str]) -> list[str]:
    return [name for name in names if _PLAIN.fullmatch(name)]


def _file(client: Backend, kind: str) -> Path | None:
    """Return the cluster's list of this kind; None if its alias is not a plain file name."""
    alias = client.cluster.alias
    return home() / "cache" / kind / alias if _ALIAS.fullmatch(alias) else None


def _read(path: Path | None) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines() if path else []
    except (OSError, UnicodeDecodeError):
        return []


def _write(path: Path | None, names: Iterable[str], most: int | None = None) -> None:
    """Replace a list, each name once, unless nothing is new."""
    wanted = [name for name in dict.fromkeys(names) if name and one_line(name) == name][:most]
    if path and wanted != _read(path):
        with contextlib.suppress(OSError, ConfigError):
            write_private(path, "".join(f"{name}\n" for name in wanted), sync=False)
