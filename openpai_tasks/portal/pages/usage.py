"""The part of a job's page with what its tasks used over time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from openpai_tasks import render, sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.live import Event
from openpai_tasks.portal.plots import line_plot
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo

MOST_TASKS = 12
POINTS = 300
SECONDS = 5.0
"""The shortest time between two looks at a running job."""


class UsagePart:
    """Sends the part of an open page, ``job-usage``, when it has changed."""

    def __init__(self, request: PortalRequest) -> None:
        self._request = request
        self._due = 0.0
        self._shown = ""

    def news(self, job: JobInfo) -> Iterator[Event]:
        """Yield the part if it is time to look; the end of a job is looked at once at least."""
        now = time.monotonic()
        if now < self._due and not job.final:
            return
        self._due = now + SECONDS
        part = self._request.fragment("usage.html", **usage_values(self._request.client, job))
        if part != self._shown:
            self._shown = part
            yield Event("html", {"job-usage": part})


def usage_values(client: Backend, job: JobInfo) -> dict[str, Any]:
    """Return the plots of an attempt of a job, or why there are none."""
    values: dict[str, Any] = {"usage_plots": [], "usage_left_out": 0, "usage_note": ""}
    if not job.launched or not job.tasks or not client.capabilities.usage_history:
        return values
    try:
        tasks = sdk.jobs.read_usage(client, job.name, points=POINTS, job=job, most=MOST_TASKS)
    except PaiError:  # the page is complete without it
        return values
    if why := next((task.unrecorded for task in tasks if task.unrecorded), ""):
        values["usage_note"] = f"Not recorded: {why}."
    plots = [line_plot(chart) for chart in render.usage_charts(tasks)]
    left_out = max(0, len(job.tasks) - MOST_TASKS)
    return values | {"usage_plots": [plot for plot in plots if plot], "usage_left_out": left_out}
