"""Results of jobs: the last JSON object on a job's stdout, its ``result.json``, or its last metrics."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse_object
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import job_cache, lookup, outputs
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader
from openpai_tasks.sdk.jobs.outputs import OutputPlace
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.sdk.sweeps.choosing import ahead
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.sdk.sweeps.sweep import read_sweep_mark
from openpai_tasks.text import wildcards
from openpai_tasks.text.hints import command

LARGEST = 4 << 20  # bytes of a result; JSON can take 25 times as much in memory
LAST_LINES = 1 << 18  # bytes in which the last object is searched for
FILES = ("result.json", "results.json", "result.jsonl")
AT_ONCE = 4
TOGETHER = 250  # printed results in one request
AT_LEAST = 50  # results that are read whatever the time limit
LISTED = 8  # jobs of a sweep from which on a list is cheaper than asking for each
KEPT_FROM = 500  # jobs of a sweep whose results are also kept together
SETTLED_SECONDS = 600.0
"""Time after a job's end when a result that is still missing will not come any more."""

_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d{0,17})(?:\.\d{0,17})?|\.\d{1,17})(?:[eE][-+]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True)
class JobResult:
    """A job, its point in a sweep, and its result so far."""

    name: str
    state: str
    point: dict[str, Any]
    result: dict[str, Any]


@dataclass(frozen=True)
class Member:
    """A job that a name stands for: its point in a sweep and the job itself, as far as they are known."""

    point: Point | None = None
    job: JobInfo | None = None


def gather_results(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> list[JobResult]:
    """Gather the results of jobs and sweeps by name or pattern."""
    return gather_results_within(None, client, names, folder, mounts)[0]


def gather_results_within(
    seconds: float | None, client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> tuple[list[JobResult], int]:
    """Gather results in a limited time; also return how many are missing, which are empty."""
    sweep = _KeptSweep(client, names[0], folder) if len(names) == 1 else None
    if sweep and (kept := sweep.load()):
        return kept, 0
    members = find_members(client, names, folder)
    version = sweep.list_version(members) if sweep else ""
    jobs = _find_jobs(client, members)
    points = {jobs[name].key: member.point for name, member in members.items() if name in jobs}
    read = _read_results(client, list(jobs.values()), mounts, points, seconds)
    found = dict(zip(jobs, read.results, strict=True))
    results = [found.get(name) or _missing(name, member.point) for name, member in members.items()]
    if sweep and version and read.lasts:
        sweep.save(version, results)
    return results, read.unread


class _KeptSweep:
    """The results of a large recorded sweep as one row of the cache, once all of its jobs have ended.

    Two small requests then replace the list of all its jobs.
    """

    def __init__(self, client: Backend, name: str, folder: Path) -> None:
        self._client = client
        stamp = records.stamp(folder, client.cluster.alias, name)
        self._versions = {name: stamp} if stamp else {}

    def load(self) -> list[JobResult]:
        for kept in job_cache.load(self._client, "results", self._versions).values():
            with contextlib.suppress(KeyError, TypeError):
                if kept["list"] == self._ask(kept["prefix"]):
                    return [JobResult(*row) for row in kept["rows"]]
        return []

    def list_version(self, names: Iterable[str]) -> str:
        """Return the version of the list of these jobs; empty if they are few, or may still change."""
        many = list(names)
        return self._ask(_common_prefix(many)) if self._versions and len(many) >= KEPT_FROM else ""

    def save(self, version: str, results: Sequence[JobResult]) -> None:
        prefix = _common_prefix([one.name for one in results])
        rows = [[one.name, one.state, one.point, one.result] for one in results]
        values = {name: {"list": version, "prefix": prefix, "rows": rows} for name in self._versions}
        job_cache.save(self._client, "results", self._versions, values)

    def _ask(self, prefix: str) -> str:
        return self._client.job_list_version(username=self._client.user, keyword=prefix)


def _common_prefix(names: list[str]) -> str:
    return os.path.commonprefix(names)  # noqa: RUF071  # of names, not paths


def read_results(
    client: Backend,
    jobs: Sequence[JobInfo],
    mounts: Mounts = (),
    points: Mapping[str, Point | None] | None = None,
) -> list[JobResult]:
    """Return the results of jobs, which may come from a list; ``points`` has the known ones by job key.

    The result of a job that has ended is read once and kept on this machine.
    """
    return _read_results(client, jobs, mounts, points or {}, None).results


@dataclass(frozen=True)
class _Readings:
    """Results, how many are missing, and whether all will be the same from now on."""

    results: list[JobResult]
    unread: int
    lasts: bool


def _read_results(
    client: Backend,
    jobs: Sequence[JobInfo],
    mounts: Mounts,
    points: Mapping[str, Point | None],
    seconds: float | None,
) -> _Readings:
    limit = math.inf if seconds is None else time.monotonic() + seconds
    marks = _read_marks(client, [job for job in jobs if points.get(job.key) is None])
    known = {**points, **{key: mark.get("point") for key, mark in marks.items()}}
    versions = {job.key: version for job in jobs if (version := job_cache.ended_version(job))}
    kept = job_cache.load(client, "result", versions)
    found = {key: value for key, value in kept.items() if isinstance(value, dict)}
    missing = [job for job in jobs if job.key not in found]
    missing.sort(key=lambda job: not job.final)  # what will be kept comes first
    printed = _read_printed_results(client, [job for job in missing if job.key in versions], limit)
    read = {
        job.key: _Reading(job.key, job.state, printed[job.key], True)
        for job in missing
        if printed.get(job.key)
    }
    others = [job for job in missing if job.key not in read]
    at_least = max(0, AT_LEAST - len(read))
    if time.monotonic() > limit:
        others = others[:at_least]
    limits = itertools.chain(itertools.repeat(math.inf, at_least), itertools.repeat(limit))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = pool.map(
            lambda job, limit: _read_result(client, job, mounts, limit, job.key in printed), others, limits
        )
        read |= {one.key: one for one in tried if one}
    lasting = {key: one.result for key, one in read.items() if one.lasts and key in versions}
    job_cache.save(client, "result", versions, lasting)
    lasts = all(job.key in found or job.key in lasting for job in jobs)
    found |= {key: one.result for key, one in read.items()}
    states = {job.key: job.state for job in jobs} | {key: one.state for key, one in read.items()}
    results = [
        JobResult(job.name, states[job.key], _numbers(known[job.key]), found.get(job.key, {})) for job in jobs
    ]
    return _Readings(results, len(missing) - len(read), lasts)


def _read_printed_results(
    client: Backend, jobs: Sequence[JobInfo], limit: float
) -> dict[str, dict[str, Any]]:
    """Return the printed results of ended jobs that the cluster can read at once, by key."""
    found: dict[str, dict[str, Any]] = {}
    for first in range(0, len(jobs), TOGETHER):
        if first and time.monotonic() > limit:
            break
        some = client.printed_results(jobs[first : first + TOGETHER])
        if not some:  # it cannot, or these logs are too long
            break
        found |= some
    return found


def find_members(client: Backend, names: Sequence[str], folder: Path) -> dict[str, Member]:
    """Return the jobs that these names and patterns of jobs and sweeps stand for, by name."""
    if not names:
        raise ConfigError("name the jobs, sweeps or patterns such as 'train-*' that you want")
    chosen: dict[str, Member] = {}
    for name in names:
        for job, member in _members(client, name, folder).items():
            chosen.setdefault(job, member)
    return chosen


def _members(client: Backend, name: str, folder: Path) -> dict[str, Member]:
    """Return the jobs of a sweep, of a pattern, or the one job."""
    recorded = records.load(folder, client.cluster.alias, name).points if "/" not in name else {}
    if recorded:
        return {job: Member(point) for job, point in recorded.items()}
    if lookup.is_pattern(name):
        listed = client.jobs(username=client.user, keyword="")
        found = [job for job in listed if wildcards.matches(job.name, name)]
    else:
        try:
            job = lookup.find(client, name)
            return {lookup.typed_name(client, job): Member(job=job)}
        except NotFound:
            listed = client.jobs(username=client.user, keyword=name)
            begun = [job for job in listed if job.name.startswith(f"{name}-")]
            marks = _read_marks(client, begun)
            found = [job for job in begun if marks[job.key].get("name") == name]
    if not found:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(
            f"no job or sweep named {name!r} on {where}; list jobs with `{command('job.list')}`", 404
        )
    return {job.name: Member(job=job) for job in reversed(found)}


def _find_jobs(client: Backend, members: Mapping[str, Member]) -> dict[str, JobInfo]:
    """Return the jobs that exist; many are listed with one request."""
    found = {name: member.job for name, member in members.items() if member.job}
    unknown = [name for name in members if name not in found]
    if len(unknown) >= LISTED:
        listed = {job.name: job for job in client.jobs(username=client.user, keyword=_common_prefix(unknown))}
        found |= {name: listed[name] for name in unknown if name in listed}
        unknown = []  # the list has all of them
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = zip(unknown, pool.map(lambda name: _find_job(client, name), unknown), strict=True)
        return found | {name: job for name, job in asked if job}


def _find_job(client: Backend, name: str) -> JobInfo | None:
    with contextlib.suppress(NotFound):
        return client.job(lookup.key_of(client, name))
    return None


def _missing(name: str, point: Point | None) -> JobResult:
    return JobResult(name, "NOT FOUND", _numbers(point), {})


def _read_marks(client: Backend, jobs: Sequence[JobInfo]) -> dict[str, dict[str, Any]]:
    """Return the sweeps and points in the documents of jobs, by key; they do not change, and are kept."""
    versions = {job.key: str(job.submitted) for job in jobs if job.submitted}
    kept = job_cache.load(client, "sweep", versions)
    found = {key: value for key, value in kept.items() if isinstance(value, dict)}
    missing = [job.key for job in jobs if job.key not in found]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = dict(zip(missing, pool.map(lambda key: _read_mark(client, key), missing), strict=True))
    job_cache.save(client, "sweep", versions, {key: mark for key, mark in read.items() if key in versions})
    return found | read


def _read_mark(client: Backend, key: str) -> dict[str, Any]:
    mark = read_sweep_mark(client.job_document(key))
    return {name: mark[name] for name in ("name", "point") if name in mark}


@dataclass(frozen=True)
class _Reading:
    """A result as it was read; ``lasts`` if it will be the same from now on, once the job has ended."""

    key: str
    state: str
    result: dict[str, Any]
    lasts: bool = False


def _read_result(
    client: Backend, job: JobInfo, mounts: Mounts, limit: float, printed_none: bool
) -> _Reading | None:
    """Read a job's result; None after the time limit."""
    if time.monotonic() > limit:
        return None
    try:
        whole = job if job.tasks else client.job(job.key)
    except NotFound:
        return _Reading(job.key, "NOT FOUND", {})
    printed = None if printed_none else _read_printed(client, whole)
    found, is_complete = (printed, True) if printed else _read_files(client, whole, mounts)
    is_settled = bool(found) or time.time() - (whole.completed or 0) / 1000 > SETTLED_SECONDS
    is_same = job_cache.ended_version(whole) == job_cache.ended_version(job)
    return _Reading(job.key, whole.state, found, is_complete and is_settled and is_same)


def _read_files(client: Backend, job: JobInfo, mounts: Mounts) -> tuple[dict[str, Any], bool]:
    """Return the result in the job's files or metrics, and whether all of them could be read."""
    try:
        place = outputs.output_folder(client, job, mounts)
    except PaiError:
        return {}, False
    is_complete = True
    for read in (_read_written, _read_metrics):
        try:
            if found := read(client, job, place):
                return found, is_complete
        except PaiError:
            is_complete = False
    return {}, is_complete


def _read_printed(client: Backend, job: JobInfo) -> dict[str, Any] | None:
    """Return the last object that the job printed; of several tasks, the first one's."""
    found: dict[str, dict[str, Any]] = {}
    chunks = output.read_job_chunks(client, job, output.LogChoice(stream="stdout"))
    try:
        for line in output.split_lines(chunks):
            value = parse_object(line.data)
            if value is not None:
                found[line.task] = value
    except NotFound:
        return None
    return next(iter(found.values()), None)


def _read_written(client: Backend, job: JobInfo, place: OutputPlace) -> dict[str, Any] | None:
    """Return the object in the job's output folder."""
    _, folder = place
    found = outputs.list_outputs(job.name, folder) if folder else None
    name = next((name for name in FILES if found and name in found.files), None)
    return _last_object(found.read(name, LARGEST)) if found and name else None


def _read_metrics(client: Backend, job: JobInfo, place: OutputPlace) -> dict[str, Any]:
    """Return the last values of the job's metrics; of several tasks, the first one's."""
    values: dict[str, Any] = {}
    for metric in MetricReader(client, job.key, is_thinned=True, place=place).read(job):
        values.setdefault(metric.name, metric.last)
    return values


def _last_object(text: bytes) -> dict[str, Any] | None:
    """Return the object in a file, or in the last of its lines that has one."""
    last = text.rstrip().rpartition(b"\n")[2]
    lines = text[-LAST_LINES:].splitlines()[len(text) > LAST_LINES :]  # not the rest of a line
    found = map(parse_object, (text, last, *reversed(lines)))
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


def gather_metrics(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = (), is_thinned: bool = False
) -> list[Metric]:
    """Gather the metrics of jobs and sweeps by name or pattern, in the order of the jobs.

    With ``is_thinned``, only with the points that a picture needs.
    """
    with ahead(client, names, "document", "log"):
        return next(follow_metrics(client, names, folder, mounts, is_thinned))


def follow_metrics(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = (), is_thinned: bool = False
) -> Iterator[list[Metric]]:
    """Yield the metrics at first and whenever there are more, until all jobs have ended."""
    members = find_members(client, names, folder)
    pauses = Pauses(client)
    shown: int | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        readers = [
            reader
            for reader in pool.map(
                lambda name: _open(client, name, members[name].job, mounts, is_thinned), members
            )
            if reader
        ]
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


def _open(
    client: Backend, name: str, known: JobInfo | None, mounts: Mounts, is_thinned: bool
) -> MetricReader | None:
    """Return a reader of the job's metrics; None if a job of a sweep was not submitted, or is gone."""
    try:
        job = known if known and known.tasks else lookup.find(client, name)
    except NotFound as err:
        client.say(f"left out: {err}")
        return None
    return MetricReader(client, job, mounts, is_thinned)
