"""Sweeps: the results of their jobs as a table and plots, the best of them, and what they depend on."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.portal.live import Steps, redraw
from openpai_tasks.portal.pages.job import check_files
from openpai_tasks.portal.plots import is_number, parallel_plot, scatter_plot
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol import states
from openpai_tasks.sdk.jobs.metrics import is_lower_better
from openpai_tasks.sdk.sweeps.results import JobResult, as_number

MOST_AXES = 8
MOST_ROWS = 500
"""Rows of the table at first; a sweep may have thousands."""
MOST_DRAWN = 1000
"""Jobs in the plots; more would only cover each other."""
PAGE_SECONDS = 0.5
"""Time to read results before a page is sent; the others follow."""


def listing(request: PortalRequest) -> Response:
    """List the sweeps that were submitted from this project."""
    names = sdk.sweeps.list_sweeps(request.records, request.alias)
    return request.page("sweeps.html", names=names)


def page(request: PortalRequest) -> Response:
    return request.page("sweep.html", **_values(request, PAGE_SECONDS))


def live(request: PortalRequest) -> Steps:
    """Send the results again whenever they have changed, until all jobs are over."""

    def draw() -> tuple[dict[str, str], bool]:
        values = _values(request)
        return {"sweep": request.fragment("sweep_results.html", **values)}, values["is_over"]

    return redraw(draw)


def _values(request: PortalRequest, seconds: float | None = None) -> dict[str, Any]:
    name, given = request.params["name"], request.query
    check_files(request, name.partition("~")[0] if "~" in name else request.client.user)
    results, unread = sdk.sweeps.gather_results_within(
        seconds, request.client, [name], request.records, request.mounts
    )
    parameters, values = _columns(results)
    columns = [*parameters, *values]
    numeric = [column for column in columns if any(is_number(cell(one, column)) for one in results)]
    measured = [column for column in numeric if column in values]
    across = _chosen(given.get("x", ""), numeric, numeric[:1])
    upwards = _chosen(given.get("y", ""), numeric, measured[:1] or numeric[-1:])
    lowest = given["best"] == "min" if given.get("best") in ("min", "max") else is_lower_better(upwards)
    best = _best(results, upwards, lowest) if upwards in values else set()
    ranked = _ranked(results, upwards, lowest)
    drawn = _drawn(ranked)
    points = [(one.name, cell(one, across), cell(one, upwards)) for one in drawn]
    return dict(
        name=name,
        unread=unread,
        is_over=not unread and all(one.state in states.FINAL for one in results),
        results=results,
        rows=_rows(results, ranked, given),
        columns=columns,
        numeric=numeric,
        across=across,
        upwards=upwards,
        is_result=upwards in values,
        lowest=lowest,
        best=best,
        cell=cell,
        scatter=scatter_plot(
            upwards, [row for row in points if is_number(row[1]) and is_number(row[2])], best
        )
        if len(numeric) > 1
        else None,
        has_results=bool(values),
        drawn=len(drawn),
        parallel=_parallel(drawn, parameters, measured, upwards, best),
        importances=_importances(results, parameters, upwards) if upwards in values else [],
        sort=given.get("sort", ""),
        is_ascending=given.get("dir", "") == "asc",
    )


def _ranked(results: list[JobResult], upwards: str, lowest: bool) -> list[JobResult]:
    """Return the results of a large sweep from the best on; those of another as they are."""
    return _sorted(results, upwards, lowest) if len(results) > MOST_ROWS else results


def _rows(results: list[JobResult], ranked: list[JobResult], given: Mapping[str, str]) -> list[JobResult]:
    """Return the rows of the table: of a large sweep, the first ones, or the best if no order is chosen."""
    sort = given.get("sort", "")
    found = _sorted(results, sort, given.get("dir", "") == "asc") if sort else ranked
    return found if given.get("rows") == "all" else found[:MOST_ROWS]


def _drawn(ranked: list[JobResult]) -> list[JobResult]:
    """Return the jobs of the plots: of a large sweep, evenly from the best to the last."""
    last = len(ranked) - 1
    if last < MOST_DRAWN:
        return ranked
    return [ranked[at * last // (MOST_DRAWN - 1)] for at in range(MOST_DRAWN)]


def _best(results: Sequence[JobResult], column: str, lowest: bool) -> set[str]:
    """Return the names of the jobs with the lowest or highest value."""
    found = {one.name: value for one in results if is_number(value := cell(one, column))}
    if len(found) < 2:
        return set()
    best = min(found.values()) if lowest else max(found.values())
    return {name for name, value in found.items() if value == best}


@dataclass(frozen=True)
class Importance:
    """How a result rises or falls with a parameter, over a number of jobs."""

    parameter: str
    correlation: float
    jobs: int


def _importances(results: Sequence[JobResult], parameters: Sequence[str], column: str) -> list[Importance]:
    """Return the rank correlation of each numeric parameter with a result, the strongest first."""
    found = []
    for name in parameters:
        pairs = [(cell(one, name), cell(one, column)) for one in results]
        numbers = [pair for pair in pairs if is_number(pair[0]) and is_number(pair[1])]
        correlation = sdk.sweeps.rank_correlation(numbers)
        if correlation is not None:
            found.append(Importance(name, correlation, len(numbers)))
    return sorted(found, key=lambda one: -abs(one.correlation))


def _columns(results: Sequence[JobResult]) -> tuple[list[str], list[str]]:
    """Return the names of the parameters and of the other results, in the order in which they appear."""
    parameters = list(dict.fromkeys(name for one in results for name in one.point))
    values = dict.fromkeys(name for one in results for name in one.result)
    return parameters, [name for name in values if name not in parameters]


def cell(result: JobResult, column: str) -> Any:
    """Return the value of a job in a column, with numbers as numbers."""
    return as_number(result.point.get(column, result.result.get(column)))


def _chosen(wanted: str, known: Sequence[str], default: Sequence[str]) -> str:
    return wanted if wanted in known else next(iter(default), "")


def _sorted(results: list[JobResult], column: str, is_ascending: bool) -> list[JobResult]:
    if not column:
        return results
    try:
        return sdk.sweeps.sort_results(results, column, lowest=is_ascending)
    except ConfigError:  # a link to a column that no job has any more
        return results


def _parallel(
    results: Sequence[JobResult],
    parameters: Sequence[str],
    measured: Sequence[str],
    last: str,
    best: Container[str],
) -> Any:
    """Return the plot of all parameters and results; its last axis is the y axis of the scatter plot."""
    columns = [name for name in (*parameters, *measured) if name != last][: MOST_AXES - 1]
    columns += [last] if last else []
    if len(columns) < 2:
        return None
    rows = [(one.name, [_plain(cell(one, column)) for column in columns]) for one in results]
    return parallel_plot(columns, rows, best)


def _plain(value: Any) -> Any:
    """Return a value that an axis can show; None for others, such as lists."""
    return value if isinstance(value, str) or is_number(value) else None
