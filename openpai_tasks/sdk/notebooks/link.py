"""The way to a Jupyter server in a job: a tunnel or the node's own address, and the wait until it answers."""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, Denied, JobFailed, PaiError, TimedOut, Unreachable
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.containers.forwarding import HERE, Forward, Port
from openpai_tasks.sdk.diagnosis.news import STARTS
from openpai_tasks.sdk.diagnosis.news import reason as reason_of
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.notebooks.serving import page
from openpai_tasks.sdk.payloads.notebook_runner import visible
from openpai_tasks.sdk.payloads.notebook_server import PORT
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.settings.config import Settings

Say = Callable[[str], object]

ANSWER = 10.0  # seconds for one answer
SOON = 20.0  # seconds within which a container's ssh service may be late
SAID, COMPLAINT = "notebook: ", "error: "
LINES = 20
WORD = "--port {here}"  # how notebook.serve is told a port
END = 120.0  # seconds within which a job that ends has ended


@dataclass(frozen=True)
class Served:
    """A server that answers; its address opens it, as the token is in it."""

    job: str
    url: str = field(repr=False)
    token: str = field(repr=False)
    direct: bool


@dataclass(frozen=True)
class Way:
    """How a server is reached."""

    direct: bool = False
    port: int = 0  # of this machine; 0 is any that is free

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"--port must be between 0 and 65535, got {self.port}")
        if self.direct and self.port:
            raise ConfigError("--port is this machine's end of a tunnel, and there is none with --direct")


class Link:
    """A server that can be spoken to at ``url`` until it is closed."""

    def __init__(self, client: Backend, name: str, url: str, forward: Forward | None = None) -> None:
        self.url, self._client, self._name, self._forward = url, client, name, forward

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def until_over(self) -> JobInfo:
        """Stay until the job is over, or the way to it is; the job as it is then."""
        if self._forward is None:
            return lookup.wait(self._client, self._name)
        self._forward.serve()
        return self._ended()

    def _ended(self) -> JobInfo:
        """The job, which is about to end, unless the cluster has begun it again."""
        pauses, soon = Pauses(self._client, END), time.monotonic() + SOON
        while True:
            job = pauses.ask(lambda: lookup.find(self._client, self._name))
            goes_on = job.state == endpoints.RUNNING and time.monotonic() > soon
            if job.final or goes_on or pauses.over:
                return job
            pauses.wait()

    def close(self) -> None:
        if self._forward is not None:
            self._forward.close()

    def answers(self, token: str) -> bool:
        """Whether Jupyter is there, and takes the token."""
        try:
            found = parse(_get(f"{self.url}/api/status", token))
        except urllib.error.HTTPError as err:
            if err.code in (401, 403):
                raise Denied(f"the Jupyter server of job {self._name!r} refuses the token", err.code) from err
            return False
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and "kernels" in found

    def address(self, token: str, file: str) -> str:
        """The page of the notebook, with the token that opens it."""
        has_lab = self._has("/lab", token)
        path = page(has_lab, has_lab or self._has("/tree", token), file)
        return f"{self.url}{path or '/'}?token={token}"

    def _has(self, path: str, token: str) -> bool:
        try:
            _get(self.url + path, token)
        except OSError:
            return False
        return True


def open_link(
    client: Backend, name: str, way: Way, token: str, settings: Settings, limit: float, say: Say
) -> Link:
    """Wait until the server answers, telling what there is to wait for."""
    tell, pauses = _Once(say, limit), Pauses(client, limit)
    link: Link | None = None
    try:
        while True:
            job = pauses.ask(lambda: lookup.find(client, name))
            if job.final:
                raise _over(client, job)
            try:
                link = link or pauses.ask(partial(_linked, client, job, way, settings, tell.later))
                if link and link.answers(token):
                    tell.is_quiet = False
                    return link
                reason = _reason(client, job)
            except endpoints.NotServed as err:
                ways = f"`job.stop {job.name}` ends it, and `notebook.serve --direct` needs no ssh"
                raise endpoints.NotServed(f"{err}; {ways}") from err
            except Unreachable as err:
                reason = str(err) if (job.duration or 0) > SOON else STARTS
            tell(job, reason)
            if pauses.over:
                ways = f"`notebook.serve --reconnect {job.name}` waits again, `job.stop {job.name}` ends it"
                raise TimedOut(f"no Jupyter answers in job {job.name!r} after {limit:g} s: {reason}; {ways}")
            pauses.wait()
    except BaseException:
        if link:
            link.close()
        raise


class _Once:
    """Says each reason once."""

    def __init__(self, say: Say, limit: float) -> None:
        self._say, self._limit, self._last = say, limit, ""
        self.is_quiet = True

    def __call__(self, job: JobInfo, reason: str) -> None:
        line = f"job {job.name} is {job.state}: {reason}"
        if line != self._last:
            self._say(f"{line} (waiting at most {self._limit:g} s in all)" if not self._last else line)
        self._last = line

    def later(self, text: str) -> None:
        """What a tunnel has to say, which is of interest once it has worked."""
        if not self.is_quiet:
            self._say(text)


def _linked(client: Backend, job: JobInfo, way: Way, settings: Settings, say: Say) -> Link | None:
    """The way to the server, once its container runs."""
    if not job.tasks:
        return None
    task = job.tasks[0]
    port = task.ports.get(PORT, "").partition(",")[0]
    if job.state != endpoints.RUNNING or task.state != endpoints.RUNNING or not port.isdecimal():
        return None
    if way.direct:
        return Link(client, job.name, f"http://{_host(task)}:{port}")
    found = endpoints.reach(client, job.key, settings)
    container = endpoints.first_running(found, task.role, task.index)

    def connect() -> Remote:
        return endpoints.open_remote(client, found, container, settings)

    def over() -> str:
        return endpoints.has_moved(client, found, container)

    forward = Forward(connect, [Port(int(port), way.port)], say, over, WORD)
    try:
        forward.start()
    except BaseException:
        forward.close()
        raise
    return Link(client, job.name, f"http://{HERE}:{forward.ports[0].here}", forward)


def _host(task: TaskInfo) -> str:
    if not task.ip:
        raise Unreachable(f"the cluster tells no address of {task.label} yet")
    return f"[{task.ip}]" if ":" in task.ip else task.ip


def _get(url: str, token: str) -> bytes:
    """What is there; a proxy is asked for no address of this machine."""
    is_here = url.startswith(f"http://{HERE}:")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if is_here else None))
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})  # noqa: S310 - always http
    with opener.open(request, timeout=ANSWER) as answer:
        return bytes(answer.read())


def _reason(client: Backend, job: JobInfo) -> str:
    """What there is to wait for."""
    if job.state == endpoints.RUNNING:
        return _said(client, job) or STARTS
    return reason_of(client, job)


def _said(client: Backend, job: JobInfo) -> str:
    """The last thing that our program in the job has said."""
    with contextlib.suppress(PaiError):
        text = b"".join(output.read_output(client, job.key, output.LogChoice(), lines=LINES)).decode(
            "utf-8", "replace"
        )
        said = [line.removeprefix(SAID) for line in text.splitlines() if line.startswith(SAID)]
        return visible(said[-1]) if said else ""
    return ""


def _over(client: Backend, job: JobInfo) -> PaiError:
    said = _said(client, job).removeprefix(COMPLAINT)
    told = f": {said}" if said else ""
    words = f"job {job.name!r} is {job.state}{told}; `job.logs {job.name}` shows all of its output"
    return JobFailed(words, job.exit_status) if job.exit_status else ConfigError(words)
