"""The pages of a job: what they share, its metrics and its outputs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from starlette.responses import JSONResponse, Response

from openpai_tasks import render, sdk
from openpai_tasks.backends.base import Backend, require
from openpai_tasks.errors import Denied, NotFound, PaiError
from openpai_tasks.portal import previews
from openpai_tasks.portal.html import url
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.plots import Plot, line_plot, metric_data
from openpai_tasks.portal.request import PortalRequest, redirect, whole_number
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader, is_lower_better
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.sdk.jobs.records import Record, find_record
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.location import Location

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


def find_own_record(request: PortalRequest, job: JobInfo) -> Record | None:
    """Return what this project's folder recorded about the submission."""
    try:
        return find_record(request.records, job.name, request.alias)
    except PaiError:
        return None


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


def submit_now(client: Backend, made: Submission) -> JobInfo:
    """Submit a job; refuse one that this process would have to wait for others with."""
    if made.after:
        require(client, "dependencies")
    return sdk.jobs.submit_when_ready(client, made, client.say)


def move(request: PortalRequest) -> Response:
    """Put a waiting job before the others of its owner."""
    sdk.jobs.move(request.client, request.params["key"], first=True)
    return redirect("c", request.alias, "jobs", request.params["key"])


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


# Metrics


def metrics(request: PortalRequest) -> Response:
    job = find_job(request)
    try:
        values = _metric_values(metric_reader(request).read(job), request)
    except PaiError as err:
        values = _metric_values([], request) | {"problem": str(err)}
    return job_page(request, "metrics.html", "metrics", job, **values)


def metrics_live(request: PortalRequest) -> Steps:
    """Send the plots again whenever there are more points, until the job ends."""
    reader = metric_reader(request)
    job, shown = reader.job, (-1, False)
    for step in sdk.jobs.watch_steps(request.client, job.key):
        if isinstance(step, JobInfo):
            job = step
            heading = request.fragment("job_heading.html", **heading_values(request, job))
            yield Event("html", {"job-heading": heading})
            if not job.final:
                continue
        found = reader.read(job)
        now = (sum(metric.count for metric in found), job.final)
        if now != shown:
            shown = now
            plots = request.fragment("metrics_plots.html", job=job, **_metric_values(found, request))
            yield Event("html", {"metrics": plots})
        if not isinstance(step, JobInfo):
            yield max(step, METRIC_SECONDS)


def metric_reader(request: PortalRequest) -> MetricReader:
    check_files(request, find_job(request).user)
    return sdk.jobs.MetricReader(request.client, request.params["key"], request.mounts, is_thinned=True)


def metrics_data(request: PortalRequest) -> Response:
    """Return the numbers of one metric, for the script of its plot."""
    return JSONResponse(metric_data(metric_reader(request).read(), request.query))


def _metric_values(found: list[Metric], request: PortalRequest) -> dict[str, Any]:
    wanted = request.query.get("metric", "").split()
    chosen = sdk.jobs.select_metrics(found, wanted)
    plots = metric_plots(chosen, found, metrics_address(request))
    return {"plots": plots, "metrics": chosen, "problem": "", "wanted": wanted}


def metrics_address(request: PortalRequest) -> Callable[..., str]:
    """Return a function that makes addresses of the numbers of a metric."""
    return partial(url, "c", request.alias, "jobs", request.params["key"], "metrics.json")


def metric_plots(
    chosen: Sequence[Metric],
    found: Sequence[Metric],
    source: Callable[..., str],
    name_jobs: bool = False,
) -> list[Plot]:
    """Return a plot for each chosen metric; a loss has its lowest value marked, a score its highest.

    ``source`` returns the address of the numbers of a metric.
    """
    choices = render.x_choices(found)
    drawn = render.metric_charts(chosen, name_jobs=name_jobs)
    charts = [replace(chart, best=_best(chart.title)) for chart in drawn]
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
        found = find_outputs(request, job).without_runtime_files
    except PaiError as err:
        return job_page(request, "outputs.html", "outputs", job, problem=str(err), found=None, files=())
    files = found.rows[:MOST_FILES]
    return job_page(request, "outputs.html", "outputs", job, problem="", found=found, files=files)


def output(request: PortalRequest) -> Response:
    """Show one file, send it to be saved, or send what the frame of its preview shows."""
    job = find_job(request)
    found = find_outputs(request, job)
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


def find_outputs(request: PortalRequest, job: JobInfo) -> Outputs:
    check_files(request, job.user)
    return sdk.jobs.find_outputs(request.client, request.params["key"], request.mounts)
