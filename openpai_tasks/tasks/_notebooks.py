"""What the tasks that run notebooks share: submit, follow cell by cell, bring the results, tell failures."""

from __future__ import annotations

import contextlib
import sys

from openpai_tasks.errors import JobFailed
from openpai_tasks.lazy import lazy
from openpai_tasks.tasks._base import say, show
from openpai_tasks.tasks._screen import Screen
from openpai_tasks.tasks._sending import SUBMITTED, submitted

files = lazy("openpai_tasks.sdk.files")
jobs = lazy("openpai_tasks.sdk.jobs")
listings = lazy("openpai_tasks.tasks._listings")
portal = lazy("openpai_tasks.sdk.portal")
progress = lazy("openpai_tasks.sdk.notebook_progress")
results = lazy("openpai_tasks.sdk.notebook_results")
shutil = lazy("shutil")
transfers = lazy("openpai_tasks.tasks._transfers")

COMPLAINT = "error: "
BROUGHT = ("path", "size")
TIMED_OUT = 124  # the exit code of a job that has reached its limit


def tell(remarks):
    for remark in remarks:
        say(f"note: {remark}")


def launch(c, client, submission, preview, detach, output, after=None, tags=None):
    """The job to stay with; none if there is nothing to stay with."""
    job = submitted(client, submission, preview, after or (), tags or ())
    if job is None:
        return None
    if detach:
        show(c, [job], SUBMITTED, output)
        say(f"`notebook.fetch {job.name}` brings its results")
        return None
    say(f"job {job.name} is submitted to {client.cluster.alias}")
    return job


def finish(c, client, name, folder, no_browser, output, mounted, follow=True):
    """Stay until the job is over, bring what it wrote, show it, and end as the job did."""
    complaint = ""
    if follow:
        with _goes_on(name):
            complaint = _watch(client, name)
    found = results.find(client, name, mounted)
    if not found.names:
        _nothing(found.job, complaint)
    brought = _bring(found, folder)
    show(c, brought, BROUGHT, output)
    page = results.page(brought)
    can_show = results.is_for_browsers(page) and not no_browser and portal.can_show()
    if can_show and not portal.browse(page):
        say("no browser could be opened")
    _conclude(found, results.told(brought), page)


def _watch(client, name):
    """Show how far it is, on a terminal in a line that changes; the last complaint that it has."""
    screen, step, complaint = Screen(sys.stderr), None, ""
    for event in progress.follow(client, name):
        if isinstance(event, progress.Step):
            step = event
        elif isinstance(event, progress.Said) and event.text:
            screen.clear()
            say(event.text)
            complaint = event.text if event.text.startswith(COMPLAINT) else complaint
        if step:
            screen.show(_fitting(str(step)), str(step))
    screen.clear()
    return complaint.removeprefix(COMPLAINT)


def _nothing(job, complaint):
    """A job that is over and never came to its first cell has failed, and says why."""
    if job.final and job.exit_status and complaint:
        raise JobFailed(f"job {job.name!r} is {job.state}: {complaint}", job.exit_status)
    if job.final:
        jobs.check(job)


def _fitting(line):
    width = shutil.get_terminal_size().columns - 1
    return line if len(line) <= width else line[: max(1, width - 1)] + "…"


def _bring(found, folder):
    with transfers.metered() as meter:
        copied, brought = results.bring(found, folder, meter)
    if copied.failed:
        say(listings.summary(copied))
    files.check(copied)
    for result in brought:
        if result.instead_of:
            say(f"note: {result.instead_of} has changes of its own and stays; the result is {result.path}")
    if found.others:
        is_one = found.others == 1
        what = "1 more file is" if is_one else f"{found.others} more files are"
        say(f"{what} in its output: `job.outputs {found.job.name}` shows {'it' if is_one else 'them'}")
    return brought


def _conclude(found, told, page):
    """Say how it ended; raise if it did not end well."""
    job, link = found.job, f"; see {page}" if page else ""
    if told and told.state == "failed":
        _tell_cell(told)
    where = f"cell {told.cell} of {told.of}" if told else ""
    if not job.final:
        far = f", and {where} {'is running' if told.state == 'running' else 'was the last'}" if told else ""
        say(f"job {job.name} is {job.state}{far}; `notebook.fetch {job.name} --follow` brings the rest")
    elif job.exit_status and told and told.state != "done":
        raise JobFailed(f"{where} of {found.mark.file} {_why(job, told)}{link}", job.exit_status)
    elif link:
        say(f"done{link}")
    if job.final:
        jobs.check(job)


def _why(job, told):
    """What became of the cell that was the last one."""
    if told.state == "failed":
        return f"failed: {told.reason}"
    if job.exit_status == TIMED_OUT:
        return "was running: the time limit of the job was reached (--max-time)"
    return f"was running: {told.reason or job.message or f'the job ended with {job.exit_status}'}"


def _tell_cell(told):
    """The failing cell and its traceback; colours are for terminals."""
    say(f"cell {told.cell} of {told.of}:")
    for line in told.source.splitlines():
        say(f"    {line}")
    say(results.plain(told.traceback, sys.stderr.isatty()))


@contextlib.contextmanager
def _goes_on(name):
    """Ctrl-C ends the watching, never the job."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\njob {name} goes on; `notebook.fetch {name}` brings its results, `job.stop {name}` ends it")
        raise
