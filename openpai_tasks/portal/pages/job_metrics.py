"""Plots of the metrics that a job's program recorded, while it runs and afterwards."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from openpai_tasks import render, sdk
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages.job_frame import check_files, find_job, heading_values, job_page
from openpai_tasks.portal.plots import line_plot
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader
from openpai_tasks.settings.config import load_settings

LIVE_SECONDS = 2.0


def page(request: PortalRequest) -> Response:
    job = find_job(request)
    try:
        values = _values(_reader(request).read(job), request)
    except PaiError as err:
        values = _values([], request) | {"problem": str(err)}
    return job_page(request, "metrics.html", "metrics", job, **values)


def live(request: PortalRequest) -> Steps:
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
                "html", {"metrics": request.fragment("metrics_plots.html", **_values(found, request))}
            )
        if not isinstance(step, JobInfo):
            yield max(step, LIVE_SECONDS)


def _reader(request: PortalRequest) -> MetricReader:
    check_files(request, find_job(request).user)
    return sdk.jobs.MetricReader(request.client, request.params["key"], sdk.files.mounts(load_settings()))


def _values(found: list[Metric], request: PortalRequest) -> dict[str, Any]:
    wanted = request.query.get("metric", "").split()
    chosen = sdk.jobs.select_metrics(found, wanted)
    plots = [line_plot(chart) for chart in render.metric_charts(chosen)]
    return {"plots": [plot for plot in plots if plot], "metrics": chosen, "problem": "", "wanted": wanted}
