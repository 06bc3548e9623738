"""Run a notebook as a job: submit it, follow it cell by cell, download its results, report failures."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from openpai_tasks import exits, sdk
from openpai_tasks.errors import JobFailed
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.terminal import put_coloured
from openpai_tasks.tasks.views.submitting import job_continues
from openpai_tasks.text.hints import command

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.notebooks.results import DownloadedResults, Results, RunSummary
    from openpai_tasks.storage.store import Mounts

DOWNLOADED = ("path", "size")


def show_notes(remarks: Iterable[str]) -> None:
    for remark in remarks:
        say(sdk.notebooks.as_line(remark))


def finish(
    c: Context,
    client: Backend,
    name: str,
    folder: Path,
    no_browser: bool,
    output: str | None,
    mounted: Mounts,
    follow: bool = True,
) -> None:
    """Wait for the job, download and show its results, and end as the job did."""
    error = ""
    if follow:
        with job_continues(name, again=f"`{command('notebook.fetch', name)}` fetches its results"):
            error = _watch(client, name)
    found = sdk.jobs.retry_during_outage(client, lambda: sdk.notebooks.find_results(client, name, mounted))
    if not found.notebook:
        _check_started(sdk.diagnosis.add_cause(client, found.job), error)
    downloaded = _download(found, folder)
    show(c, downloaded.files, DOWNLOADED, output)
    page = sdk.notebooks.best_page(downloaded.files)
    can_show = sdk.notebooks.is_for_browsers(page) and not no_browser and sdk.clusters.can_open_browser()
    if can_show and not sdk.clusters.open_browser(page):
        say("could not open a browser")
    _conclude(found, downloaded, page, error)
    sdk.files.check_copied(downloaded.copied)


def _watch(client: Backend, name: str) -> str:
    """Show the running cell, on a terminal in one changing line; return the last error, not yet printed."""
    step = error = ""
    with LiveView(sys.stderr, transient=True) as screen:
        for event in sdk.notebooks.follow_run(client, name, sdk.diagnosis.JobReporter(client, say)):
            if event.kind == sdk.notebooks.CELL:
                step = event.text
            elif event.kind == sdk.notebooks.ERROR:
                _show_error(error)
                error = event.text
            elif event.kind in (sdk.notebooks.NOTE, sdk.notebooks.OTHER) and event.text:
                say(event.text)
            if step:
                screen.show(step, step)
    return error


def _show_error(error: str) -> None:
    if error:
        say(f"error: {error}")


def _check_started(job: JobInfo, error: str) -> None:
    """Raise the reason why a job ended before its first cell."""
    if job.final and job.exit_status and error:
        raise JobFailed(f"{sdk.jobs.describe_end(job)}: {error}", job.exit_status)
    _show_error(error)
    if job.final:
        sdk.jobs.check_succeeded(job)


def _download(found: Results, folder: Path) -> DownloadedResults:
    """Download the results; report what failed, and what else the output has."""
    with contextlib.closing(views.transfers.Meter()) as meter:
        downloaded = sdk.notebooks.download_results(found, folder, meter)
    if downloaded.copied.failed:
        say(*views.listings.describe_copy(downloaded.copied).split("\n"))
        say(
            f"`{command('notebook.fetch', found.job.name)} --folder FOLDER` "
            "downloads the missing files to another folder"
        )
    for result in downloaded.files:
        if result.instead_of:
            say(f"note: {result.instead_of} exists and is not overwritten; the result is in {result.path}")
    if downloaded.others:
        is_one = downloaded.others == 1
        what = "1 more file is" if is_one else f"{downloaded.others} more files are"
        say(
            f"{what} in its output: `{command('job.outputs', found.job.name)}` "
            f"shows {'it' if is_one else 'them'}"
        )
    return downloaded


def _conclude(found: Results, downloaded: DownloadedResults, page: str, error: str) -> None:
    """Report how the notebook ended; raise if it failed."""
    job, summary, link = found.job, downloaded.summary, f"; see {page}" if page else ""
    failed_late = job.exit_status in (sdk.payloads.NOT_CONVERTED, sdk.payloads.NOT_SAVED)
    reason = error if failed_late else ""
    if not reason:
        _show_error(error)
    if summary and summary.state == sdk.notebooks.FAILED:
        _show_failed_cell(summary)
    where = f"cell {summary.cell} of {summary.of}" if summary else ""
    if not job.final:
        far = (
            f", and {where} {'is running' if summary.state == sdk.notebooks.RUNNING else 'was the last'}"
            if summary
            else ""
        )
        say(
            f"job {job.name} is {job.state}{far}; "
            f"`{command('notebook.fetch', job.name, '--follow')}` downloads the rest"
        )
    elif job.exit_status and summary and summary.state != sdk.notebooks.DONE:
        why = _last_cell(found, summary, reason)
        raise JobFailed(f"{where} of {found.mark.file} {why}{link}", job.exit_status)
    elif reason:
        raise JobFailed(f"{sdk.jobs.describe_end(job)}: {reason}{link}", job.exit_status)
    elif link and not downloaded.copied.failed:
        say(f"done{link}")
    if job.final:
        sdk.jobs.check_succeeded(job)


def _last_cell(found: Results, summary: RunSummary, reason: str) -> str:
    """Describe what happened in the last cell."""
    job, code = found.job, found.job.exit_status
    if summary.state == sdk.notebooks.FAILED:
        return f"failed: {summary.reason}"
    if code == sdk.payloads.NOT_SAVED:
        why = reason or f"the result could not be saved (`{command('job.logs', job.name)}` shows why)"
        return f"is the last one saved: {why}"
    if code == exits.TIMED_OUT and found.is_limited:
        return "was running: the time limit of the job was reached (--max-time)"
    return f"was running: {summary.reason or job.message or f'the job ended with {code}'}"


def _show_failed_cell(summary: RunSummary) -> None:
    """Print the failed cell and its traceback, coloured on a terminal."""
    say(f"cell {summary.cell} of {summary.of}:")
    for line in summary.source.splitlines():
        say(f"    {line}")
    put_coloured(sys.stderr, sdk.notebooks.plain_traceback(summary.traceback, sys.stderr.isatty()))
