"""The table of pages: method, path and the function that answers; the first matching row counts."""

from __future__ import annotations

from dataclasses import dataclass

from openpai_tasks.portal.pages import (
    cluster,
    clusters,
    job,
    job_changes,
    job_document,
    job_metrics,
    job_outputs,
    jobs,
    legacy,
    logs,
    storage,
    submit,
    submit_form,
    sweeps,
)
from openpai_tasks.portal.request import Handler

LIVE = "live"
REST = "*"
"""At the end of a path: all further segments, joined by slashes; an encoded slash matches nothing."""

TABLE: list[tuple[str, str, Handler]] = [
    ("GET", "/", legacy.first_page),
    ("GET", "/job-list.html", legacy.job_list),
    ("GET", "/job-detail.html", legacy.job_detail),
    ("GET", "/submit.html", legacy.submit),
    ("GET", "/c/{alias}", legacy.first_page_of_cluster),
    ("GET", "/c/{alias}/jobs", jobs.page),
    ("GET", "/c/{alias}/jobs.live", jobs.live),
    ("POST", "/c/{alias}/jobs.stop", jobs.stop),
    ("GET", "/c/{alias}/jobs/{key}", job.page),
    ("GET", "/c/{alias}/jobs/{key}/live", job.live),
    ("POST", "/c/{alias}/jobs/{key}/stop", job.stop),
    ("GET", "/c/{alias}/jobs/{key}/logs", logs.page),
    ("GET", "/c/{alias}/jobs/{key}/logs.live", logs.live),
    ("GET", "/c/{alias}/jobs/{key}/logs.txt", logs.download),
    # Submit
    ("GET", "/c/{alias}/submit", submit.page),
    ("POST", "/c/{alias}/submit", submit.send),
    ("POST", "/c/{alias}/submit/check", submit.check),
    ("POST", "/c/{alias}/submit/preview", submit.preview),
    ("POST", "/c/{alias}/submit/convert", submit.convert),
    ("GET", "/c/{alias}/submit/schema", submit.schema),
    ("GET", "/c/{alias}/submit/form", submit_form.page),
    ("POST", "/c/{alias}/submit/form", submit_form.send),
    ("POST", "/c/{alias}/submit/form/check", submit_form.check),
    ("POST", "/c/{alias}/submit/form/preview", submit_form.preview),
    ("POST", "/c/{alias}/submit/form/upload", submit_form.upload),
    ("POST", "/c/{alias}/submit/form/remove", submit_form.remove),
    # Clusters
    ("GET", "/clusters", clusters.page),
    ("GET", "/clusters.live", clusters.live),
    ("GET", "/c/{alias}/cluster", cluster.page),
    ("GET", "/c/{alias}/cluster.live", cluster.live),
    # Storage
    ("GET", "/c/{alias}/storage", storage.index),
    ("GET", "/c/{alias}/storage/{storage}", storage.page),
    ("GET", "/c/{alias}/storage/{storage}/*", storage.page),
    ("PUT", "/c/{alias}/storage/{storage}/*", storage.upload),
    ("POST", "/c/{alias}/storage.check/{storage}/*", storage.check),
    ("POST", "/c/{alias}/storage.folder/{storage}/*", storage.make_folder),
    ("POST", "/c/{alias}/storage.remove/{storage}/*", storage.remove),
    # One job: its other tabs and buttons
    ("GET", "/c/{alias}/jobs/{key}/records", logs.records),
    ("GET", "/c/{alias}/jobs/{key}/records.live", logs.records_live),
    ("GET", "/c/{alias}/jobs/{key}/ssh-command", job.ssh_command),
    ("GET", "/c/{alias}/jobs/{key}/resubmit", job_changes.resubmit),
    ("POST", "/c/{alias}/jobs/{key}/resubmit", job_changes.send),
    ("GET", "/c/{alias}/jobs/{key}/compare", job_changes.compare),
    ("GET", "/c/{alias}/jobs/{key}/document", job_document.page),
    ("GET", "/c/{alias}/jobs/{key}/document.txt", job_document.download),
    ("GET", "/c/{alias}/jobs/{key}/provenance", job_document.provenance),
    ("GET", "/c/{alias}/jobs/{key}/metrics", job_metrics.page),
    ("GET", "/c/{alias}/jobs/{key}/metrics.live", job_metrics.live),
    ("GET", "/c/{alias}/jobs/{key}/outputs", job_outputs.page),
    ("GET", "/c/{alias}/jobs/{key}/outputs/*", job_outputs.file),
    # Sweeps
    ("GET", "/c/{alias}/sweeps", sweeps.listing),
    ("GET", "/c/{alias}/sweeps/{name}", sweeps.page),
    ("GET", "/c/{alias}/sweeps/{name}/live", sweeps.live),
]


@dataclass(frozen=True)
class PageMatch:
    """The function that answers, and the values in the path."""

    handler: Handler
    params: dict[str, str]
    is_live: bool
    """Whether the page follows changes, rather than being opened by somebody."""


def find(method: str, path: list[str]) -> PageMatch | None:
    """Return the first row that matches."""
    for row, pattern, handler in TABLE:
        if row == method and (params := _match(pattern.split("/")[1:], path)) is not None:
            return PageMatch(handler, params, pattern.endswith(LIVE))
    return None


def _match(pattern: list[str], path: list[str]) -> dict[str, str] | None:
    if pattern[-1] == REST:
        if len(path) < len(pattern) or any("/" in word for word in path[len(pattern) - 1 :]):
            return None
        path = [*path[: len(pattern) - 1], "/".join(path[len(pattern) - 1 :])]
    if len(pattern) != len(path):
        return None
    params = {}
    for expected, word in zip(pattern, path, strict=True):
        if expected == REST:
            params["rest"] = word
        elif expected.startswith("{"):
            if not word:
                return None
            params[expected[1:-1]] = word
        elif expected != word:
            return None
    return params
