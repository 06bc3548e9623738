"""Where a job's containers are, and why they cannot be reached when they cannot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, PaiError, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document import ssh_plugin
from openpai_tasks.protocol.models import JobInfo, SshInfo, TaskInfo
from openpai_tasks.sdk.containers import container_end
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.ssh import forgetting, keys
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.gateways import gateway
from openpai_tasks.sdk.ssh.login_errors import KeyRefused, NotListening
from openpai_tasks.sdk.ssh.target import Target, is_host, is_user
from openpai_tasks.settings.config import Settings

RUNNING = states.RUNNING
START = 10.0  # seconds that an sshd has after the launch of its task
LOOK_AGAIN = 0.5


class NotServing(Unreachable):
    """A container runs, and nothing takes ssh there: not yet, or never."""


class NotServed(Unreachable):
    """The cluster itself says that the container has no ssh service: no waiting will help."""


@dataclass(frozen=True)
class Container:
    """One task of a job, and where it takes ssh; ``host`` is empty as long as there is none."""

    role: str
    index: int
    state: str
    host: str
    port: int
    user: str
    attempt: str  # another one for every container that the task has had
    launched: int | None = None  # milliseconds since 1970, by the clock of the cluster

    @property
    def label(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class Reach:
    """A job that runs, and its containers."""

    job: JobInfo
    containers: tuple[Container, ...]


def reach(client: Backend, name: str, settings: Settings, forgets: bool = True) -> Reach:
    """The job and all its containers; a job that has none now is an error that says what to do.

    What was kept for a job that is over is forgotten, unless nothing is to be changed.
    """
    job = lookup.find(client, name)
    logs = f"`{command('job.logs')} {job.name}` shows its output"
    if job.final:
        if forgets:
            forgetting.forget_job(client.cluster.shelf, job.key, _host_names(job))
        raise Unreachable(f"job {job.name!r} is {job.state}: its containers are gone ({logs})")
    if job.state == states.STOPPING:
        raise Unreachable(
            f"job {job.name!r} is {job.state}: it is ending, and its containers with it ({logs})"
        )
    if job.state != RUNNING:
        raise Unreachable(
            f"job {job.name!r} is {job.state}: no container yet "
            f"(`{command('job.why')} {job.name}` tells more)"
        )
    told = client.ssh_endpoints(job)
    return Reach(job, tuple(_container(job, task, told.get(task.label), settings) for task in job.tasks))


def check_settings(settings: Settings) -> None:
    """An error if a setting alone keeps us out of every container."""
    _check_user(settings)
    keys.check(keys.private_key(settings), "ssh.key")
    way = gateway(settings)
    if way and way.key:
        keys.check(way.key, "ssh.gateway-key" if settings.ssh_gateway_key else "ssh.key")


def choose(found: Reach, role: str | None = None, index: int | None = None) -> tuple[Container, ...]:
    """Those of the role and the index that are wanted, in the order of the job."""
    containers = [one for one in found.containers if role in (None, one.role) and index in (None, one.index)]
    if not containers:
        known = ", ".join(one.label for one in found.containers[:8]) or "none"
        wanted = " ".join([f"role {role!r}"] * (role is not None) + [f"index {index}"] * (index is not None))
        raise ConfigError(
            f"job {found.job.name!r} has no container with {wanted or 'that name'} (it has: {known})"
        )
    return tuple(containers)


def first_running(found: Reach, role: str | None = None, index: int | None = None) -> Container:
    """The first of them that runs."""
    among = choose(found, role, index)
    return next((one for one in among if one.state == RUNNING), among[0])


def not_over(found: Reach, among: Sequence[Container]) -> tuple[Container, ...]:
    """Those whose tasks are not over; an error if that is none of them."""
    left = tuple(one for one in among if one.state not in states.FINAL)
    if not left:
        ended = ", ".join(f"{one.label} is {one.state}" for one in among[:8])
        logs = f"`{command('job.logs')} {found.job.name}` shows their output"
        raise Unreachable(f"job {found.job.name!r} has no such container any more: {ended} ({logs})")
    return left


def ssh_target(client: Backend, found: Reach, container: Container, settings: Settings) -> Target:
    """All that is needed to log in to the container."""
    if container.state != RUNNING or not container.host:
        raise _not_there(client, found, container)
    own = settings.ssh_key or not client.capabilities.job_keys
    key = keys.private_key(settings) if own else keys.fetched_key(client, found.job)
    return Target(
        host=container.host,
        port=container.port,
        user=container.user,
        key=key,
        name=host_name(found.job, container),
        known_hosts=forgetting.known_hosts(client.cluster.shelf),
        label=f"{container.label} of job {found.job.name!r}",
        timeout=settings.ssh_timeout,
        gateway=gateway(settings),
    )


def host_name(job: JobInfo, container: Container) -> str:
    """What its host key is kept under: an address is given to later jobs again, this name to none."""
    return forgetting.host_key_name(job.key, container.label, container.attempt)


def open_remote(client: Backend, found: Reach, container: Container, settings: Settings) -> Remote:
    """A connection to the container; a refusal is explained by what the cluster knows of the job."""
    goal = ssh_target(client, found, container, settings)
    before = _length(goal.known_hosts)
    try:
        remote = Remote(goal).open()
    except NotListening as err:
        raise _explained(client, found, container, err) from err
    except KeyRefused as err:
        if not client.capabilities.job_keys or settings.ssh_key:
            why, advice = container_end.wait_for_state(
                client, found, container
            )  # one that just ends lets nobody in any more
            if why:
                raise Unreachable(f"{why}; {advice}") from err
            raise
        keys.fetched_key(client, found.job, anew=True)  # a job of the same name may have had another
        try:
            remote = Remote(goal).open()
        except KeyRefused:
            raise err from None
    if _length(goal.known_hosts) > before:
        forgetting.forget_ended_jobs(client)
    return remote


def open_when_ready(
    client: Backend, found: Reach, container: Container, settings: Settings, tell: Callable[[str], object]
) -> Remote:
    """The same; one that was launched just now has a few seconds for its sshd."""
    age = 0.0 if container.launched is None else time.time() - container.launched / 1000
    limit, told = time.monotonic() + START - max(0.0, age), False
    while True:
        try:
            return open_remote(client, found, container, settings)
        except NotServing:
            if time.monotonic() >= limit:
                raise
            if not told:
                tell(f"{container.label} is just starting: waiting for ssh")
                told = True
            time.sleep(LOOK_AGAIN)
        if not container.host:  # it had told no address yet
            found = reach(client, found.job.key, settings)
            container = next((new for new in found.containers if new.label == container.label), container)


def has_moved(client: Backend, found: Reach, container: Container) -> str:
    """Why a connection is no more, as far as the cluster knows; nothing if all is as it was."""
    return container_end.current_state(client, found, container)[0]


def _host_names(job: JobInfo) -> set[str]:
    return {
        forgetting.host_key_name(job.key, task.label, container_end.attempt_id(job, task))
        for task in job.tasks
    }


def _length(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _container(job: JobInfo, task: TaskInfo, info: SshInfo | None, settings: Settings) -> Container:
    host, port = (info.ip, info.port) if info else ("", 0)
    _check(job, task, host, settings)
    return Container(
        *(task.role, task.index, task.state, host, port, settings.ssh_user),
        container_end.attempt_id(job, task),
        launched=task.launched or job.launched,
    )


def _check(job: JobInfo, task: TaskInfo, host: str, settings: Settings) -> None:
    """What a server or a person gave goes into files and commands of ssh, which could take it for more."""
    if host and not is_host(host):
        where = f"{task.label} of job {job.name!r}"
        raise ApiError(f"the cluster tells an address of {where} that is none: {host[:80]!r}")
    _check_user(settings)


def _check_user(settings: Settings) -> None:
    if not is_user(settings.ssh_user):
        raise ConfigError(f"the setting ssh.user must be the name of a user, got {settings.ssh_user!r}")


def _not_there(client: Backend, found: Reach, container: Container) -> Unreachable:
    job = found.job
    if container.state != RUNNING:
        return Unreachable(
            f"{container.label} of job {job.name!r} is {container.state}: it cannot be reached"
        )
    if client.capabilities.job_keys:
        hint = "its image may have no sshd (openssh-server), or it is just starting"
        return NotServing(
            f"{container.label} of job {job.name!r} has told the cluster no ssh address: {hint}"
        )
    return _not_served(client, job, container) or NotServing(
        f"cluster {client.cluster.alias!r} tells no ssh port of {container.label}; try again soon"
    )


def _not_served(client: Backend, job: JobInfo, container: Container) -> NotServed | None:
    """What the cluster has noted about this container, or about the whole job."""
    with contextlib.suppress(PaiError):
        for event in client.job_events(job.key):
            if event.reason == ssh_plugin.NOT_SERVED and event.container in ("", container.attempt):
                return NotServed(f"{container.label} of job {job.name!r}: {event.message}")
    return None


def _explained(client: Backend, found: Reach, container: Container, err: NotListening) -> PaiError:
    job, where = found.job, f"{container.label} of job {found.job.name!r}"
    settled, advice = container_end.current_state(client, found, container)
    if settled:
        return Unreachable(f"{settled}; {advice}")
    with contextlib.suppress(PaiError):
        needs_ssh = not client.capabilities.job_keys
        if needs_ssh and not ssh_plugin.has_ssh(client.job_document(job.key), container.role):
            return ConfigError(
                f"job {job.name!r} was submitted without ssh: submit it with --ssh to log in to it"
            )
    if told := _not_served(client, job, container):
        return told
    hint = "its image may have no sshd (openssh-server), or it is just starting"
    return NotServing(f"{where} runs, but nothing takes ssh at {err.place}: {hint}")
