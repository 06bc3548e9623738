"""Containers to work in: jobs that only stay, how one waits for them, and how long they stay."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, JobFailed, NotFound, PaiError, TimedOut, Unreachable
from openpai_tasks.protocol import JobRequest, states
from openpai_tasks.protocol.document.job_storage import Mounted
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.containers import endpoints, keepalive, sessions
from openpai_tasks.sdk.containers.endpoints import Container, NotServed, NotServing, Reach
from openpai_tasks.sdk.containers.fanout import Fanout
from openpai_tasks.sdk.containers.keepalive import MARK, NO_STATE, Stay
from openpai_tasks.sdk.diagnosis import explain
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.jobs import lookup, records
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.jobs.provenance import stamp_of
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.target import Target
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.local.mounted import mount_map
from openpai_tasks.storage.store import Store, join

NAME = "container"
EXPLAIN = 5.0  # seconds between two questions why a job waits
ASK = 10.0  # seconds for a container to tell how long it stays

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Ready:
    """A container that lets us in."""

    found: Reach
    container: Container
    target: Target
    stay: Stay | None


@dataclass(frozen=True)
class Extended:
    """How long a container stays now, and how it was told."""

    container: str
    duration: int  # seconds
    told_by: str


def keep_alive(request: JobRequest, seconds: int, idle_seconds: int) -> JobRequest:
    """Replace each command that is MARK by one that keeps its container alive; only GPUs can sit idle."""
    roles = tuple(
        dataclasses.replace(role, command=keepalive.command(seconds, idle_seconds if role.gpu else 0))
        if role.command == MARK
        else role
        for role in request.all_roles
    )
    return dataclasses.replace(request, command=keepalive.command(seconds, 0), roles=roles)


# Waiting


def wait_ready(client: Backend, name: str, settings: Settings, limit: float, tell: Tell) -> Ready:
    """Wait until the job runs and lets us in; why it does not yet is told whenever that changes."""
    pauses, reasons = Pauses(client, limit), _Reasons(client, name, tell)
    while True:
        with _going_on(name):
            job = pauses.ask(lambda: lookup.find(client, name))
        if job.final:
            raise _over(client, job)
        with _going_on(job.name):
            if job.state != states.RUNNING:
                reasons.ask()
            elif entered := pauses.ask(lambda: _tried(client, name, settings, reasons)):
                return entered
            if pauses.over:
                words = f"job {job.name!r} cannot be logged in to after {limit:g} s ({reasons.last})"
                raise TimedOut(f"{words}; `container.ssh {job.name}` tries again")
        pauses.wait()


@contextlib.contextmanager
def _going_on(name: str) -> Iterator[None]:
    """Whatever ends the wait also says what becomes of the job, which may have a day to go."""
    try:
        yield
    except PaiError as err:
        err.args = (f"{err}; the job goes on, `container.stop {name}` ends it",)
        raise


def _tried(client: Backend, name: str, settings: Settings, reasons: _Reasons) -> Ready | None:
    """The container, nothing if it may let us in later."""
    try:
        return _entered(client, name, settings)
    except NotServed:
        raise
    except Unreachable as err:
        if err.is_outage:
            raise
        reasons.tell_refusal(err)
        return None


def _entered(client: Backend, name: str, settings: Settings) -> Ready:
    found = endpoints.reach(client, name, settings)
    container = endpoints.first_running(found)
    with endpoints.open_remote(client, found, container, settings) as remote:
        known = read_stay(remote)
        if known is None and container.role in _kept_roles(client, found.job):
            where = f"{container.label} of job {found.job.name!r}"
            raise Unreachable(f"{where} is not done yet with what comes first: sources, packages")
        return Ready(found, container, remote.target, known)


class _Reasons:
    """Why it takes so long: each reason is told once, and the cluster asked for it now and then."""

    def __init__(self, client: Backend, name: str, tell: Tell) -> None:
        self._client, self._name, self._tell = client, name, tell
        self._next, self._is_serving_awaited = 0.0, False
        self.last = "it has not started"

    def ask(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EXPLAIN
            with contextlib.suppress(PaiError):
                found = explain.why(self._client, self._name)
                if found.state == states.WAITING:
                    self.tell_once(found.why)

    def tell_refusal(self, err: Unreachable) -> None:
        if not isinstance(err, NotServing):
            self.tell_once(str(err))
            return
        if not self._is_serving_awaited:  # as at every start; what it may lack is for the end of the wait
            self._is_serving_awaited = True
            self._tell("waiting for ssh")
        self.last = str(err)

    def tell_once(self, reason: str) -> None:
        if reason != self.last:
            self.last = reason
            self._tell(f"waiting: {reason}")


def _over(client: Backend, job: JobInfo) -> PaiError:
    if not job.exit_status:
        return Unreachable(f"job {job.name!r} is over already: its time was shorter than the wait for it")
    with contextlib.suppress(PaiError):
        why = explain.why(client, job.name).why
        return JobFailed(f"job {job.name!r} is {job.state}: {why} (`job.why {job.name}`)", job.exit_status)
    return JobFailed(f"job {job.name!r} is {job.state}", job.exit_status)


# How long it stays


def read_stay(remote: Remote) -> Stay | None:
    """What the container says of its time and its GPUs; nothing for a job of another kind."""
    said: list[bytes] = []
    limits = sessions.Limits(seconds=ASK)
    with contextlib.suppress(TimedOut):
        sessions.run_command(remote, keepalive.tell(), said.append, lambda piece: None, limits=limits)
    return keepalive.told(b"".join(said).decode("utf-8", "replace"))


def read_stays(crowd: Fanout) -> dict[str, Stay]:
    """The same of many containers, by their labels."""
    return {label: one for label, (one, _) in _asked(crowd, keepalive.tell()).items() if one}


def extend(client: Backend, name: str, settings: Settings, seconds: int) -> list[Extended]:
    """Keep the job that long from now, if it does not stay longer anyway: over ssh, else by its storage."""
    found = endpoints.reach(client, name, settings)
    if not is_interactive(client, found.job):
        raise ConfigError(f"job {found.job.name!r} was not started by container.start: it has no time to end")
    running = [one for one in found.containers if one.state == states.RUNNING]
    with Fanout(client, found, running, settings) as crowd:
        asked = _asked(crowd, keepalive.extend(seconds))
    trouble = [error for one, error in asked.values() if one is None]
    if trouble:
        left = _extend_by_storage(client, found.job, settings, seconds, trouble[0])
        return [Extended(label, left, "storage") for label in asked]
    return [Extended(label, one.left, "ssh") for label, (one, _) in asked.items() if one]


def _asked(crowd: Fanout, command: str) -> dict[str, tuple[Stay | None, str]]:
    said: dict[str, list[bytes]] = {one.label: [] for one in crowd.containers}
    ended = crowd.run(command, lambda label, line: said[label].append(line), lambda label, line: None)
    texts = {label: b"\n".join(lines).decode("utf-8", "replace") for label, lines in said.items()}
    missing = {NO_STATE: "it has not written yet how long it stays"}
    return {
        one.container: (
            keepalive.told(texts[one.container]) if not one.code else None,
            one.error or missing.get(one.code, f"it ended with {one.code}"),
        )
        for one in ended
    }


def _extend_by_storage(client: Backend, job: JobInfo, settings: Settings, seconds: int, why: str) -> int:
    """Put a later time where every container of the job looks, if they have a storage in common.

    How many seconds they stay at least: an earlier word, or their first one, may keep them longer.
    """
    document = client.job_document(job.key)
    mark = stamp_of(document)
    if mark.storage:
        mounts = mount_map(settings.storage_mounts)
        home = job_folders.at(client, mark.storage, mark.workspace, job.user, mounts)
        if isinstance(home.seen, Mounted):
            now, folder = int(time.time()), home.layout.job(job.name)
            path, wanted = join(folder, keepalive.DEADLINE), now + seconds
            told = _told_before(home.store, path)
            if told < wanted:
                text = f"{wanted}\n".encode()
                home.store.make_folder(folder)
                put(home.store, path, lambda: [text], len(text))
            first = (job.launched or 0) // 1000 + min(_first_stays(document), default=0)
            return max(told, wanted, first) - now
    raise Unreachable(f"job {job.name!r} cannot be told: {why}; it shares no storage with us either")


def _told_before(store: Store, path: str) -> int:
    """The time that was put there earlier, 0 if there is none that a container would believe."""
    try:
        return keepalive.time_of(b"".join(store.read(path, 0, keepalive.DIGITS + 2)))
    except NotFound:
        return 0


def stop(client: Backend, names: Iterable[str]) -> list[JobInfo]:
    """Stop containers by name or pattern; nothing is stopped if one of the names is that of another job."""
    return lookup.stop_all(client, [job for name in names for job in _meant(client, name)])


def _meant(client: Backend, name: str) -> list[JobInfo]:
    """What the name or the pattern says, of the jobs that container.start has made."""
    found = lookup.matching(client, name)
    made = [job for job in found if _is_made_here(client, job)]
    if made:
        return made
    if lookup.is_pattern(name):
        raise NotFound(f"no container of container.start that goes on matches {name!r}", 404)
    raise ConfigError(
        f"job {found[0].name!r} was not started by container.start: `job.stop {found[0].name}` ends it"
    )


def _is_made_here(client: Backend, job: JobInfo) -> bool:
    try:
        return is_interactive(client, job)
    except NotFound:  # a cluster keeps no document of it
        return False


def is_interactive(client: Backend, job: JobInfo) -> bool:
    """Whether one of its roles only stays."""
    return bool(_kept_roles(client, job))


def _kept_roles(client: Backend, job: JobInfo) -> set[str]:
    """The roles that only stay, by the names of their containers."""
    commands = _commands(client.job_document(job.key))
    kept = [name for name, command in commands if keepalive.is_kept(command)]
    return {spelled for name in kept for spelled in (name, states.role_key(name))}


def _first_stays(document: Any) -> list[int]:
    """How long the roles that only stay were to stay when they began."""
    return [keepalive.first_stay(command) for _, command in _commands(document) if keepalive.is_kept(command)]


def _commands(document: Any) -> list[tuple[str, str]]:
    """The roles of a job's document, each with every command of it; in version 1 they have no such map."""
    roles = document.get("taskRoles") if isinstance(document, dict) else None
    if not isinstance(roles, dict):
        return []
    return [(name, str(line)) for name, role in roles.items() for line in role.get("commands") or ()]


# Which one


def only_container(client: Backend, folder: Path) -> str:
    """The container that was started from the folder and is not over, if there is exactly one."""
    alias = client.cluster.alias
    active = client.jobs(username=client.user, state=states.UNFINISHED)
    names = {job.name for job in active}
    mine = [one.name for one in _started(folder, alias) if one.name in names]
    if not mine:
        raise ConfigError(f"no container that was started here runs on cluster {alias!r}: name the job")
    if len(mine) > 1:
        raise ConfigError(f"which container? these were started here: {', '.join(sorted(mine))}")
    return mine[0]


def _started(folder: Path, alias: str) -> Iterator[records.Record]:
    return (one for one in records.of_cluster(folder, alias) if keepalive.is_kept(one.command))
