"""What jobs had and used: a table, lines over time, and the same as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.responses import Response

from openpai_tasks import render, sdk
from openpai_tasks.backends.base import UsageReport
from openpai_tasks.portal.plots import Plot, line_plot
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.render import Chart, Series

SPANS = {"1d": "last day", "7d": "last week", "30d": "last 30 days", "90d": "last 90 days"}
COLUMNS = ("name", "jobs", "gpu_hours", "gpu_used", "cpu_hours", "cpu_used", "waited", "failed")
DEFAULTS = {"since": "30d", "by": "user", "user": ""}
POINTS = 60
MOST_LINES = 10


def page(request: PortalRequest) -> Response:
    report = _read(request, POINTS)
    return request.page(
        "report.html",
        report=report,
        title=render.report_title(report),
        cells=render.cells(report.rows, COLUMNS),
        plots=list(_plots(report)),
        spans=SPANS,
        groups=sdk.usage_report.GROUPS,
        query={**DEFAULTS, **request.query},
    )


def download(request: PortalRequest) -> Response:
    text = render.format_values(_read(request).rows, COLUMNS, "csv")
    headers = {"content-disposition": 'attachment; filename="report.csv"'}
    return Response(text + "\n", media_type="text/csv", headers=headers)


def _read(request: PortalRequest, points: int = 0) -> UsageReport:
    since, by, user = (request.query.get(name, default) for name, default in DEFAULTS.items())
    return sdk.usage_report.report_usage(request.client, by, since, user or None, points, request.records)


def _plots(report: UsageReport) -> Iterator[Plot]:
    """Yield how many GPUs and CPUs each group had over time, on average."""
    for title, series in (("GPUs", report.gpu_series), ("CPUs", report.cpu_series)):
        names = sorted(series, key=lambda name: -sum(series[name]))[:MOST_LINES]
        lines = [Series(name or "none", _points(report, series[name])) for name in names if any(series[name])]
        if plot := line_plot(Chart(f"{title} in use, by {report.by}", lines, x="time", from_zero=True)):
            yield plot


def _points(report: UsageReport, hours: Sequence[float]) -> list[tuple[float, float]]:
    """Return the mean of each part of the time, by seconds from now."""
    length = (report.until - report.since) / 1000 / len(hours)
    return [((at + 1 - len(hours)) * length, value * 3600 / length) for at, value in enumerate(hours)]
