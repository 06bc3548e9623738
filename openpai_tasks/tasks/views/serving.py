"""What notebook.serve does once its job is there: wait, open, stay, bring the changes, leave."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.prompts import agrees
from openpai_tasks.tasks.views.submitting import goes_on

PULLED = ("name", "change", "path", "size")
END = 60.0  # seconds within which a job that is stopped has ended


def token_from(token, token_file):
    """The token that the flags name; empty when they name none."""
    if token and token_file:
        raise ConfigError("give the token itself or in a file, not both")
    if token:
        say("warning: others can see what is on the command line; use --token-file")
    return user_settings.credentials.read_secret(token_file) if token_file else token or ""


def refuse_for_new(file, flags):
    """What only a new job can be given has no meaning for one that is there."""
    given = [name for name, value in flags.items() if value is not None and value is not False]
    wrong = (["the notebook"] if file else []) + [f"--{name.replace('_', '-')}" for name in given]
    if wrong:
        raise ConfigError(f"--reconnect takes a job as it is: leave out {', '.join(wrong)}")


@dataclass(frozen=True)
class Stay:
    """How one stays with a server: what was said on the command line, and where."""

    given: Any
    wait: float
    no_browser: bool
    stop: bool
    output: str | None
    here: Path
    mounted: Any


@dataclass(frozen=True)
class Door:
    """The way into a server, and what is opened first."""

    way: Any
    token: str = field(repr=False)
    file: str = ""


def stay(c, client, job, door, how):
    """Wait until the server answers, open it, and stay until it is over or Ctrl-C; then bring the changes."""
    with goes_on(job.name, again="`notebook.serve --reconnect {name}` opens it again"):
        _serve(c, client, job, door, how)
        _leave(client, job.key, how)


def _serve(c, client, job, door, how):
    way, token = door.way, door.token
    with sdk.notebooks.open_link(client, job.key, way, token, how.given, how.wait, say) as link:
        if way.direct:
            say(f"warning: {link.url} is plain HTTP: who can reach it can read along and learn the token")
        served = sdk.notebooks.Served(job.name, link.address(token, door.file), token, way.direct)
        with contextlib.suppress(KeyboardInterrupt), _open(c, client, job, served, how):
            say(f"job {job.name} serves Jupyter; Ctrl-C brings back what was changed")
            link.until_over()


@contextlib.contextmanager
def _open(c, client, job, served, how):
    """The address on stdout, or the page in a browser by way of a private file: `ps` shows no token."""
    if how.no_browser:
        show(c, served, lambda served: served.url, how.output)
        terminal.flush()
        yield
        return
    door = sdk.notebooks.redirect_file(client, job)
    try:
        if not sdk.clusters.can_open_browser() or not sdk.clusters.open_browser(
            sdk.notebooks.write_redirect(door, served.url)
        ):
            way = f"`notebook.serve --reconnect {job.name} --no-browser` prints the address"
            say(f"no browser could be opened; {way}")
        yield
    finally:
        door.unlink(missing_ok=True)


def _leave(client, key, how):
    """Bring what was changed; then the job stays or ends, as one wishes, or has ended as it did."""
    job = sdk.jobs.find(client, key)
    name = job.name
    brought = _brought(client, key, name, how)
    if job.final:
        sdk.jobs.check_succeeded(job)
    elif how.stop or (sys.stdin.isatty() and agrees(f"stop job {name}?")):
        sdk.jobs.stop(client, [key])
        say(f"job {name} is stopped")
        if brought is None:  # some storages get the output when the job ends
            sdk.jobs.wait(client, key, END)
            brought = _brought(client, key, name, how)
    else:
        ways = f"`notebook.serve --reconnect {name}` opens it again, `job.stop {name}` ends it"
        say(f"job {name} goes on; {ways}")
    if brought:
        sdk.notebooks.check_pulled(brought)


def bring(client, name, here, mounted, target=None):
    """What became of each file; what a person should know of it is told."""
    saved = sdk.notebooks.find_changes(client, name, mounted)
    pulled = sdk.notebooks.pull_changes(saved, here, target)
    for one in pulled.files:
        if one.change == sdk.notebooks.CONFLICT:
            say(f"warning: {cell(one.name)} {one.remark}; what the job has is in {cell(one.path)}")
    for failure in pulled.failed:
        say(f"failed {cell(failure.path)}: {cell(failure.reason)}")
    for name in saved.large:
        limit = f"larger than {sdk.payloads.LARGEST >> 20} MiB"
        say(f"warning: {cell(name)} was changed in the job, but is {limit} and so was not kept")
    if not (saved.changes or saved.large):
        say(f"nothing was changed in job {saved.job.name}")
    elif saved.changes and not (target or saved.folder):
        say(f"note: where job {saved.job.name} was served from is not known here; this is taken: {here}")
    return pulled


def cell(text):
    """What a job says, as it can be printed."""
    return render.cell("path", text)


def _brought(client, key, name, how):
    """What was brought; nothing if that cannot be now, as it can be later."""
    try:
        pulled = bring(client, key, how.here, how.mounted)
    except PaiError as err:
        say(f"warning: {err}; `notebook.pull {name}` tries again")
        return None
    for one in pulled.files:
        if one.change in (sdk.notebooks.NEW, sdk.notebooks.UPDATED):
            say(f"{one.change}: {one.path}")
    if pulled.failed:
        say(f"`notebook.pull {name}` tries again, with --target FOLDER in another place")
    return pulled
