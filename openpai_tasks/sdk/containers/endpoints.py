"""The ssh addresses of a job's containers, and why a container cannot be reached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend, require
from openpai_tasks.errors import ApiError, ConfigError, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document import ssh_plugin
from openpai_tasks.protocol.models import JobInfo, SshInfo, TaskInfo
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.ssh import job_files, keys
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.login_errors import KeyRefused, NotListening
from openpai_tasks.sdk.ssh.target import Target, gateway, gateway_to, is_host, is_user
from openpai_tasks.settings.config import Settings
from openpai_tasks.text.hints import command, option

RUNNING = states.RUNNING
START = 10.0  # seconds that an sshd has after the launch of its task
LOOK_AGAIN = 0.5
RUN_AGAIN = "run it again"
NO_SSHD = "its image may have no sshd (openssh-server), or it is just starting"
SETTLE_SECONDS = 3.0  # time a cluster may take to notice that a container is gone


class SshNotReady(Unreachable):
    """Raised if a running container does not accept ssh yet; it may never do."""


class NoSshService(Unreachable):
    """Raised if the cluster reports that the container has no ssh service, so waiting is useless."""


@dataclass(frozen=True)
class Container:
    """One task of a job and its ssh address; ``host`` is empty until the address is known."""

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
class RunningJob:
    """A running job and its containers."""

    job: JobInfo
    containers: tuple[Container, ...]


def reach(client: Backend, name: str, settings: Settings, forgets: bool = True) -> RunningJob:
    """Return the job and all its containers; raise, with advice, if it has none now.

    With ``forgets``, local data about a job that has ended is deleted.
    """
    require(client, "ssh")
    job = lookup.find(client, name)
    logs = f"`{lookup.command_for(client, 'job.logs', job)}` shows its output"
    if job.final:
        if forgets:
            names = {job_files.host_key_name(job.key, one.label, attempt_id(job, one)) for one in job.tasks}
            job_files.forget_job(client.cluster.unique_name, job.key, names)
        raise Unreachable(f"job {job.name!r} is {job.state}: its containers are gone ({logs})")
    if job.state == states.STOPPING:
        raise Unreachable(f"job {job.name!r} is {job.state}: its containers are being stopped ({logs})")
    if job.state != RUNNING:
        raise Unreachable(
            f"job {job.name!r} is {job.state}: no container yet "
            f"(`{lookup.command_for(client, 'job.why', job)}` explains why)"
        )
    _check_user(settings)
    addresses = client.ssh_endpoints(job)
    return RunningJob(
        job, tuple(_container(job, task, addresses.get(task.label), settings) for task in job.tasks)
    )


def check_settings(settings: Settings) -> None:
    """Raise if a setting is wrong in a way that no container can be reached."""
    _check_user(settings)
    keys.check(keys.private_key(settings), "ssh.key")
    way = gateway(settings)
    if way and way.key:
        keys.check(way.key, "ssh.gateway-key" if settings.ssh_gateway_key else "ssh.key")


def choose(found: RunningJob, role: str | None = None, index: int | None = None) -> tuple[Container, ...]:
    """Return the containers with this role and index, in the order of the job."""
    containers = [one for one in found.containers if role in (None, one.role) and index in (None, one.index)]
    if not containers:
        known = ", ".join(one.label for one in found.containers[:8]) or "none"
        wanted = " ".join([f"role {role!r}"] * (role is not None) + [f"index {index}"] * (index is not None))
        raise ConfigError(
            f"job {found.job.name!r} has no container with {wanted or 'that name'} (it has: {known})"
        )
    return tuple(containers)


def first_running(found: RunningJob, role: str | None = None, index: int | None = None) -> Container:
    """Return the first matching container that runs, else the first one."""
    among = choose(found, role, index)
    return next((one for one in among if one.state == RUNNING), among[0])


def not_over(found: RunningJob, among: Sequence[Container]) -> tuple[Container, ...]:
    """Return the containers whose tasks have not ended; raise if all have."""
    left = tuple(one for one in among if one.state not in states.FINAL)
    if not left:
        ended = ", ".join(f"{one.label} is {one.state}" for one in among[:8])
        logs = f"`{command('job.logs', found.job.name)}` shows their output"
        raise Unreachable(f"job {found.job.name!r} has no such container any more: {ended} ({logs})")
    return left


def ssh_target(client: Backend, found: RunningJob, container: Container, settings: Settings) -> Target:
    """Return everything that a login to the container needs."""
    if container.state != RUNNING or not container.host:
        raise _unreachable_error(client, found, container)
    own = settings.ssh_key or not client.capabilities.job_keys
    key = keys.private_key(settings) if own else keys.fetched_key(client, found.job)
    return Target(
        host=container.host,
        port=container.port,
        user=container.user,
        key=key,
        name=host_name(found.job, container),
        known_hosts=job_files.known_hosts(client.cluster.unique_name),
        label=f"{container.label} of job {found.job.name!r}",
        timeout=settings.ssh_timeout,
        gateway=gateway_to(client.cluster, settings),
    )


def host_name(job: JobInfo, container: Container) -> str:
    """Return the name of its host key: unlike an address, it is never used by another job."""
    return job_files.host_key_name(job.key, container.label, container.attempt)


def open_remote(client: Backend, found: RunningJob, container: Container, settings: Settings) -> Remote:
    """Connect to the container; explain a refusal by the state of the job on the cluster."""
    target = ssh_target(client, found, container, settings)
    before = _length(target.known_hosts)
    try:
        remote = Remote(target).open()
    except NotListening as err:
        raise _login_error(client, found, container, err) from err
    except KeyRefused as err:
        if not client.capabilities.job_keys or settings.ssh_key:
            # a container that is ending refuses every key
            why, advice = wait_for_state(client, found, container)
            if why:
                raise Unreachable(f"{why}; {advice}") from err
            raise
        keys.fetched_key(client, found.job, refresh=True)  # a job of the same name may have had another
        try:
            remote = Remote(target).open()
        except KeyRefused:
            raise err from None
    if _length(target.known_hosts) > before:
        job_files.forget_ended_jobs(client)
    return remote


def open_when_ready(
    client: Backend, found: RunningJob, container: Container, settings: Settings, say: Callable[[str], object]
) -> Remote:
    """Connect to the container; wait a few seconds for sshd if it has just started."""
    age = 0.0 if container.launched is None else time.time() - container.launched / 1000
    limit, is_reported = time.monotonic() + START - max(0.0, age), False
    while True:
        try:
            return open_remote(client, found, container, settings)
        except SshNotReady:
            if time.monotonic() >= limit:
                raise
            if not is_reported:
                say(f"{container.label} is just starting: waiting for ssh")
                is_reported = True
            time.sleep(LOOK_AGAIN)
        if not container.host:  # it had no address yet
            found = reach(client, found.job.key, settings)
            container = next((new for new in found.containers if new.label == container.label), container)


def describe_change(client: Backend, found: RunningJob, container: Container) -> str:
    """Return why a connection was lost, as far as the cluster knows; empty if nothing changed."""
    return current_state(client, found, container)[0]


def _length(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _container(job: JobInfo, task: TaskInfo, info: SshInfo | None, settings: Settings) -> Container:
    host, port = (info.ip, info.port) if info else ("", 0)
    if host and not is_host(host):  # it becomes a part of ssh files and commands
        where = f"{task.label} of job {job.name!r}"
        raise ApiError(f"the cluster reports an invalid address for {where}: {host[:80]!r}")
    return Container(
        *(task.role, task.index, task.state, host, port, settings.ssh_user),
        attempt_id(job, task),
        launched=task.launched or job.launched,
    )


def _check_user(settings: Settings) -> None:
    if not is_user(settings.ssh_user):
        raise ConfigError(f"the setting ssh.user must be the name of a user, got {settings.ssh_user!r}")


def _unreachable_error(client: Backend, found: RunningJob, container: Container) -> Unreachable:
    job = found.job
    if container.state != RUNNING:
        return Unreachable(
            f"{container.label} of job {job.name!r} is {container.state}: it cannot be reached"
        )
    if client.capabilities.job_keys:
        where = f"{container.label} of job {job.name!r}"
        return SshNotReady(f"{where} has not reported an ssh address to the cluster: {NO_SSHD}")
    return _no_ssh_service(client, job, container) or SshNotReady(
        f"cluster {client.cluster.alias!r} reports no ssh port for {container.label}; try again soon"
    )


def _no_ssh_service(client: Backend, job: JobInfo, container: Container) -> NoSshService | None:
    """Return the cluster's event that this container, or the whole job, has no ssh service."""
    with contextlib.suppress(PaiError):
        for event in client.job_events(job.key):
            if event.reason == ssh_plugin.NOT_SERVED and event.container in ("", container.attempt):
                return NoSshService(f"{container.label} of job {job.name!r}: {event.message}")
    return None


def _login_error(client: Backend, found: RunningJob, container: Container, err: NotListening) -> PaiError:
    job, where = found.job, f"{container.label} of job {found.job.name!r}"
    settled, advice = current_state(client, found, container)
    if settled:
        return Unreachable(f"{settled}; {advice}")
    with contextlib.suppress(PaiError):
        needs_ssh = not client.capabilities.job_keys
        if needs_ssh and not ssh_plugin.has_ssh(client.job_document(job.key), container.role):
            return ConfigError(
                f"job {job.name!r} was submitted without ssh: submit it with {option('ssh')} to log in to it"
            )
    if missing := _no_ssh_service(client, job, container):
        return missing
    return SshNotReady(f"{where} is running, but there is no ssh server at {err.place}: {NO_SSHD}")


# What happened to a container


def attempt_id(job: JobInfo, task: TaskInfo) -> str:
    """Return the platform's container id, else the attempts of the job and the task."""
    return task.container or f"{job.attempt}.{task.attempt}"


def explain_lost(client: Backend, found: RunningJob, container: Container, err: Unreachable) -> Unreachable:
    """Return the error for a lost connection, with the container's state and advice."""
    why, advice = wait_for_state(client, found, container)
    return Unreachable(f"{err}: {why}; {advice}" if why else f"{err}; {advice}")


def wait_for_state(client: Backend, found: RunningJob, container: Container) -> tuple[str, str]:
    """Return ``current_state``, after giving the cluster time to notice a change."""
    limit = time.monotonic() + SETTLE_SECONDS
    why, advice = current_state(client, found, container)
    while not why and time.monotonic() < limit:
        time.sleep(SETTLE_SECONDS / 10)
        why, advice = current_state(client, found, container)
    return why, advice


def current_state(client: Backend, found: RunningJob, container: Container) -> tuple[str, str]:
    """Return what changed, empty if nothing did, and advice."""
    try:
        now = client.job(found.job.key)
    except PaiError:
        return "", RUN_AGAIN
    logs = f"see its output with `{command('job.logs', now.name)}`"
    if now.final:
        return f"job {now.name!r} is {now.state} now", logs
    if now.state == states.STOPPING:
        return f"job {now.name!r} is {now.state}", logs
    if now.state != RUNNING:
        return f"job {now.name!r} is {now.state} now", f"{RUN_AGAIN} when it runs"
    after = _task(now, container)
    if after is None or attempt_id(now, after) != container.attempt:
        return f"{container.label} of job {now.name!r} has been restarted", RUN_AGAIN
    if after.state != RUNNING:
        advice = logs if after.state == states.SUCCEEDED else f"{RUN_AGAIN} when it runs"
        return f"{container.label} of job {now.name!r} is {after.state} now", advice
    return "", RUN_AGAIN


def explain_end(client: Backend, found: RunningJob, container: Container) -> str:
    """Return why the task will have no container again; empty if it may have one."""
    limit = time.monotonic() + SETTLE_SECONDS
    why, is_sure = _ended_state(client, found, container)
    while not is_sure and time.monotonic() < limit:
        time.sleep(SETTLE_SECONDS / 10)
        why, is_sure = _ended_state(client, found, container)
    return why


def _ended_state(client: Backend, found: RunningJob, container: Container) -> tuple[str, bool]:
    """Return how the job or task ended, and whether that is certain: a failed task may be retried."""
    now = client.job(found.job.key)
    if now.final:
        return f"job {now.name} is {now.state}", True
    after = _task(now, container)
    others_run = now.state == RUNNING and any(task.state == RUNNING for task in now.tasks)
    if after is None or after.state not in states.FINAL or not others_run:
        return "", True
    return f"{container.label} of job {now.name} is {after.state}", after.state == states.SUCCEEDED


def _task(job: JobInfo, container: Container) -> TaskInfo | None:
    return next(
        (one for one in job.tasks if (one.role, one.index) == (container.role, container.index)), None
    )
