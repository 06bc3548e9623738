"""Serve a notebook from a job: wait for Jupyter, open it, and pull the changes at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError, PaiError, TimedOut
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.prompts import ask_or_interrupt
from openpai_tasks.tasks.views.submitting import job_continues
from openpai_tasks.text.hints import command

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.notebooks.link import LinkOptions, RunningServer
    from openpai_tasks.sdk.notebooks.pull import PullResult
    from openpai_tasks.settings.config import Settings
    from openpai_tasks.storage.store import Mounts

PULLED = ("name", "change", "path", "size")
STOP_SECONDS = 60.0  # seconds to wait for a stopped job to end


def token_from_flags(token: str | None, token_file: str | None) -> str:
    """Return the token that the flags give; empty if they give none."""
    if token and token_file:
        raise ConfigError("give the token either directly or in a file, not both")
    if token:
        say("warning: other users can see command lines; use --token-file")
    return user_settings.credentials.read_secret(token_file) if token_file else token or ""


def check_reconnect_flags(file: str | None, flags: Mapping[str, Any]) -> None:
    """Raise if flags for a new job are combined with --reconnect."""
    given = [name for name, value in flags.items() if value is not None and value is not False]
    wrong = (["the notebook"] if file else []) + [f"--{name.replace('_', '-')}" for name in given]
    if wrong:
        raise ConfigError(f"--reconnect opens an existing job: leave out {', '.join(wrong)}")


@dataclass(frozen=True)
class ServeSession:
    """What the command line says about a served notebook, and how to reach its server."""

    given: Settings
    wait: float
    no_browser: bool
    stop: bool
    output: str | None
    mounted: Mounts
    way: LinkOptions
    token: str = field(repr=False)
    file: str = ""  # to open first


def serve_until_done(c: Context, client: Backend, job: JobInfo, session: ServeSession) -> None:
    """Wait for the server, open it, and serve until the job ends or Ctrl-C; then pull the changes."""
    with job_continues(job.name, again=f"`{_reconnect(job.name)}` opens it again"):
        _serve(c, client, job, session)
        job = sdk.jobs.find(client, job.key)
        if not job.final and _asks_to_stop(job, session):
            sdk.jobs.stop(client, [job.key])
            say(f"job {job.name} stopped")
        else:
            return _leave(client, job, session)
    with contextlib.suppress(TimedOut):  # its last changes are saved when it ends
        sdk.jobs.wait(client, job.key, STOP_SECONDS)
    _check_pulled(_try_pull(client, job, session))


def _serve(c: Context, client: Backend, job: JobInfo, session: ServeSession) -> None:
    way, token = session.way, session.token
    with sdk.notebooks.open_link(client, job.key, way, token, session.given, session.wait, say) as link:
        if way.direct:
            say(
                f"warning: {link.url} is plain HTTP: others on the network can read the traffic and the token"
            )
        served = sdk.notebooks.RunningServer(job.name, link.address(token, session.file), token, way.direct)
        with contextlib.suppress(KeyboardInterrupt), _open(c, client, job, served, session):
            say(f"job {job.name} serves Jupyter; Ctrl-C pulls your changes and ends this command")
            link.until_over()


@contextlib.contextmanager
def _open(
    c: Context, client: Backend, job: JobInfo, served: RunningServer, session: ServeSession
) -> Iterator[None]:
    """Print the address, or open a private file that redirects the browser, so that `ps` shows no token."""
    if session.no_browser:
        show(c, served, lambda served: served.url, session.output)
        terminal.flush()
        yield
        return
    redirect = sdk.notebooks.redirect_file(client, job)
    try:
        if not sdk.clusters.can_open_browser() or not sdk.clusters.open_browser(
            sdk.clusters.write_redirect(redirect, served.url)
        ):
            say(f"could not open a browser; `{_reconnect(job.name)} --no-browser` prints the address")
        yield
    finally:
        redirect.unlink(missing_ok=True)


def _asks_to_stop(job: JobInfo, session: ServeSession) -> bool:
    return session.stop or (sys.stdin.isatty() and ask_or_interrupt(f"stop job {job.name}?"))


def _leave(client: Backend, job: JobInfo, session: ServeSession) -> None:
    """Pull the changes, and say that the job continues; fail if it has failed."""
    pulled, name = _try_pull(client, job, session), job.name
    if job.final:
        sdk.jobs.check_succeeded(job)
    else:
        say(
            f"job {name} continues; `{_reconnect(name)}` opens it again, "
            f"`{command('job.stop', name)}` stops it"
        )
    _check_pulled(pulled)


def _check_pulled(pulled: PullResult | None) -> None:
    if pulled:
        sdk.notebooks.check_pulled(pulled)


def pull_changes(
    client: Backend, name: str, here: Path, mounted: Mounts, target: Path | None = None
) -> PullResult:
    """Copy changed files here and return what was done with each; report conflicts and failures."""
    saved = sdk.notebooks.find_changes(client, name, mounted)
    pulled = sdk.notebooks.pull_changes(saved, here, target)
    for one in pulled.files:
        if one.change == sdk.notebooks.CONFLICT:
            say(f"warning: {cell(one.name)} {one.remark}; the job's version is in {cell(one.path)}")
    for failure in pulled.failed:
        say(f"failed {cell(failure.path)}: {cell(failure.reason)}")
    for name in saved.large:
        limit = f"larger than {sdk.payloads.LARGEST >> 20} MiB"
        say(f"warning: {cell(name)} was changed in the job, but not saved: it is {limit}")
    if not saved.is_latest:
        say(f"warning: job {saved.job.name} is not answering; these are its changes so far")
    if not (saved.changes or saved.large):
        say(f"nothing was changed in job {saved.job.name}")
    elif saved.changes and not (target or saved.folder):
        say(f"note: job {saved.job.name} was not served from this machine; its files go to {here}")
    return pulled


def cell(text: str) -> str:
    """Make text of a job safe to print."""
    return render.cell("path", text)


def _try_pull(client: Backend, job: JobInfo, session: ServeSession) -> PullResult | None:
    """Pull the changes; None if that fails, as it can be tried again later."""
    name = job.name
    try:
        pulled = pull_changes(client, job.key, Path.cwd(), session.mounted)
    except PaiError as err:
        say(f"warning: {err}; `{command('notebook.pull', name)}` tries again")
        return None
    for one in pulled.files:
        if one.change in (sdk.notebooks.NEW, sdk.notebooks.UPDATED):
            say(f"{one.change}: {one.path}")
    if pulled.failed:
        say(f"`{command('notebook.pull', name)}` tries again; add --target FOLDER to use another folder")
    return pulled


def _reconnect(name: str) -> str:
    return command("notebook.serve", "--reconnect", name)
