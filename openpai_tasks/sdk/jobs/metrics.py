"""The metrics that a job's program recorded: numbers by name, task and step."""

from __future__ import annotations

import math
import operator
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import job_cache
from openpai_tasks.sdk.jobs.metric_points import MetricPoint, MetricSummary, PointColumns
from openpai_tasks.sdk.jobs.outputs import OutputPlace
from openpai_tasks.sdk.logs.json_lines import (
    FileLines,
    JobLines,
    LineOrigin,
    LineSource,
    number,
    parse_objects,
    piece_size,
)
from openpai_tasks.storage.location import Location
from openpai_tasks.text import wildcards

TELLING = (("loss",), ("acc", "f1", "auc", "score", "reward", "bleu", "perplexity"))
"""Parts of the names of metrics that say most about a run, in this order."""
_LOWER_IS_BETTER = re.compile(r"loss|error|rmse|perplexity|(?<![a-z])(?:err|mae|mse|ppl)(?![a-z])", re.I)

KEPT_FROM = 5000
"""New points from which on what was read is kept for later commands."""
MERGED = -1
"""The attempt of kept points that come from several; to add more, all have to be read again."""
_FIELDS = operator.itemgetter("name", "value", "step", "time")
_TASK = ("role", "index", "attempt")


def is_lower_better(name: str) -> bool:
    """Return whether the best value of a metric is its lowest, as for a loss or an error."""
    return bool(_LOWER_IS_BETTER.search(name))


SeriesKey = tuple[str, str, int]
"""The name of a metric, and the role and index of its task."""
PointKey = tuple[str, tuple[str, int, int]]
"""The name of a metric, and the role, index and attempt of its task."""
Row = tuple[PointKey, float, float, float]
"""Value, step and time of a point; NaN is a missing step."""


@dataclass(frozen=True)
class Metric:
    """A metric of one task and its points, in the order in which they were recorded.

    With ``summary``, ``points`` may be a selection that is enough to draw a long metric: lowest and highest
    values by stretches. Points without a step then have their place in the series as step.
    """

    job: str
    name: str
    role: str
    index: int
    points: tuple[MetricPoint, ...]
    summary: MetricSummary | None = None

    @property
    def task(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def last(self) -> float:
        return self._numbers.last

    @property
    def min(self) -> float | None:
        """The lowest value, without infinities and NaN; None without such a value."""
        return self._numbers.min

    @property
    def max(self) -> float | None:
        """The highest value, without infinities and NaN; None without such a value."""
        return self._numbers.max

    @property
    def step(self) -> float | None:
        """The last step."""
        return self._numbers.step

    @property
    def count(self) -> int:
        """The number of recorded points."""
        return self._numbers.count

    @property
    def _numbers(self) -> MetricSummary:
        return self.summary or summarise(self.points)


def read_metrics(client: Backend, name: str | JobInfo, mounts: Mounts = ()) -> list[Metric]:
    """Return the metrics that the job has recorded so far, with every point, by name and task."""
    return MetricReader(client, name, mounts).read()


class MetricReader:
    """Reads a job's metrics as they grow: each call of ``read`` reads only new bytes.

    With ``is_thinned``, only those points of long metrics are returned that a picture needs. They are kept on
    this machine, with the offsets up to which the files were read, so that other processes continue there:
    programs only append to these files.
    """

    def __init__(
        self,
        client: Backend,
        name: str | JobInfo,
        mounts: Mounts = (),
        is_thinned: bool = False,
        place: OutputPlace | None = None,
    ) -> None:
        self._client, self._is_thinned = client, is_thinned
        self._lines = JobLines(client, name, "metrics", mounts, place=place)
        self._series: dict[SeriesKey, dict[int, PointColumns]] = {}  # by attempt
        self._holds_all = not is_thinned  # until they are returned
        self._ended = ""  # the version of the ended job whose logs need not be read
        self._new_points = -1  # since the last look into the cache

    @property
    def job(self) -> JobInfo:
        """The job as it was found first."""
        return self._lines.job

    @property
    def folder(self) -> Location | None:
        """The job's output folder; None if it has none."""
        return self._lines.folder

    def read(self, job: JobInfo | None = None) -> list[Metric]:
        """Return everything recorded so far; ``job`` is the job as of now."""
        now = job or self.job
        sources = self._lines.sources(now)
        if self._is_thinned and self._new_points < 0:
            self._load(now, sources)
        if not self._ended or self._ended != job_cache.ended_version(now):
            self._read(sources)
        if not (self._holds_all or all(map(_can_merge, self._series.values()))):
            self._holds_all = True  # what a later attempt replaces can only be found among all points
            self._restart(sources)
        for source in sources:
            if source.problem:
                raise source.problem
        merged = {key: _merge(attempts, self._is_thinned) for key, attempts in sorted(self._series.items())}
        if self._is_thinned and self._new_points >= KEPT_FROM:
            self._save(now, sources, merged)
        return [Metric(self.job.name, *key, tuple(found), found.summary) for key, found in merged.items()]

    def _read(self, sources: Iterable[LineSource]) -> None:
        self._ended, self._new_points = "", max(0, self._new_points)
        for source in sources:
            for lines in source.new_lists(piece_size(1)):
                found = _columns(parse_objects(lines), source.origin)
                for (name, (role, index, attempt)), columns in found.items():
                    attempts = self._series.setdefault((name, role, index), {})
                    if attempt not in attempts:
                        attempts[attempt] = PointColumns(not self._holds_all)
                    attempts[attempt].extend(attempt, *columns)
                    self._new_points += len(columns[0])

    def _restart(self, sources: Iterable[LineSource]) -> None:
        self._series.clear()
        for source in sources:
            source.rewind()
        self._read(sources)

    def _load(self, now: JobInfo, sources: Iterable[LineSource]) -> None:
        """Continue where another process has read to, if that is known."""
        kept = job_cache.load(self._client, "metrics", {now.key: str(now.submitted)}).get(now.key)
        try:
            ended, offsets, series = _parse_kept(kept)
        except (AttributeError, TypeError, ValueError, OverflowError):  # nothing is kept, or it is damaged
            return
        files = {source.path: source for source in sources if isinstance(source, FileLines)}
        is_known = all(path in files and offset <= files[path].size for path, offset in offsets.items())
        is_whole = offsets == {path: file.size for path, file in files.items()}
        if is_whole and (files or (ended and ended == job_cache.ended_version(now))):
            self._ended = "" if files else ended
        elif not (files and is_known) or any(MERGED in attempts for attempts in series.values()):
            return
        self._series = series
        for path, offset in offsets.items():
            files[path].rewind(offset)

    def _save(
        self, now: JobInfo, sources: Iterable[LineSource], merged: Mapping[SeriesKey, PointColumns]
    ) -> None:
        offsets = {source.path: source.line_offset for source in sources if isinstance(source, FileLines)}
        ended = job_cache.ended_version(now)
        if now.submitted and (offsets or ended):
            rows = [(key, _only_attempt(self._series[key]), found.as_json()) for key, found in merged.items()]
            value = {now.key: (ended, offsets, rows)}
            job_cache.save(self._client, "metrics", {now.key: str(now.submitted)}, value)
            self._new_points = 0


def metric_rows(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """Return all points, a row for each, for programs."""
    return [
        {
            "job": metric.job,
            "name": metric.name,
            "role": metric.role,
            "index": metric.index,
            "attempt": point.attempt,
            "step": point.step,
            "time": point.time,
            "value": point.value,
        }
        for metric in metrics
        for point in metric.points
    ]


def select_metrics(metrics: Iterable[Metric], patterns: Iterable[str]) -> list[Metric]:
    """Return the metrics whose names match one of the patterns; all if there is no pattern."""
    wanted = list(patterns)
    return [
        metric
        for metric in metrics
        if not wanted or any(wildcards.matches(metric.name, pattern) for pattern in wanted)
    ]


def select_telling(metrics: Iterable[Metric], most: int) -> list[Metric]:
    """Return the metrics to show first, one of each name: losses, scores, then those with most points."""
    named: dict[str, Metric] = {}
    for metric in metrics:
        named.setdefault(metric.name, metric)
    return sorted(named.values(), key=_rank)[:most]


def _rank(metric: Metric) -> tuple[int, int, str]:
    name = metric.name.lower()
    kind = next((at for at, words in enumerate(TELLING) if any(word in name for word in words)), len(TELLING))
    return kind, -metric.count, metric.name


def summarise(points: Sequence[MetricPoint]) -> MetricSummary:
    """Return the numbers of all points."""
    found = PointColumns(is_thinned=False)
    values, steps, times, _ = zip(*points, strict=True)
    numbers = [math.nan if step is None else step for step in steps]
    found.extend(0, array("d", values), array("d", numbers), array("d", times))
    return found.summary


def _parse_kept(value: Any) -> tuple[str, dict[str, int], dict[SeriesKey, dict[int, PointColumns]]]:
    """Read what ``MetricReader`` keeps: the version of an ended job, offsets of files, and points."""
    ended, offsets, rows = value
    series = {
        (str(name), str(role), int(index)): {int(attempt): PointColumns.from_json(found)}
        for (name, role, index), attempt, found in rows
    }
    return str(ended), {path: max(0, int(offset)) for path, offset in offsets.items()}, series


def _columns(lines: list[dict[str, Any]], origin: LineOrigin) -> dict[PointKey, list[array[float]]]:
    """Return values, steps and times of the points in parsed lines, by metric."""
    try:
        return _group(_plain_rows(lines, origin))
    except (KeyError, TypeError, ValueError, OverflowError):  # not all lines are plain points
        return _group(_checked_rows(lines, origin))


def _group(rows: Iterable[Row]) -> dict[PointKey, list[array[float]]]:
    found: dict[PointKey, list[list[float]]] = {}
    for key, *row in rows:
        found.setdefault(key, []).append(row)
    return {key: [array("d", column) for column in zip(*group, strict=True)] for key, group in found.items()}


def _plain_rows(lines: list[dict[str, Any]], origin: LineOrigin) -> Iterable[Row]:
    """Return the points of lines that all have a name, a step and numbers; raise if some do not."""
    names, values, steps, times = zip(*map(_FIELDS, lines), strict=True)
    types = {*map(type, values), *map(type, steps), *map(type, times)}
    if not types <= {int, float} or {*map(type, names)} != {str} or not all(map(math.isfinite, steps)):
        raise TypeError("not only numbers")
    tasks = [(line.get("role"), line.get("index"), line.get("attempt")) for line in lines]
    origins = {task: _task(dict(zip(_TASK, task, strict=True)), origin) for task in set(tasks)}
    keys = zip(names, map(origins.__getitem__, tasks), strict=True)
    return zip(keys, values, steps, times, strict=True)


def _checked_rows(lines: list[dict[str, Any]], origin: LineOrigin) -> Iterator[Row]:
    """Yield the points of lines that have a name, a value and a time; null means NaN."""
    for fields in lines:
        name, value, time = fields.get("name"), fields.get("value", ""), number(fields.get("time"))
        found = math.nan if value is None else number(value)
        if isinstance(name, str) and found is not None and time is not None:
            step = number(fields.get("step"))
            step = math.nan if step is None or math.isinf(step) else step
            yield (name, _task(fields, origin)), found, step, time


def _task(fields: Mapping[str, Any], origin: LineOrigin) -> tuple[str, int, int]:
    found = origin.updated(fields)
    return found.role, found.index, found.attempt


def _can_merge(attempts: Mapping[int, PointColumns]) -> bool:
    is_whole = MERGED not in attempts and all(points.is_whole for points in attempts.values())
    return len(attempts) == 1 or is_whole


def _only_attempt(attempts: Mapping[int, PointColumns]) -> int:
    return next(iter(attempts)) if len(attempts) == 1 else MERGED


def _merge(attempts: Mapping[int, PointColumns], is_thinned: bool) -> PointColumns:
    """Return the points of all attempts; a step that a later attempt took again counts only once.

    A retried program continues at its last checkpoint: what was recorded after that is recorded again.
    """
    if len(attempts) == 1:
        (found,) = attempts.values()
    else:
        found = PointColumns(is_thinned)
        for attempt in sorted(attempts):
            later = [attempts[other].first_step for other in attempts if other > attempt]
            limit = min((step for step in later if step is not None), default=math.inf)
            found.extend(attempt, *attempts[attempt].before(limit))
    found.thin_out()
    return found
