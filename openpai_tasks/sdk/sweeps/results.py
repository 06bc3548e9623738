"""Results of jobs: the last JSON object on a job's stdout, its ``result.json``, or its last metrics."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup, outputs
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.json_lines import parse_object
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.sdk.sweeps.choosing import sweep_of
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.sdk.sweeps.sweep import read_sweep_mark
from openpai_tasks.text import wildcards
from openpai_tasks.text.hints import command

LARGEST = 64 << 20  # bytes of a result
FILES = ("result.json", "results.json", "result.jsonl")
AT_ONCE = 4

_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d{0,17})(?:\.\d{0,17})?|\.\d{1,17})(?:[eE][-+]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True)
class JobResult:
    """A job, its point in a sweep, and its result so far."""

    name: str
    state: str
    point: dict[str, Any]
    result: dict[str, Any]


def gather_results(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> list[JobResult]:
    """Gather the results of jobs and sweeps by name or pattern."""
    chosen = find_members(client, names, folder)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job: _result(client, job, chosen[job], mounts), chosen))


def find_members(client: Backend, names: Sequence[str], folder: Path) -> dict[str, Point | None]:
    """Return the jobs that these names and patterns of jobs and sweeps stand for, with their known points."""
    if not names:
        raise ConfigError("name the jobs, sweeps or patterns such as 'train-*' that you want")
    chosen: dict[str, Point | None] = {}
    for name in names:
        for job, point in _members(client, name, folder).items():
            chosen.setdefault(job, point)
    return chosen


def _members(client: Backend, name: str, folder: Path) -> dict[str, Point | None]:
    """Return the jobs of a sweep, of a pattern, or the one job, with their points if known."""
    recorded = records.load(folder, client.cluster.alias, name).points if "/" not in name else {}
    if recorded:
        return dict(recorded)
    if lookup.is_pattern(name):
        listed = client.jobs(username=client.user, keyword="")
        found = [job for job in listed if wildcards.matches(job.name, name)]
    else:
        try:
            return {lookup.typed_name(client, lookup.find(client, name)): None}
        except NotFound:
            listed = client.jobs(username=client.user, keyword=name)
            begun = [job for job in listed if job.name.startswith(f"{name}-")]
            found = [job for job in begun if sweep_of(client, job) == name]
    if not found:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(
            f"no job or sweep named {name!r} on {where}; list jobs with `{command('job.list')}`", 404
        )
    return {job.name: None for job in reversed(found)}


def _result(client: Backend, name: str, point: Point | None, mounts: Mounts) -> JobResult:
    try:
        job = client.job(lookup.key_of(client, name))
    except NotFound:
        return JobResult(name, "NOT FOUND", _numbers(point), {})
    if point is None:
        point = read_sweep_mark(client.job_document(job.key)).get("point")
    found = (
        _read_printed(client, job) or _read_written(client, job, mounts) or _read_metrics(client, job, mounts)
    )
    return JobResult(job.name, job.state, _numbers(point), found)


def _read_printed(client: Backend, job: JobInfo) -> dict[str, Any] | None:
    """Return the last object that the job printed; of several tasks, the first one's."""
    found: dict[str, dict[str, Any]] = {}
    chunks = output.read_chunks(client, job.key, output.LogChoice(stream="stdout"))
    try:
        for line in output.split_lines(chunks):
            value = parse_object(line.data)
            if value is not None:
                found[line.task] = value
    except NotFound:
        return None
    return next(iter(found.values()), None)


def _read_written(client: Backend, job: JobInfo, mounts: Mounts) -> dict[str, Any] | None:
    """Return the object in the job's output folder, if it can be read from here."""
    try:
        found = outputs.find_outputs(client, job.key, mounts)
    except PaiError:
        return None
    name = next((name for name in FILES if name in found.files), None)
    with contextlib.suppress(PathError):
        return _last_object(found.read(name, LARGEST)) if name else None
    return None


def _read_metrics(client: Backend, job: JobInfo, mounts: Mounts) -> dict[str, Any]:
    """Return the last values of the job's metrics; of several tasks, the first one's."""
    try:
        found = MetricReader(client, job.key, mounts).read(job)
    except PaiError:
        return {}
    values: dict[str, Any] = {}
    for metric in found:
        values.setdefault(metric.name, metric.last)
    return values


def _last_object(text: bytes) -> dict[str, Any] | None:
    found = map(parse_object, (text, *reversed(text.splitlines())))
    return next((value for value in found if value is not None), None)


def _numbers(point: Any) -> dict[str, Any]:
    """Return the values of a point, which are text, with numbers as numbers; empty if it is no point."""
    return {name: as_number(value) for name, value in point.items()} if isinstance(point, dict) else {}


def as_number(value: Any) -> Any:
    """Return the number that a text stands for; anything else unchanged, also text such as 007."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return value
    return float(value) if set(".eE") & set(value) else int(value)


# Sorting


def sort_results(
    results: Sequence[JobResult], column: str, lowest: bool = False, best: int | None = None
) -> list[JobResult]:
    """Sort by a column, numbers from the highest (or ``lowest``) on, then texts, then jobs without a value.

    ``best`` is how many to return at most; these all have a value.
    """
    if best is not None and best < 1:
        raise ConfigError(f"--best must be at least 1, got {best}")
    found = [(as_number(_column(result, column)), result) for result in results]
    if results and all(value is None for value, _ in found):
        names = dict.fromkeys(name for one in results for name in ("name", "state", *one.point, *one.result))
        raise ConfigError(f"--sort: no job has a value {column!r} (known: {', '.join(names)})")
    numbers = [pair for pair in found if _is_number(pair[0])]
    texts = [pair for pair in found if isinstance(pair[0], str)]
    numbers.sort(key=lambda pair: pair[0], reverse=not lowest)
    texts.sort(key=lambda pair: str(pair[0]))
    ranked = [result for _, result in (*numbers, *texts)]
    if best is not None:
        return ranked[:best]
    return ranked + [result for value, result in found if not (_is_number(value) or isinstance(value, str))]


def _column(result: JobResult, column: str) -> Any:
    """Return the value in a column of the table, in which a result's may be called ``result.name``."""
    if column in ("name", "state"):
        return getattr(result, column)
    if column in result.point:
        return result.point[column]
    return result.result.get(column, result.result.get(column.removeprefix("result.")))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def gather_metrics(client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()) -> list[Metric]:
    """Gather the metrics of jobs and sweeps by name or pattern, in the order of the jobs."""
    return next(follow_metrics(client, names, folder, mounts))


def follow_metrics(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> Iterator[list[Metric]]:
    """Yield the metrics at first and whenever there are more, until all jobs have ended."""
    jobs = list(find_members(client, names, folder))
    pauses = Pauses(client)
    shown: int | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        readers = [reader for reader in pool.map(lambda name: _open(client, name, mounts), jobs) if reader]
        now = [reader.job for reader in readers]
        while True:
            found = [metric for one in pool.map(MetricReader.read, readers, now) for metric in one]
            points = sum(metric.count for metric in found)
            if points != shown:
                yield found
            if all(job.final for job in now):
                return
            pauses.wait(points != shown)
            shown = points
            now = [pauses.ask(functools.partial(client.job, job.key)) for job in now]


def _open(client: Backend, name: str, mounts: Mounts) -> MetricReader | None:
    """Return a reader of the job's metrics; None if a job of a sweep was not submitted, or is gone."""
    try:
        lookup.find(client, name)
    except NotFound as err:
        client.say(f"left out: {err}")
        return None
    return MetricReader(client, name, mounts)
