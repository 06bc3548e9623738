"""Run a notebook as a job: submit it, follow it cell by cell, download its results, report failures."""

from __future__ import annotations

import sys

from openpai_tasks import exits, sdk
from openpai_tasks.errors import JobFailed
from openpai_tasks.hints import command
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.terminal import say_coloured
from openpai_tasks.tasks.views.submitting import SUBMITTED, job_continues, submit_or_preview

BROUGHT = ("path", "size")


def tell(remarks):
    for remark in remarks:
        say(f"note: {remark}")


def launch(c, client, submission, preview, detach, output):
    """Submit the job; return it, or None if the command ends here."""
    job = submit_or_preview(client, submission, preview)
    if job is None:
        return None
    if detach:
        show(c, [job], SUBMITTED, output)
        say(f"`{command('notebook.fetch', job.name)}` fetches its results")
        return None
    say(f"job {job.name} submitted to {client.cluster.alias}")
    return job


def finish(c, client, name, folder, no_browser, output, mounted, follow=True):
    """Wait for the job, download and show its results, and end as the job did."""
    complaint = ""
    if follow:
        with job_continues(name, again=f"`{command('notebook.fetch', name)}` fetches its results"):
            complaint = _watch(client, name)
    found = sdk.jobs.ask_patiently(client, lambda: sdk.notebooks.find_results(client, name, mounted))
    if not found.notebook:
        _nothing(found.job, complaint)
    brought = _bring(found, folder)
    show(c, brought.files, BROUGHT, output)
    page = sdk.notebooks.best_page(brought.files)
    can_show = sdk.notebooks.is_for_browsers(page) and not no_browser and sdk.clusters.can_open_browser()
    if can_show and not sdk.clusters.open_browser(page):
        say("no browser could be opened")
    _conclude(found, brought, page, complaint)
    sdk.files.check_copied(brought.copied)


def _watch(client, name):
    """Show the running cell, on a terminal in one line that changes; return the last, unprinted complaint."""
    step, complaint = None, ""
    with LiveView(sys.stderr, transient=True) as screen:
        for event in sdk.notebooks.follow_run(client, name, sdk.diagnosis.News(client, say)):
            if isinstance(event, sdk.notebooks.CellStart):
                step = event
            elif isinstance(event, sdk.notebooks.RunnerError):
                _complain(complaint)
                complaint = event.text
            elif isinstance(event, (sdk.notebooks.RunnerNote, sdk.notebooks.JobLine)) and event.text:
                say(event.text)
            if step:
                screen.show(str(step), str(step))
    return complaint


def _complain(complaint):
    if complaint:
        say(f"error: {complaint}")


def _nothing(job, complaint):
    """Raise the reason why a job ended before its first cell."""
    if job.final and job.exit_status and complaint:
        raise JobFailed(f"job {job.name!r} is {job.state}: {complaint}", job.exit_status)
    _complain(complaint)
    if job.final:
        sdk.jobs.check_succeeded(job)


def _bring(found, folder):
    with views.transfers.metered() as meter:
        brought = sdk.notebooks.download_results(found, folder, meter)
    if brought.copied.failed:
        say(*views.listings.summary(brought.copied).split("\n"))
        say(
            f"`{command('notebook.fetch')} {found.job.name} --folder "
            "FOLDER` brings what is missing to another folder"
        )
    for result in brought.files:
        if result.instead_of:
            say(f"note: {result.instead_of} has changes of its own and stays; the result is {result.path}")
    if brought.others:
        is_one = brought.others == 1
        what = "1 more file is" if is_one else f"{brought.others} more files are"
        say(
            f"{what} in its output: `{command('job.outputs')} "
            f"{found.job.name}` shows {'it' if is_one else 'them'}"
        )
    return brought


def _conclude(found, brought, page, complaint):
    """Report how the notebook ended; raise if it failed."""
    job, told, link = found.job, brought.summary, f"; see {page}" if page else ""
    is_of_results = job.exit_status in (sdk.payloads.NOT_CONVERTED, sdk.payloads.NOT_SAVED)
    reason = complaint if is_of_results else ""
    if not reason:
        _complain(complaint)
    if told and told.state == sdk.notebooks.FAILED:
        _tell_cell(told)
    where = f"cell {told.cell} of {told.of}" if told else ""
    if not job.final:
        far = (
            f", and {where} {'is running' if told.state == sdk.notebooks.RUNNING else 'was the last'}"
            if told
            else ""
        )
        say(
            f"job {job.name} is {job.state}{far}; `{command('notebook.fetch')} "
            f"{job.name} --follow` brings the rest"
        )
    elif job.exit_status and told and told.state != sdk.notebooks.DONE:
        why = _why(found, told, reason)
        raise JobFailed(f"{where} of {found.mark.file} {why}{link}", job.exit_status)
    elif reason:
        raise JobFailed(f"job {job.name!r} is {job.state}: {reason}{link}", job.exit_status)
    elif link and not brought.copied.failed:
        say(f"done{link}")
    if job.final:
        sdk.jobs.check_succeeded(job)


def _why(found, told, reason):
    """Return what happened in the last cell."""
    job, code = found.job, found.job.exit_status
    if told.state == sdk.notebooks.FAILED:
        return f"failed: {told.reason}"
    if code == sdk.payloads.NOT_SAVED:
        why = reason or f"the result could not be saved (`{command('job.logs')} {job.name}` shows why)"
        return f"is the last that is saved: {why}"
    if code == exits.TIMED_OUT and found.is_limited:
        return "was running: the time limit of the job was reached (--max-time)"
    return f"was running: {told.reason or job.message or f'the job ended with {code}'}"


def _tell_cell(told):
    """Print the failed cell and its traceback, coloured on a terminal."""
    say(f"cell {told.cell} of {told.of}:")
    for line in told.source.splitlines():
        say(f"    {line}")
    say_coloured(sdk.notebooks.plain_traceback(told.traceback, sys.stderr.isatty()))
