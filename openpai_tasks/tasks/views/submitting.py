"""Submit a job, or preview it; then follow its output, or return."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import protocol, render, sdk
from openpai_tasks.errors import ApiError, ConfigError, Unreachable
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import screen, terminal
from openpai_tasks.tasks.framework.base import say, settings, show
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.jobs.submission import JobFiles, Submission

SUBMITTED = ("name", "state", "virtual_cluster")
MOVED = ("name", "state", "place")


def send(
    c: Context,
    client: Backend,
    submission: Submission,
    follow: bool,
    preview: bool,
    output: str | None,
    plain: bool = False,
    notify: str | None = None,
) -> None:
    """Submit the job, or show what would be sent; with ``follow``, print its output until it ends."""
    hooks = sdk.jobs.hooks_to_notify(client, submission.hooks, follow, isinstance(notify, str))
    if hooks:
        submission = dataclasses.replace(submission, hooks=type(submission.hooks)())
        say(f"{client.product} keeps no hooks: this command notifies {hooks[0].label} when the job ends")
    job = start(c, client, submission, follow, preview, output)
    if job:
        with job_continues(job.name):
            views.following.write_logs(client, [job.name], sdk.logs.LogChoice(), plain=plain)
        ended, mounts = sdk.jobs.wait(client, job.name), sdk.files.mounts(settings(c))
        views.following.conclude(client, [ended], notify, mounts, hooks)


def start(
    c: Context,
    client: Backend,
    submission: Submission,
    follow: bool,
    preview: bool,
    output: str | None,
    fetch: str = "",
) -> JobInfo | None:
    """Submit the job and return it, or None if the command ends here; the task ``fetch`` gets its results."""
    job = submit_or_preview(client, submission, preview, output)
    if job and follow:
        say(f"job {job.name} submitted to {client.cluster.alias}")
        return job
    if job:
        show(c, [_with_checkpoint(job, submission)], SUBMITTED, output)
        if fetch:
            say(f"`{command(fetch, job.name)}` fetches its results")
    return None


def _with_checkpoint(job: JobInfo, submission: Submission) -> object:
    """Return the job; if it was submitted again, with the checkpoint at which it continues."""
    if not (submission.origin and submission.origin.cloned_from):
        return job
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return {**fields, "resumes_from": submission.resumes_from}


def submit_or_preview(
    client: Backend, submission: Submission, preview: bool, output: str | None = None
) -> JobInfo | None:
    """Submit the job and return it; for a preview, show it and return None."""
    sdk.jobs.check_tags(client, submission.tags)
    if preview:
        show_preview(client, submission, output)
        return None
    report_sources(submission)
    return sdk.jobs.submit_when_ready(client, submission, say)


def is_preview(c: Context, flags: Mapping[str, Any]) -> bool:
    """Whether to send nothing: because of our --preview, or of Invoke's --dry before the task's name."""
    return bool(flags.get("preview") or c.config.run.dry)


def report_sources(packed: Submission | JobFiles) -> None:
    """Report the uploaded sources in one line, and the storage's note, if any, in another."""
    archive, home = packed.archive, packed.home
    if home and home.note:
        say(home.note)
    if archive and home:
        total = f"{counted(len(archive.members), 'file')}, {render.size(archive.unpacked)}"
        place = f"{home.storage}:{home.layout.archives}"
        say(f"sources: {total}; archive of {render.size(archive.size)} in {place}")


def show_preview(
    client: Backend, submission: Submission, output: str | None, sweep: str = "", jobs: int = 1
) -> None:
    """Print the plan of a submission; with ``-o yaml``, ``-o json``, or in a pipe, the document instead."""
    if output not in (None, "table", "yaml", "json"):
        raise ConfigError(f"a preview is a table, yaml or json, not {output}")
    if client.capabilities.dependencies and not submission.v1:  # others would wait here
        sdk.jobs.check_dependencies(client, submission.after, say)
    hidden = " (secrets are masked here)" if submission.shown != submission.text else ""
    if output == "table" or (output is None and sys.stdout.isatty()):
        screen.print_view(render.plan(sdk.jobs.make_plan(client, submission, sweep, jobs)))
        say("nothing was sent; `-o yaml` shows the document")
        return
    if sweep:
        say(f"sweep {sweep}: {counted(jobs, 'job')}, of which the first is shown")
    report_sources(submission)
    for note in submission.notes:
        say(note)
    for member in submission.archive.members if submission.archive else ():
        say(f"  {render.cell('name', member.name)}  {render.size(member.size)}")
    say(f"would POST to {client.submit_url(submission.v1 or submission.text)}; nothing was sent{hidden}")
    if output == "json":
        value = protocol.read(submission.shown).value
        terminal.put(render.format_values(value, render.document, "json"))
    else:
        terminal.exact(submission.shown)


@contextlib.contextmanager
def job_continues(
    names: str | Sequence[str], follows: bool = True, again: str = "", stop: str = ""
) -> Iterator[None]:
    """When Ctrl-C or an outage ends the watching, say that the job continues and how to get back to it."""
    words = [names] if isinstance(names, str) else names
    again = again or f"`{command('job.logs', *words, '--follow')}` shows its output"
    stop = stop or command("job.stop", *words)
    message = f"job {', '.join(words)} continues; {again}, `{stop}` stops it"
    try:
        yield
    except KeyboardInterrupt:
        if follows:
            say("", message)
        raise
    except (Unreachable, ApiError) as err:
        if follows and (type(err) is Unreachable or sdk.jobs.is_outage(err)):  # other errors say what to do
            say(message)
        raise
