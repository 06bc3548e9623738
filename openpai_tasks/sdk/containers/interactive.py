"""Interactive containers: jobs that stay alive to be logged in to."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend, require
from openpai_tasks.errors import ConfigError, JobFailed, NotFound, PaiError, TimedOut, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest, states
from openpai_tasks.protocol.document import ssh_plugin
from openpai_tasks.protocol.document.job_storage import MountedFolder
from openpai_tasks.protocol.document.policy import read_policy
from openpai_tasks.protocol.document.scripts import INTERACTIVE
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.containers import endpoints, keepalive, sessions
from openpai_tasks.sdk.containers.endpoints import Container, NoSshService, RunningJob, SshNotReady
from openpai_tasks.sdk.containers.fanout import Fanout
from openpai_tasks.sdk.containers.keepalive import MARK, NO_STATE, ContainerStay
from openpai_tasks.sdk.diagnosis import explain
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.jobs import lookup, records
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.target import Target
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.local.mounted import mount_map
from openpai_tasks.storage.store import Store, join
from openpai_tasks.text import hints

NAME = "container"
EXPLAIN_SECONDS = 5.0  # between two requests for the reason of a wait
ALL_SECONDS = 60.0  # for the answers about all running jobs
MOST_JOBS = 50  # running jobs that are asked whether they accept ssh
ASK_SECONDS = 10.0  # for a container to report how long it stays

Say = Callable[[str], object]


@dataclass(frozen=True)
class ReadyContainer:
    """A container that accepts logins."""

    found: RunningJob
    container: Container
    target: Target
    stay: ContainerStay | None


@dataclass(frozen=True)
class Extension:
    """How long a container stays now, and how it was extended."""

    container: str
    duration: int  # seconds
    extended_by: str


def keep_alive(request: JobRequest, seconds: int, warn_seconds: int, stop_seconds: int) -> JobRequest:
    """Replace the command MARK of each role by one that keeps its container alive."""

    def command(gpus: int | None) -> str:
        return keepalive.command(seconds, warn_seconds, stop_seconds, bool(gpus))

    roles = tuple(
        dataclasses.replace(role, command=command(role.gpu)) if role.command == MARK else role
        for role in request.all_roles
    )
    environment = {**request.environment, INTERACTIVE: "1"}
    return dataclasses.replace(request, command=command(0), roles=roles, environment=environment)


# Waiting


def wait_ready(client: Backend, name: str, settings: Settings, limit: float, say: Say) -> ReadyContainer:
    """Wait until the job runs and accepts logins, reporting each reason for the wait."""
    pauses, reasons = Pauses(client, limit), _WaitReasons(client, name, say)
    while True:
        with _job_continues(name):
            job = pauses.ask(lambda: lookup.find(client, name))
        if job.final:
            raise _ended_error(client, job)
        with _job_continues(job.name):
            if job.state != states.RUNNING:
                reasons.ask()
            elif entered := pauses.ask(lambda: _try_to_enter(client, name, settings, reasons)):
                return entered
            if pauses.over:
                message = f"cannot log in to job {job.name!r} within {limit:g} s ({reasons.last})"
                raise TimedOut(f"{message}; try again with `{hints.command('container.ssh', job.name)}`")
        pauses.wait()


@contextlib.contextmanager
def _job_continues(name: str) -> Iterator[None]:
    """Add to any error that the job continues, which may run for a day."""
    try:
        yield
    except PaiError as err:
        err.args = (f"{err}; the job continues, stop it with `{hints.command('container.stop', name)}`",)
        raise


def _try_to_enter(
    client: Backend, name: str, settings: Settings, reasons: _WaitReasons
) -> ReadyContainer | None:
    """Return the container, or None if it may accept logins later."""
    try:
        found = endpoints.reach(client, name, settings)
        container = endpoints.first_running(found)
        with endpoints.open_remote(client, found, container, settings) as remote:
            known = read_stay(remote)
            if known is None and container.role in _keep_alive_roles(client, found.job):
                where = f"{container.label} of job {found.job.name!r}"
                raise Unreachable(f"{where} is still preparing sources and packages")
            return ReadyContainer(found, container, remote.target, known)
    except NoSshService:
        raise
    except Unreachable as err:
        if err.is_outage:
            raise
        reasons.report_refusal(err)
        return None


class _WaitReasons:
    """Asks the cluster why the job waits, and reports each reason once."""

    def __init__(self, client: Backend, name: str, say: Say) -> None:
        self._client, self._name, self._say = client, name, say
        self._next, self._is_serving_awaited = 0.0, False
        self.last = "it has not started"

    def ask(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EXPLAIN_SECONDS
            with contextlib.suppress(PaiError):
                found = explain.why(self._client, self._name)
                if found.state == states.WAITING:
                    self.report_once(found.why)

    def report_refusal(self, err: Unreachable) -> None:
        if not isinstance(err, SshNotReady):
            self.report_once(str(err))
            return
        if not self._is_serving_awaited:  # normal at every start; the details are for the end of the wait
            self._is_serving_awaited = True
            self._say("waiting for ssh")
        self.last = str(err)

    def report_once(self, reason: str) -> None:
        if reason != self.last:
            self.last = reason
            self._say(f"waiting: {reason}")


def _ended_error(client: Backend, job: JobInfo) -> PaiError:
    if not job.exit_status:
        return Unreachable(f"job {job.name!r} has already ended: its time was shorter than the wait for it")
    with contextlib.suppress(PaiError):
        why = explain.why(client, job.name).why
        see = f"(see `{hints.command('job.why', job.name)}`)"
        return JobFailed(f"{lookup.describe_end(job)}: {why} {see}", job.exit_status)
    return JobFailed(lookup.describe_end(job), job.exit_status)


# Lifetime


def read_stay(remote: Remote) -> ContainerStay | None:
    """Read how long the container stays and how long its GPUs are idle; None for any other job."""
    output: list[bytes] = []
    command = keepalive.state_command()
    with contextlib.suppress(TimedOut):
        sessions.run_command(remote, command, output.append, sessions.ignore, seconds=ASK_SECONDS)
    return keepalive.parse_stay(b"".join(output).decode("utf-8", "replace"))


def read_stays(fanout: Fanout) -> dict[str, ContainerStay]:
    """Read the stays of many containers, by label."""
    return {label: one for label, (one, _) in _run_in_all(fanout, keepalive.state_command()).items() if one}


def extend(client: Backend, name: str, settings: Settings, seconds: int) -> list[Extension]:
    """Keep the job alive that long from now, over ssh or else by its storage; never shorten its stay."""
    found = endpoints.reach(client, name, settings)
    if not _keep_alive_roles(client, found.job):
        raise ConfigError(f"job {found.job.name!r} was not started by container.start, so it has no deadline")
    running = [one for one in found.containers if one.state == states.RUNNING]
    with Fanout(client, found, running, settings) as fanout:
        asked = _run_in_all(fanout, keepalive.extend_command(seconds))
    trouble = [error for one, error in asked.values() if one is None]
    if trouble:
        left = _extend_by_storage(client, found.job, settings, seconds, trouble[0])
        return [Extension(label, left, "storage") for label in asked]
    return [Extension(label, one.left, "ssh") for label, (one, _) in asked.items() if one]


def _run_in_all(fanout: Fanout, command: str) -> dict[str, tuple[ContainerStay | None, str]]:
    outputs: dict[str, list[bytes]] = {one.label: [] for one in fanout.containers}
    ended = fanout.run(command, lambda label, line: outputs[label].append(line), lambda label, line: None)
    texts = {label: b"\n".join(lines).decode("utf-8", "replace") for label, lines in outputs.items()}
    missing = {NO_STATE: "it has not written its deadline yet"}
    return {
        one.container: (
            keepalive.parse_stay(texts[one.container]) if not one.code else None,
            one.error or missing.get(one.code, f"it exited with {one.code}"),
        )
        for one in ended
    }


def _extend_by_storage(client: Backend, job: JobInfo, settings: Settings, seconds: int, why: str) -> int:
    """Write a later deadline to the workspace, which every container of the job checks if it is mounted.

    Return how many seconds they stay at least; an earlier deadline may be later still.
    """
    document = client.job_document(job.key)
    mark = read_stamp(document)
    if mark.storage:
        mounts = mount_map(settings.storage_mounts)
        home = job_folders.at(client, mark.storage, mark.workspace, job.user, mounts)
        if isinstance(home.seen, MountedFolder):
            now, folder = int(time.time()), home.layout.job(job.name)
            path, wanted = join(folder, keepalive.DEADLINE), now + seconds
            stored = _stored_deadline(home.store, path)
            if stored < wanted:
                text = f"{wanted}\n".encode()
                home.store.make_folder(folder)
                put(home.store, path, lambda: [text], len(text))
            stays = [keepalive.initial_seconds(command) for _, command in _keep_alive_commands(document)]
            first = (job.launched or 0) // 1000 + min(stays, default=0)
            return max(stored, wanted, first) - now
    raise Unreachable(f"cannot extend job {job.name!r}: {why}, and it has no storage mounted")


def _stored_deadline(store: Store, path: str) -> int:
    """Return the deadline that was written earlier; 0 if there is no valid one."""
    try:
        return keepalive.parse_deadline(b"".join(store.read(path, 0, keepalive.DEADLINE_DIGITS + 2)))
    except NotFound:
        return 0


def stop(client: Backend, names: Iterable[str]) -> list[JobInfo]:
    """Stop containers by name or pattern, and failed jobs that are kept; stop none if one is another job."""
    return lookup.stop_all(client, [job for name in names for job in _find_containers(client, name)])


def _find_containers(client: Backend, name: str) -> list[JobInfo]:
    """Return the jobs of container.start that match the name or pattern."""
    found = lookup.find_matching(client, name)
    made = [job for job in found if job.kept_until or _is_container_job(client, job)]
    if made:
        return made
    if lookup.is_pattern(name):
        raise NotFound(f"no running container of container.start matches {name!r}", 404)
    raise ConfigError(
        f"job {found[0].name!r} was not started by container.start; "
        f"use `{hints.command('job.stop', found[0].name)}`"
    )


def _is_container_job(client: Backend, job: JobInfo) -> bool:
    """Whether the job is a container, or one whose failed tasks are kept, which may be over."""
    try:
        document = mapping(client.job_document(job.key))
    except NotFound:  # the cluster has no document of it
        return False
    has_failed = job.final or job.state == states.STOPPING
    is_kept = has_failed and read_policy(mapping(document.get("extras"))).keep_failed
    return bool(is_kept or _keep_alive_commands(document))


def _keep_alive_roles(client: Backend, job: JobInfo) -> set[str]:
    """Return the interactive roles, in both spellings of their names."""
    kept = _keep_alive_commands(client.job_document(job.key))
    return {spelled for name, _ in kept for spelled in (name, states.role_key(name))}


def _keep_alive_commands(document: Any) -> list[tuple[str, str]]:
    """Return the interactive roles with their commands; version 1 documents have none."""
    roles = mapping(mapping(document).get("taskRoles"))
    commands = [(name, str(line)) for name, role in roles.items() for line in role.get("commands") or ()]
    return [(name, line) for name, line in commands if keepalive.is_keep_alive(line)]


# Selection


def only_container(client: Backend, folder: Path) -> str:
    """Return the running container that was started from the folder, if there is exactly one."""
    alias = client.cluster.alias
    names = {job.name for job in client.jobs(username=client.user, state=states.UNFINISHED)}
    started = [one for one in records.cluster_records(folder, alias) if keepalive.is_keep_alive(one.command)]
    mine = [one.name for one in started if one.name in names]
    if not mine:
        raise ConfigError(f"no container started from this folder runs on cluster {alias!r}; name the job")
    if len(mine) > 1:
        raise ConfigError(
            f"several containers were started from this folder, name one: {', '.join(sorted(mine))}"
        )
    return mine[0]


def only_running(client: Backend, task: str, words: Sequence[str] = ()) -> str:
    """Return the only running job of the user that accepts ssh; the error has a command of ``task``."""
    found = [job.name for job in _running_with_ssh(client)]
    alias = client.cluster.alias
    if not found:
        start = hints.command("container.start")
        raise ConfigError(f"none of your running jobs on cluster {alias!r} accepts ssh; `{start}` starts one")
    if len(found) > 1:
        example = hints.command(task, found[0])
        example += f" {shlex.join(words)}" if words else ""
        raise ConfigError(f"several jobs accept ssh, name one: {', '.join(found)}; such as `{example}`")
    return found[0]


def list_running(client: Backend, settings: Settings, say: Say) -> list[RunningJob]:
    """Return the running jobs of the user that accept ssh, with their containers; they are asked together."""
    jobs = _running_with_ssh(client)

    def ask(job: JobInfo) -> RunningJob | None:
        try:
            return endpoints.reach(client, job.name, settings)
        except PaiError as err:  # it may have ended in between
            say(f"{job.name}: {err}")
            return None

    return [found for found in map_parallel(ask, jobs, ALL_SECONDS, lambda job: None) if found]


def _running_with_ssh(client: Backend) -> list[JobInfo]:
    """Return the user's running jobs whose documents enable ssh; in OpenPAI 0.14 all have it."""
    require(client, "ssh")
    jobs = client.jobs(username=client.user, state=states.RUNNING, limit=MOST_JOBS + 1)
    if len(jobs) > MOST_JOBS:
        raise ConfigError(f"more than {MOST_JOBS} of your jobs are running; name one")
    if client.capabilities.job_keys:
        return jobs

    def accepts(job: JobInfo) -> bool:
        try:
            document = mapping(client.job_document(job.key))
        except NotFound:
            return False
        return any(ssh_plugin.has_ssh(document, role) for role in mapping(document.get("taskRoles")))

    answers = map_parallel(accepts, jobs, ALL_SECONDS, lambda job: False)
    return [job for job, does in zip(jobs, answers, strict=True) if does]
