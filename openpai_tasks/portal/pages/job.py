"""The pages of a job: what they share, its overview with tasks and events, its metrics and its outputs."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from starlette.responses import JSONResponse, Response

from openpai_tasks import render, sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Denied, NotFound, PaiError
from openpai_tasks.portal import previews
from openpai_tasks.portal.html import url
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages.usage import UsagePart, usage_values
from openpai_tasks.portal.plots import Plot, line_plot, metric_data
from openpai_tasks.portal.request import PortalRequest, redirect, whole_number
from openpai_tasks.protocol.document.ports import listening_ports
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.diagnosis.explain import Explanation
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader, is_lower_better
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.location import Location

MOST_ATTEMPTS = 20
"""Latest attempts that the page links to."""
METRIC_SECONDS = 2.0
MOST_FILES = 1000
"""Output files that the page lists."""
_SCORE = re.compile(r"acc|auc|f1|score|reward|bleu|precision|recall", re.IGNORECASE)


def find_job(request: PortalRequest) -> JobInfo:
    """Return the job that the address names."""
    return sdk.jobs.find(request.client, request.params["key"])


def job_page(
    request: PortalRequest, template: str, tab: str, job: JobInfo, status: int = 200, **values: Any
) -> Response:
    """Return a page of a job, with the tab that is open."""
    return request.page(template, status, tab=tab, **heading_values(request, job), **values)


def check_files(request: PortalRequest, user: str) -> None:
    """Refuse other users' files to a browser that signed in with a password.

    This process reads storages with the rights of the portal's owner, which that user may not have.
    """
    if request.session.only and user != request.client.user:
        raise Denied(
            f"you are signed in as {request.client.user!r}: files of {user!r} are not shown here", 403
        )


def heading_values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    """Return what the heading of a job's pages needs."""
    return {
        "job": job,
        "key": request.params["key"],
        "commands": _commands(request, job),
        "has_ssh": not job.final and not request.session.only and request.client.capabilities.ssh,
    }


def _commands(request: PortalRequest, job: JobInfo) -> list[tuple[str, str]]:
    """Return command lines to copy, after what they do."""
    elsewhere = request.alias != load_settings().cluster_alias
    words = ("-a", request.alias) if elsewhere else ()

    def line(label: str, task: str, *more: str) -> tuple[str, str]:
        return label, sdk.jobs.command_for(request.client, task, job, *more, *words)

    found = [line("Follow the output", "job.logs", "--follow"), line("Explain its state", "job.why")]
    if job.final:
        return [*found, line("Copy its outputs", "job.outputs", "--to", "outputs")]
    shell = [line("Open a shell in it", "container.ssh")] if request.client.capabilities.ssh else []
    return [*found, *shell, line("Stop it", "job.stop")]


@dataclass(frozen=True)
class TimelineEntry:
    """Something that happened to the job; ``time`` is in milliseconds."""

    time: int | None
    reason: str
    message: str = ""
    count: int = 1
    is_warning: bool = False


def page(request: PortalRequest) -> Response:
    client = request.client
    latest = sdk.jobs.describe(client, request.params["key"])
    attempt = whole_number(request.query.get("attempt", ""))
    values = _values(request, latest)
    if attempt is not None and attempt != latest.attempt:
        values |= {"shown": sdk.jobs.at_attempt(client, latest, attempt), "is_past": True}
    values |= usage_values(client, values["shown"])
    sweep = sdk.sweeps.read_sweep_mark(_document(client, latest)).get("name")
    return job_page(request, "job.html", "overview", latest, sweep=str(sweep or ""), **values)


def live(request: PortalRequest) -> Steps:
    """Send the changing parts again whenever the job has changed."""
    usage, job = UsagePart(request), find_job(request)
    for step in sdk.jobs.watch_steps(request.client, request.params["key"]):
        yield from usage.news(job)
        if isinstance(step, JobInfo):
            job = sdk.jobs.describe(request.client, request.params["key"])
            heading = heading_values(request, job)
            parts = {
                "job-heading": request.fragment("job_heading.html", **heading),
                "job": request.fragment("job_summary.html", **heading, **_values(request, job)),
            }
            yield Event("html", parts)
        else:
            yield step
    yield from usage.news(job)


def stop(request: PortalRequest) -> Response:
    sdk.jobs.stop(request.client, [request.params["key"]])
    return redirect("c", request.alias, "jobs", request.params["key"])


def ssh_command(request: PortalRequest) -> Response:
    """Return the plain ssh command for a container; it uses the keys of the portal's owner."""
    if request.session.only:
        raise Denied("only the owner of this portal has ssh keys here", 403)
    client, given = request.client, load_settings({"cluster_alias": request.alias})
    found = sdk.containers.reach(client, request.params["key"], given)
    index = whole_number(request.query.get("index", ""))
    container = sdk.containers.first_running(found, request.query.get("role") or None, index)
    target = sdk.containers.ssh_target(client, found, container, given)
    return JSONResponse({"text": shlex.join(sdk.ssh.ssh_command(target))})


def _values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    client = request.client
    earlier = range(max(0, job.attempt - MOST_ATTEMPTS), job.attempt)
    return {
        "shown": job,
        "is_past": False,
        "why": _why(client, job),
        "attempts": earlier if client.capabilities.attempts else (),
        "timeline": timeline(job),
        "listening": partial(listening_ports, _document(client, job)),
    }


def _document(client: Backend, job: JobInfo) -> Any:
    """Return the job's document; None if it cannot be read."""
    with contextlib.suppress(PaiError):
        return client.job_document(job.key)
    return None


def _why(client: Backend, job: JobInfo) -> Explanation | None:
    """Return why a job waits or has failed; None for a job without trouble."""
    if job.state in ("RUNNING", "SUCCEEDED"):
        return None
    try:
        return sdk.diagnosis.explain_job(client, job)
    except PaiError:
        return None


def timeline(job: JobInfo) -> list[TimelineEntry]:
    """Return what happened, oldest first; clusters without events still know when the job began and ended."""
    found = [TimelineEntry(job.submitted, "Submitted")] if job.submitted else []
    if not job.events:
        found += [TimelineEntry(job.launched, "Started")] if job.launched else []
        found += [TimelineEntry(job.completed, "Ended", job.message)] if job.completed else []
    found += [
        TimelineEntry(event.time, event.reason, event.message, event.count, event.type == "Warning")
        for event in reversed(job.events)
    ]
    return sorted(found, key=lambda entry: (entry.time is None, entry.time or 0))


# Metrics


def metrics(request: PortalRequest) -> Response:
    job = find_job(request)
    try:
        values = _metric_values(_reader(request).read(job), request)
    except PaiError as err:
        values = _metric_values([], request) | {"problem": str(err)}
    return job_page(request, "metrics.html", "metrics", job, **values)


def metrics_live(request: PortalRequest) -> Steps:
    """Send the plots again whenever there are more points, until the job ends."""
    reader = _reader(request)
    job, shown = reader.job, -1
    for step in sdk.jobs.watch_steps(request.client, job.key):
        if isinstance(step, JobInfo):
            job = step
            heading = request.fragment("job_heading.html", **heading_values(request, job))
            yield Event("html", {"job-heading": heading})
            if not job.final:
                continue
        found = reader.read(job)
        count = sum(metric.count for metric in found)
        if count != shown:
            shown = count
            yield Event(
                "html", {"metrics": request.fragment("metrics_plots.html", **_metric_values(found, request))}
            )
        if not isinstance(step, JobInfo):
            yield max(step, METRIC_SECONDS)


def _reader(request: PortalRequest) -> MetricReader:
    check_files(request, find_job(request).user)
    return sdk.jobs.MetricReader(request.client, request.params["key"], request.mounts, is_thinned=True)


def metrics_data(request: PortalRequest) -> Response:
    """Return the numbers of one metric, for the script of its plot."""
    return JSONResponse(metric_data(_reader(request).read(), request.query))


def _metric_values(found: list[Metric], request: PortalRequest) -> dict[str, Any]:
    wanted = request.query.get("metric", "").split()
    chosen = sdk.jobs.select_metrics(found, wanted)
    source = partial(url, "c", request.alias, "jobs", request.params["key"], "metrics.json")
    return {"plots": metric_plots(chosen, found, source), "metrics": chosen, "problem": "", "wanted": wanted}


def metric_plots(chosen: Sequence[Metric], found: Sequence[Metric], source: Callable[..., str]) -> list[Plot]:
    """Return a plot for each chosen metric; a loss has its lowest value marked, a score its highest.

    ``source`` returns the address of the numbers of a metric.
    """
    choices = render.x_choices(found)
    charts = [replace(chart, best=_best(chart.title)) for chart in render.metric_charts(chosen)]
    plots = [line_plot(chart, source(metric=chart.title), choices) for chart in charts]
    return [plot for plot in plots if plot]


def _best(name: str) -> Literal["min", "max"] | None:
    if is_lower_better(name):
        return "min"
    return "max" if _SCORE.search(name) else None


# Outputs


def outputs(request: PortalRequest) -> Response:
    job = find_job(request)
    try:
        found = _outputs(request, job).without_runtime_files
    except PaiError as err:
        return job_page(request, "outputs.html", "outputs", job, problem=str(err), found=None, files=())
    files = found.rows[:MOST_FILES]
    return job_page(request, "outputs.html", "outputs", job, problem="", found=found, files=files)


def output(request: PortalRequest) -> Response:
    """Show one file, send it to be saved, or send what the frame of its preview shows."""
    job = find_job(request)
    found = _outputs(request, job)
    name = request.params["rest"]
    entry = found.files.get(name)  # no path is opened that the listing does not have
    if entry is None:
        raise NotFound(f"the job has written no file {name!r}", 404)
    place = Location(found.folder.store, entry.path, name)
    shown = previews.show(place, name.rpartition("/")[2], entry.size, request.query.get("view"))
    if isinstance(shown, Response):
        return shown
    return job_page(
        request, "output.html", "outputs", job, name=name, entry=entry, shown=shown, size=entry.size
    )


def _outputs(request: PortalRequest, job: JobInfo) -> Outputs:
    check_files(request, job.user)
    return sdk.jobs.find_outputs(request.client, request.params["key"], request.mounts)
