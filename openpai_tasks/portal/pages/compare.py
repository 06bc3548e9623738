"""Runs side by side: a chart for each metric, a table of what differs, and the documents of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response

from openpai_tasks import sdk
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.html import url
from openpai_tasks.portal.live import Steps, redraw
from openpai_tasks.portal.pages.job import check_files, metric_plots
from openpai_tasks.portal.plots import metric_data
from openpai_tasks.portal.request import PortalRequest, redirect
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.metrics import is_lower_better
from openpai_tasks.sdk.sweeps.comparison import BEST, FEWEST, MOST, Comparison

MOST_FOUND = 20
"""Jobs and sweeps that a search shows."""
MOST_CHARTS = 40


@dataclass(frozen=True)
class BestRun:
    """The best value of a metric and the jobs that reached it."""

    metric: str
    value: float
    jobs: tuple[str, ...]
    is_lowest: bool


def page(request: PortalRequest) -> Response:
    return request.page("compare.html", **_values(request), **_search(request))


def live(request: PortalRequest) -> Steps:
    """Send the charts and the table again whenever they have changed, until all jobs are over."""

    def draw() -> tuple[dict[str, str], bool]:
        values = _values(request)
        return {"comparison": request.fragment("comparison.html", **values)}, values["is_over"]

    return redraw(draw)


def data(request: PortalRequest) -> Response:
    """Return the numbers of one metric of the compared jobs, for the script of its plot."""
    names = chosen_names(request)[: MOST + 1]
    found = sdk.sweeps.gather_metrics(request.client, names, request.records, request.mounts)
    return JSONResponse(metric_data(found, request.query, name_jobs=True))


def compare_one(request: PortalRequest) -> Response:
    """Lead from a job to the comparison with others."""
    other = request.query.get("with", "")
    return redirect("c", request.alias, "compare", job=[request.params["key"], *filter(None, [other])])


def _values(request: PortalRequest) -> dict[str, Any]:
    names = chosen_names(request)
    chosen = list(sdk.sweeps.find_members(request.client, names, request.records)) if names else []
    found = (
        sdk.sweeps.compare(request.client, chosen, request.records, request.mounts)
        if len(chosen) >= FEWEST
        else None
    )
    is_whole = bool(request.query.get("all"))
    source = partial(url, "c", request.alias, "compare.json", job=chosen)
    return {
        "chosen": chosen,
        "found": found,
        "is_whole": is_whole,
        "is_over": not found or all(job.state in states.FINAL for job in found.jobs),
        "rows": () if not found else found.rows if is_whole else found.differing,
        "best": best_runs(found) if found else (),
        "plots": metric_plots(found.metrics, found.metrics, source, name_jobs=True)[:MOST_CHARTS]
        if found
        else (),
        "difference": _difference(request, chosen),
        "query": request.query.get("q", ""),
        "fewest": FEWEST,
        "most": MOST,
    }


def chosen_names(request: PortalRequest) -> tuple[str, ...]:
    """Return the jobs, sweeps and patterns in the address, whose files the user may see."""
    names = request.lists.get("job", ())
    for name in names:
        check_files(request, name.partition("~")[0] if "~" in name else request.client.user)
    return names


def best_runs(found: Comparison) -> list[BestRun]:
    """Return the best value of each metric, and which jobs have it."""
    best = []
    for row in found.rows:
        if row.best and row.name.endswith(BEST):
            name = row.name.removesuffix(BEST)
            jobs = tuple(found.jobs[at].name for at in sorted(row.best))
            best.append(BestRun(name, row.values[min(row.best)], jobs, is_lower_better(name)))
    return best


def _difference(request: PortalRequest, chosen: Sequence[str]) -> Any:
    """Return how the documents of two jobs differ; None for more jobs, or if one cannot be read."""
    if len(chosen) != FEWEST:
        return None
    try:
        return sdk.jobs.compare_jobs(request.client, chosen[0], request.client, chosen[1])
    except PaiError:
        return None


# Choosing


def _search(request: PortalRequest) -> dict[str, Any]:
    """Return the jobs and sweeps that a search by name, tag or sweep finds, newest first."""
    wanted = request.query.get("q", "").strip()
    sweeps = [name for name in sdk.sweeps.list_sweeps(request.records, request.alias) if wanted in name]
    client, found = request.client, dict[str, JobInfo]()
    searches: list[Any] = [{"keyword": wanted}, {"tagsContain": wanted}] if wanted else [{}]
    for search in searches:
        listed = client.jobs(username=client.user, limit=MOST_FOUND + MOST, **search)
        found |= {sdk.jobs.typed_name(client, job): job for job in listed}
    newest = sorted(found.items(), key=lambda item: -(item[1].submitted or 0))
    return {"jobs": newest, "sweeps": sweeps[:MOST_FOUND], "most_found": MOST_FOUND}
