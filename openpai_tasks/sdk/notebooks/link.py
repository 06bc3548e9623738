"""Connect to a Jupyter server in a job, by tunnel or by the node's address, and wait until it answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from urllib.parse import quote

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, Denied, JobFailed, PaiError, TimedOut, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.containers.forwarding import Forward, Port
from openpai_tasks.sdk.diagnosis.explain import STARTING, wait_reason
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.notebooks.notebook_file import SUFFIX
from openpai_tasks.sdk.payloads.notebook_runner import visible
from openpai_tasks.sdk.payloads.notebook_server import PORT
from openpai_tasks.sdk.ssh.connection import LOOPBACK
from openpai_tasks.settings.config import Settings
from openpai_tasks.text.hints import command

Say = Callable[[str], object]

ANSWER_SECONDS = 10.0  # for one request
LARGEST_ANSWER = 64 << 10  # bytes
SSH_START_SECONDS = 20.0  # time a container's ssh service may take to start
RUNNER_PREFIX, ERROR_PREFIX = "notebook: ", "error: "
LINES = 20
PORT_FLAG = "--port {here}"  # how notebook.serve takes a local port
END_SECONDS = 120.0  # time a stopping job may take to end


@dataclass(frozen=True)
class RunningServer:
    """A server that answers; its URL contains the token."""

    job: str
    url: str = field(repr=False)
    token: str = field(repr=False)
    direct: bool


@dataclass(frozen=True)
class LinkOptions:
    """How to reach a server."""

    direct: bool = False
    port: int = 0  # on this machine; 0 is any free port

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"--port must be between 0 and 65535, got {self.port}")
        if self.direct and self.port:
            raise ConfigError("--port is the local end of a tunnel, so it cannot be used with --direct")


class Link:
    """An open connection to a server at ``url``."""

    def __init__(self, client: Backend, name: str, url: str, forward: Forward | None = None) -> None:
        self.url, self._client, self._name, self._forward = url, client, name, forward

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def until_over(self) -> None:
        """Wait until the job ends or is restarted by the cluster."""
        if self._forward is None:
            lookup.wait(self._client, self._name)
            return
        self._forward.serve()
        pauses, soon = Pauses(self._client, END_SECONDS), time.monotonic() + SSH_START_SECONDS
        while True:
            job = pauses.ask(lambda: lookup.find(self._client, self._name))
            is_restarted = job.state == endpoints.RUNNING and time.monotonic() > soon
            if job.final or is_restarted or pauses.over:
                return
            pauses.wait()

    def close(self) -> None:
        if self._forward is not None:
            self._forward.close()

    def answers(self, token: str) -> bool:
        """Return whether Jupyter answers; raise Denied if it refuses the token."""
        try:
            status, content = _get(f"{self.url}/api/status", token, LARGEST_ANSWER)
            found = parse(content) if status == 200 else None
        except (OSError, ValueError):
            return False
        if status in (401, 403):
            raise Denied(f"the Jupyter server of job {self._name!r} refuses the token", status)
        return isinstance(found, dict) and "kernels" in found

    def address(self, token: str, file: str) -> str:
        """Return the URL of the notebook's page, token included."""
        return f"{self.url}{notebook_page(file, lambda path: self._has(path, token))}?token={token}"

    def _has(self, path: str, token: str) -> bool:
        try:
            return _get(self.url + path, token)[0] < 400
        except (OSError, ValueError):
            return False


def notebook_page(file: str, has: Callable[[str], bool]) -> str:
    """Return the path that shows the notebook in the first interface that the server has."""
    if has("/lab"):
        return f"/lab/tree/{quote(file)}" if file else "/lab"
    if has("/tree"):
        return f"/notebooks/{quote(file)}" if file.endswith(SUFFIX) else "/tree"
    return "/"


def open_link(
    client: Backend, name: str, options: LinkOptions, token: str, settings: Settings, limit: float, say: Say
) -> Link:
    """Wait until the server answers, reporting the reason for the wait."""
    report, pauses = _WaitReporter(say, limit), Pauses(client, limit)
    link: Link | None = None
    try:
        while True:
            job = pauses.ask(lambda: lookup.find(client, name))
            if job.final:
                raise _ended_error(client, job)
            try:
                link = link or pauses.ask(partial(_open, client, job, options, settings, report.later))
                if link and link.answers(token):
                    report.is_quiet = False
                    return link
                is_running = job.state == endpoints.RUNNING
                reason = _last_runner_line(client, job) if is_running else wait_reason(client, job)
                reason = reason or STARTING
            except endpoints.NoSshService as err:
                ways = (
                    f"`{command('job.stop', job.name)}` stops it; "
                    f"`{command('notebook.serve')} --direct` needs no ssh"
                )
                raise endpoints.NoSshService(f"{err}; {ways}") from err
            except Unreachable as err:
                reason = str(err) if (job.duration or 0) > SSH_START_SECONDS else STARTING
            report(job, reason)
            if pauses.over:
                wait = f"`{command('notebook.serve', '--reconnect', job.name)}` waits again"
                ways = f"{wait}, `{command('job.stop', job.name)}` stops the job"
                why = f"Jupyter in job {job.name!r} did not answer within {limit:g} s: {reason}"
                raise TimedOut(f"{why}; {ways}")
            pauses.wait()
    except BaseException:
        if link:
            link.close()
        raise


class _WaitReporter:
    """Reports each reason to wait once."""

    def __init__(self, say: Say, limit: float) -> None:
        self._say, self._limit, self._last = say, limit, ""
        self.is_quiet = True

    def __call__(self, job: JobInfo, reason: str) -> None:
        line = f"job {job.name} is {job.state}: {reason}"
        if line != self._last:
            self._say(f"{line} (waiting at most {self._limit:g} s in all)" if not self._last else line)
        self._last = line

    def later(self, text: str) -> None:
        """Pass on the tunnel's messages once it has worked."""
        if not self.is_quiet:
            self._say(text)


def _open(client: Backend, job: JobInfo, options: LinkOptions, settings: Settings, say: Say) -> Link | None:
    """Open a link to the server, once its container runs."""
    if not job.tasks:
        return None
    task = job.tasks[0]
    port = task.ports.get(PORT, "").partition(",")[0]
    if job.state != endpoints.RUNNING or task.state != endpoints.RUNNING or not port.isdecimal():
        return None
    if options.direct:
        if not task.ip:
            raise Unreachable(f"the cluster has not reported an address for {task.label} yet")
        host = f"[{task.ip}]" if ":" in task.ip else task.ip
        return Link(client, job.name, f"http://{host}:{port}")
    found = endpoints.reach(client, job.key, settings)
    container = endpoints.first_running(found, task.role, task.index)
    connect = partial(endpoints.open_remote, client, found, container, settings)
    over = partial(endpoints.describe_change, client, found, container)
    forward = Forward(connect, [Port(int(port), options.port)], say, over, PORT_FLAG)
    try:
        forward.start()
    except BaseException:
        forward.close()
        raise
    return Link(client, job.name, f"http://{LOOPBACK}:{forward.ports[0].here}", forward)


def _get(url: str, token: str, limit: int = 0) -> tuple[int, bytes]:
    """Return the status of an answer and, with a limit, its content; use no proxy for this machine.

    A redirect is not followed, since the token is for this server only.
    """
    is_here = url.startswith(f"http://{LOOPBACK}:")
    exchange = Exchange(ANSWER_SECONDS, ANSWER_SECONDS)
    headers = {"Authorization": f"token {token}", "Accept-Encoding": "identity"}
    with HttpClient(uses_proxies=not is_here).request("GET", url, exchange, headers=headers) as answer:
        exchange.allow(limit)
        return answer.status_code, b"".join(answer.stream(limit)) if limit else b""


def _last_runner_line(client: Backend, job: JobInfo) -> str:
    """Return the last line that our program in the job has logged."""
    with contextlib.suppress(PaiError):
        text = b"".join(output.read_output(client, job.key, output.LogChoice(), lines=LINES)).decode(
            "utf-8", "replace"
        )
        lines = [line for line in text.splitlines() if line.startswith(RUNNER_PREFIX)]
        return visible(lines[-1].removeprefix(RUNNER_PREFIX)) if lines else ""
    return ""


def _ended_error(client: Backend, job: JobInfo) -> PaiError:
    reason = _last_runner_line(client, job).removeprefix(ERROR_PREFIX) or job.cause
    end = f"{lookup.describe_end(job)}: {reason}" if reason else lookup.describe_end(job)
    message = f"{end}; see all output with `{command('job.logs', job.name)}`"
    return JobFailed(message, job.exit_status) if job.exit_status else ConfigError(message)
