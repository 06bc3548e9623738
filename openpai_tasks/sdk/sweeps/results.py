"""Results of jobs: the last JSON object on a job's stdout, or its ``result.json``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.hints import command
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup, outputs
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.sdk.sweeps.plan import read_sweep_mark

FILES = ("result.json", "results.json", "result.jsonl")
AT_ONCE = 4


@dataclass(frozen=True)
class JobResult:
    """A job, its point in a sweep, and its result so far."""

    name: str
    state: str
    point: Point
    result: dict[str, Any]


def gather_results(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> list[JobResult]:
    """Gather the results of jobs and sweeps by name or pattern."""
    if not names:
        raise ConfigError("name the jobs, sweeps or patterns such as 'train-*' whose results you want")
    chosen: dict[str, Point | None] = {}
    for name in names:
        chosen = {**_members(client, name, folder), **chosen}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job: _result(client, job, chosen[job], mounts), chosen))


def _members(client: Backend, name: str, folder: Path) -> dict[str, Point | None]:
    """Return the jobs of a sweep, of a pattern, or the one job, with their points if known."""
    recorded = records.load(folder, client.cluster.alias, name).points if "/" not in name else {}
    if recorded:
        return dict(recorded)
    if set("*?[") & set(name):
        found = [job for job in _list_jobs(client) if fnmatch.fnmatchcase(job.name, name)]
    else:
        try:
            return {lookup.find(client, name).name: None}
        except NotFound:
            found = [job for job in _list_jobs(client, name) if job.name.startswith(f"{name}-")]
            found = [
                job for job in found if read_sweep_mark(client.job_document(job.key)).get("name") == name
            ]
    if not found:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(
            f"no job or sweep named {name!r} on {where}; list jobs with `{command('job.list')}`", 404
        )
    return {job.name: None for job in reversed(found)}


def _list_jobs(client: Backend, keyword: str = "") -> list[JobInfo]:
    return client.jobs(username=client.user, keyword=keyword)


def _result(client: Backend, name: str, point: Point | None, mounts: Mounts) -> JobResult:
    try:
        job = client.job(lookup.key_of(client, name))
    except NotFound:
        return JobResult(name, "NOT FOUND", point or {}, {})
    if point is None:
        point = read_sweep_mark(client.job_document(job.key)).get("point") or {}
    found = _read_printed(client, job) or _read_written(client, job, mounts) or {}
    return JobResult(job.name, job.state, point, found)


def _read_printed(client: Backend, job: JobInfo) -> dict[str, Any] | None:
    """Return the last object that the job printed; of several tasks, the first one's."""
    found: dict[str, dict[str, Any]] = {}
    lines = output.LineSplitter()
    try:
        for chunk in output.read_chunks(client, job.key, output.LogChoice(stream="stdout")):
            _collect_objects(found, lines.feed(chunk))
    except NotFound:
        return None
    _collect_objects(found, lines.end())
    return next(iter(found.values()), None)


def _collect_objects(found: dict[str, dict[str, Any]], lines: Iterable[output.Chunk]) -> None:
    for line in lines:
        value = _parse_object(line.data)
        if value is not None:
            found[line.task] = value


def _parse_object(line: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for any other text, which is quick to check."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    try:
        value = parse(line, float)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _read_written(client: Backend, job: JobInfo, mounts: Mounts) -> dict[str, Any] | None:
    """Return the object in the job's output folder, if it can be read from here."""
    try:
        found = outputs.find_outputs(client, job.key, mounts)
    except PaiError:
        return None
    for name in FILES:
        if name in found.files:
            return _last_object(found.read(name))
    return None


def _last_object(text: bytes) -> dict[str, Any] | None:
    whole = _parse_object(text)
    if whole is not None:
        return whole
    return next(
        (value for line in reversed(text.splitlines()) if (value := _parse_object(line)) is not None), None
    )
