"""The table of pages: method, path and the function that answers; the first matching row counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openpai_tasks.portal.pages import (
    cluster,
    clusters,
    compare,
    job,
    job_document,
    jobs,
    logs,
    overview,
    report,
    storage,
    submit,
    submit_form,
    sweeps,
    tensorboard,
)
from openpai_tasks.portal.request import PortalRequest


@dataclass(frozen=True)
class Page:
    method: str
    path: str
    handler: Callable[[PortalRequest], Any]

    @property
    def is_live(self) -> bool:
        """Whether the handler yields the ``Steps`` of an open page, instead of returning a response."""
        return self.path.endswith("live")


def _form(path: str) -> list[Page]:
    """Return what the form for a job sends."""
    return [
        Page("POST", path, submit_form.send),
        Page("POST", f"{path}/check", submit_form.check),
        Page("POST", f"{path}/preview", submit_form.preview),
        Page("POST", f"{path}/upload", submit_form.upload),
        Page("POST", f"{path}/remove", submit_form.remove),
    ]


TABLE = [
    Page("GET", "/", clusters.first_page),
    Page("GET", "/job-list.html", clusters.first_page),
    Page("GET", "/job-detail.html", clusters.job_detail),
    Page("GET", "/submit.html", clusters.submit),
    Page("GET", "/c/{alias}", clusters.first_page),
    Page("GET", "/c/{alias}/jobs", jobs.page),
    Page("GET", "/c/{alias}/jobs.live", jobs.live),
    Page("POST", "/c/{alias}/jobs.stop", jobs.stop),
    Page("POST", "/c/{alias}/jobs.compare", jobs.compare),
    Page("POST", "/c/{alias}/jobs.tag", jobs.tag),
    Page("POST", "/c/{alias}/jobs.resubmit", jobs.resubmit),
    Page("GET", "/c/{alias}/jobs/{key}", overview.page),
    Page("GET", "/c/{alias}/jobs/{key}/live", overview.live),
    Page("POST", "/c/{alias}/jobs/{key}/stop", job.stop),
    Page("POST", "/c/{alias}/jobs/{key}/move", job.move),
    Page("GET", "/c/{alias}/jobs/{key}/logs", logs.page),
    Page("GET", "/c/{alias}/jobs/{key}/logs.live", logs.live),
    Page("GET", "/c/{alias}/jobs/{key}/logs.lines", logs.lines),
    Page("GET", "/c/{alias}/jobs/{key}/logs.count", logs.count),
    Page("GET", "/c/{alias}/jobs/{key}/logs.find.live", logs.find),
    Page("GET", "/c/{alias}/jobs/{key}/logs.txt", logs.download),
    # Submit
    Page("GET", "/c/{alias}/submit", submit_form.page),
    *_form("/c/{alias}/submit"),
    Page("GET", "/c/{alias}/submit/file", submit.page),
    Page("POST", "/c/{alias}/submit/file", submit.send),
    Page("POST", "/c/{alias}/submit/file/check", submit.check),
    Page("POST", "/c/{alias}/submit/file/preview", submit.preview),
    Page("POST", "/c/{alias}/submit/file/convert", submit.convert),
    Page("GET", "/c/{alias}/submit/file/schema", submit.schema),
    # Clusters
    Page("GET", "/clusters", clusters.page),
    Page("GET", "/clusters.live", clusters.live),
    Page("GET", "/c/{alias}/cluster", cluster.page),
    Page("GET", "/c/{alias}/cluster.live", cluster.live),
    Page("GET", "/c/{alias}/report", report.page),
    Page("GET", "/c/{alias}/report.csv", report.download),
    # Storage
    Page("GET", "/c/{alias}/storage", storage.index),
    Page("GET", "/c/{alias}/storage/{storage}", storage.page),
    Page("GET", "/c/{alias}/storage/{storage}/*", storage.page),
    Page("PUT", "/c/{alias}/storage/{storage}/*", storage.upload),
    Page("POST", "/c/{alias}/storage.check/{storage}/*", storage.check),
    Page("POST", "/c/{alias}/storage.folder/{storage}/*", storage.make_folder),
    Page("POST", "/c/{alias}/storage.remove/{storage}/*", storage.remove),
    # One job: its other tabs and buttons
    Page("GET", "/c/{alias}/jobs/{key}/records", logs.records),
    Page("GET", "/c/{alias}/jobs/{key}/records.live", logs.records_live),
    Page("GET", "/c/{alias}/jobs/{key}/ssh-command", job.ssh_command),
    Page("GET", "/c/{alias}/jobs/{key}/resubmit", submit_form.resubmit),
    *_form("/c/{alias}/jobs/{key}/resubmit"),
    Page("GET", "/c/{alias}/jobs/{key}/resubmit/document", job_document.resubmit),
    Page("POST", "/c/{alias}/jobs/{key}/resubmit/document", job_document.send),
    Page("GET", "/c/{alias}/jobs/{key}/compare", compare.compare_one),
    Page("GET", "/c/{alias}/jobs/{key}/document", job_document.page),
    Page("GET", "/c/{alias}/jobs/{key}/document.txt", job_document.download),
    Page("GET", "/c/{alias}/jobs/{key}/provenance", job_document.provenance),
    Page("GET", "/c/{alias}/jobs/{key}/metrics", job.metrics),
    Page("GET", "/c/{alias}/jobs/{key}/metrics.live", job.metrics_live),
    Page("GET", "/c/{alias}/jobs/{key}/metrics.json", job.metrics_data),
    Page("GET", "/c/{alias}/jobs/{key}/outputs", job.outputs),
    Page("GET", "/c/{alias}/jobs/{key}/outputs/*", job.output),
    # Runs side by side
    Page("GET", "/c/{alias}/compare", compare.page),
    Page("GET", "/c/{alias}/compare.live", compare.live),
    Page("GET", "/c/{alias}/compare.json", compare.data),
    # Sweeps
    Page("GET", "/c/{alias}/sweeps", sweeps.listing),
    Page("GET", "/c/{alias}/sweeps/{name}", sweeps.page),
    Page("GET", "/c/{alias}/sweeps/{name}/live", sweeps.live),
    # TensorBoard
    Page("POST", "/c/{alias}/tensorboard", tensorboard.start),
    Page("GET", "/c/{alias}/tensorboard/{board}", tensorboard.page),
    Page("POST", "/c/{alias}/tensorboard/{board}/stop", tensorboard.stop),
]
