"""What the tasks that submit share: show or send, then stay or leave."""

from __future__ import annotations

import contextlib
import sys

from openpai_tasks import render, sdk
from openpai_tasks.errors import ApiError, Unreachable
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, show

SUBMITTED = ("name", "state", "virtual_cluster")


def send(c, client, submission, follow, preview, output, plain=False):
    """Show what would be sent, or send it and stay or leave."""
    job = submitted(client, submission, preview)
    if job is None:
        return
    if not follow:
        show(c, [job], SUBMITTED, output)
        return
    say(f"job {job.name} is submitted to {client.cluster.alias}")
    with goes_on(job.name):
        news = sdk.diagnosis.News(client, say)
        write(
            sdk.logs.read_output(client, job.name, sdk.logs.LogChoice(), follow=True, look=news, plain=plain)
        )
    sdk.jobs.check_succeeded(sdk.jobs.wait(client, job.name))


def submitted(client, submission, preview):
    """The job when it is on the cluster; none if it was to be shown only, and has been."""
    sdk.jobs.check_tags(client, submission.tags)
    tell_sources(submission)
    if preview:
        show_preview(client, submission)
        return None
    sdk.jobs.wait_for_success(client, submission.after, say)
    return sdk.jobs.add_tags(client, sdk.jobs.submit(client, submission, say), submission.tags)


def only_looks(c, flags):
    """Whether nothing is to be sent: by our own --preview, or by Invoke's --dry before the task's name."""
    return bool(flags.get("preview") or c.config.run.dry)


def tell_sources(packed):
    """What goes along, in one line; and in another why it does not go where it was told to."""
    archive, home = packed.archive, packed.home
    if home and home.note:
        say(home.note)
    if archive:
        total = f"{len(archive.members)} files, {render.size(archive.unpacked)}"
        path = home.layout.archive(archive.sha256)
        say(f"sources: {total}, packed {render.size(archive.size)} to {home.storage}:{path}")


def show_preview(client, submission):
    """The text that would be sent, on stdout; all else is talk."""
    for member in submission.archive.members if submission.archive else ():
        say(f"  {render.cell('name', member.name)}  {render.size(member.size)}")
    hidden = " (its secrets are masked here)" if submission.shown != submission.text else ""
    url = client.submit_url(submission.v1 or submission.text)
    say(f"would POST to {url}; nothing was sent{hidden}")
    terminal.exact(submission.shown)


def write(chunks):
    """A job's output, as it comes."""
    for data in chunks:
        terminal.raw(sys.stdout, data)


@contextlib.contextmanager
def goes_on(name, follows=True, again="`job.logs {name} --follow` shows it again"):
    """Ctrl-C or a lost cluster ends the watching, never the job; ``again`` is how to see more later."""
    told = f"job {name} goes on; {again.format(name=name)}, `job.stop {name}` ends it"
    try:
        yield
    except KeyboardInterrupt:
        if follows:
            say("", told)
        raise
    except (Unreachable, ApiError) as err:
        if follows and (type(err) is Unreachable or sdk.jobs.is_outage(err)):  # others say what to do
            say(told)
        raise
