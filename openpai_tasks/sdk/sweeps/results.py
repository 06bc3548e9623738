"""What jobs found out: the last line of each job's stdout that is a JSON object, or its ``result.json``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup, outputs
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.sdk.sweeps.plan import mark_of

FILES = ("result.json", "results.json", "result.jsonl")
AT_ONCE = 4


@dataclass(frozen=True)
class Result:
    """A job, its point if it is one of a sweep, and what it found out until now."""

    name: str
    state: str
    point: Point
    result: dict[str, Any]


def gather_results(client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()) -> list[Result]:
    """The results of jobs and sweeps, by name or pattern."""
    if not names:
        raise ConfigError("whose results? give jobs, sweeps or patterns such as 'train-*'")
    chosen: dict[str, Point | None] = {}
    for name in names:
        chosen = {**_members(client, name, folder), **chosen}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job: _result(client, job, chosen[job], mounts), chosen))


def _members(client: Backend, name: str, folder: Path) -> dict[str, Point | None]:
    """The jobs behind a name: those of a sweep, those that match, or the one; points where they are known."""
    recorded = records.load(folder, client.cluster.alias, name).points if "/" not in name else {}
    if recorded:
        return dict(recorded)
    if set("*?[") & set(name):
        found = [job for job in _listed(client) if fnmatch.fnmatchcase(job.name, name)]
    else:
        try:
            return {lookup.find(client, name).name: None}
        except NotFound:
            found = [job for job in _listed(client, name) if job.name.startswith(f"{name}-")]
            found = [job for job in found if mark_of(client.job_document(job.key)).get("name") == name]
    if not found:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(f"no job or sweep named {name!r} on {where}; `job.list` shows jobs", 404)
    return {job.name: None for job in reversed(found)}


def _listed(client: Backend, keyword: str = "") -> list[JobInfo]:
    return client.jobs(username=client.user, keyword=keyword)


def _result(client: Backend, name: str, point: Point | None, mounts: Mounts) -> Result:
    try:
        job = client.job(lookup.key_of(client, name))
    except NotFound:
        return Result(name, "NOT FOUND", point or {}, {})
    if point is None:
        point = mark_of(client.job_document(job.key)).get("point") or {}
    found = _told(client, job) or _written(client, job, mounts) or {}
    return Result(job.name, job.state, point, found)


def _told(client: Backend, job: JobInfo) -> dict[str, Any] | None:
    """What the job printed; of several tasks, the first that printed something counts."""
    found: dict[str, dict[str, Any]] = {}
    lines = output.LineSplitter()
    try:
        for chunk in output.read_chunks(client, job.key, output.LogChoice(stream="stdout")):
            _note(found, lines.feed(chunk))
    except NotFound:
        return None
    _note(found, lines.end())
    return next(iter(found.values()), None)


def _note(found: dict[str, dict[str, Any]], lines: Iterable[output.Chunk]) -> None:
    for line in lines:
        value = _object(line.data)
        if value is not None:
            found[line.task] = value


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that the line is; most lines are none, and that is seen at once."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    try:
        value = parse(line, float)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _written(client: Backend, job: JobInfo, mounts: Mounts) -> dict[str, Any] | None:
    """What the job wrote to its output folder, where that can be read from here."""
    try:
        found = outputs.find_outputs(client, job.key, mounts)
    except PaiError:
        return None
    for name in FILES:
        if name in found.files:
            return _content(found.read(name))
    return None


def _content(text: bytes) -> dict[str, Any] | None:
    whole = _object(text)
    if whole is not None:
        return whole
    return next((value for line in reversed(text.splitlines()) if (value := _object(line)) is not None), None)
