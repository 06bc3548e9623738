"""Find, describe, watch, wait for and stop jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from openpai_tasks.backends.base import Backend, require
from openpai_tasks.errors import ConfigError, InvalidOption, JobFailed, NotFound, PaiError, TimedOut
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.problems import closest
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.jobs.job_cache import add_causes
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.known_names import add_exits, forget_job, known_jobs, note_exits, note_jobs, note_task
from openpai_tasks.sdk.notebooks import sessions
from openpai_tasks.text import wildcards
from openpai_tasks.text.hints import command

T = TypeVar("T")

MOST_LISTED = 100  # jobs among which one is looked for by its name


def find(client: Backend, name: str | JobInfo) -> JobInfo:
    """Return the job with this name, or ``user~name`` for another user's job; one that was found before."""
    if isinstance(name, JobInfo):
        return name
    try:
        job = _by_name(client, name)
        note_jobs(client, [job])
        note_exits(client, [job])
        note_task(client, job)
        sessions.forget_ended(client, [job])
        return job
    except NotFound as err:
        forget_job(client, name)
        where = f"cluster {client.cluster.alias!r}{closest(name, known_jobs(client))}"
        raise NotFound(
            f"no job named {name!r} on {where}; `{command('job.list')}` shows them", 404, err.code
        ) from err


def _by_name(client: Backend, name: str) -> JobInfo:
    """Return the user's own job or, on clusters that have them, a job without an owner."""
    try:
        return client.job(key_of(client, name))
    except NotFound:
        if "~" in name or not client.capabilities.ownerless_jobs:
            raise
        return client.job(name)


def list_jobs(
    client: Backend,
    user: str | None = None,
    state: str | None = None,
    virtual_cluster: str | None = None,
    keyword: str | None = None,
    limit: int | None = None,
    pattern: str = "*",
    idle: bool = False,
) -> list[JobInfo]:
    """List jobs, newest first: the user's own, another user's, or everyone's for ``all``.

    With ``idle``, only running jobs whose GPUs are idle now.
    """
    if idle:
        require(client, "idle_gpus")
        state = states.RUNNING
    whose = None if user == "all" else user or client.user
    most = limit if pattern == "*" and not idle else None
    found = client.jobs(username=whose, state=state, vc=virtual_cluster, keyword=keyword, limit=most)
    note_jobs(client, found)
    sessions.forget_ended(client, found)
    fitting = [job for job in found if not idle or job.gpus_idle is not None]
    chosen = [job for job in fitting if wildcards.matches(job.name, pattern)][:limit]
    return add_causes(client, add_exits(client, chosen))


def parse_states(text: str) -> str:
    """Check states separated by commas, in any case, and return them as a filter of the job list."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.upper() not in states.ALL:
            known = f"(known: {', '.join(states.ALL)}){closest(word, states.ALL)}"
            raise InvalidOption("state", f": no state named {word!r} {known}")
    return ",".join(word.upper() for word in words)


def describe(client: Backend, name: str | JobInfo) -> JobInfo:
    """Return the job with its events; servers before 1.3 have none."""
    job = find(client, name)
    with contextlib.suppress(NotFound):
        return dataclasses.replace(job, events=client.job_events(job.key))
    return job


def count_gpus(client: Backend, job: JobInfo) -> JobInfo:
    """Return a job that has started with its number of GPUs, which the job list has; details do not."""
    if job.gpus is not None or job.launched is None or not client.capabilities.events:
        return job  # servers without events send the whole list, whatever is asked for
    with contextlib.suppress(PaiError):
        for listed in list_call(client, job.key)():
            if listed.key == job.key:
                return dataclasses.replace(job, gpus=listed.gpus)
    return job


def list_call(client: Backend, key: str) -> functools.partial[list[JobInfo]]:
    """Return the call that lists the jobs whose names have that of this job in them."""
    user, _, name = key.rpartition("~")
    return functools.partial(client.jobs, username=user, keyword=name, limit=MOST_LISTED)


def at_attempt(client: Backend, job: JobInfo, attempt: int | None) -> JobInfo:
    """Return the job as of one of its attempts; None means the latest."""
    check_attempt(job, attempt)
    if attempt is None or attempt == job.attempt:
        return job
    return dataclasses.replace(client.job_attempt(job.key, attempt), attempt=attempt)


def check_attempt(job: JobInfo, attempt: int | None) -> None:
    """Raise if the job has no such attempt; None means the latest."""
    if attempt is not None and not 0 <= attempt <= job.attempt:
        has = "only attempt 0" if not job.attempt else f"attempts 0 to {job.attempt}"
        raise InvalidOption("attempt", f"{attempt}: job {job.name!r} has {has}")


def key_of(client: Backend, name: str) -> str:
    if not name.strip():
        raise ConfigError("the job name is empty")
    return name if "~" in name else job_key(client.user, name)


def typed_name(client: Backend, job: JobInfo) -> str:
    """Return the name that commands take: with the user in front for another user's job."""
    return job.name if job.user == client.user else job.key


def command_for(client: Backend, task: str, job: JobInfo, *words: str) -> str:
    """Return the command line that runs a task on this job."""
    return command(task, typed_name(client, job), *words)


def watch_list(client: Backend, ask: Callable[[], T]) -> Iterator[T]:
    """Yield a list again and again, more often while it changes."""
    pauses = Pauses(client)
    before: T | None = None
    while True:
        found = pauses.ask(ask)
        yield found
        pauses.wait(moved=found != before)
        before = found


def watch(client: Backend, name: str, timeout: float | None = None) -> Iterator[JobInfo]:
    """Yield the job whenever it has changed, until it ends."""
    for step in watch_steps(client, name, timeout):
        if isinstance(step, JobInfo):
            yield step
        else:
            time.sleep(step)


def watch_steps(client: Backend, name: str, timeout: float | None = None) -> Iterator[JobInfo | float]:
    """Yield the job whenever it has changed, and between requests the seconds that the caller sleeps.

    It also ends with a failure after which a task is kept.
    """
    pauses = Pauses(client, timeout)
    job, shown = pauses.ask(lambda: find(client, name)), None
    while True:
        if job != shown:
            yield job
        if job.kept_until:
            return
        if job.final:
            note_exits(client, [job])
            sessions.forget_ended(client, [job])
            return
        if pauses.over:
            raise TimedOut(f"job {job.name!r} is still {job.state} after {timeout:g} s; the job continues")
        yield pauses.next()
        job, shown = pauses.ask(functools.partial(client.job, job.key)), job


def wait(client: Backend, name: str, timeout: float | None = None) -> JobInfo:
    """Wait for the job to end and return it."""
    *_, last = watch(client, name, timeout)
    return last


def wait_all(client: Backend, names: Iterable[str], timeout: float | None = None) -> list[JobInfo]:
    """Wait for all the jobs to end and return them; the timeout is for all together."""
    ended, begun, left = list[JobInfo](), time.monotonic(), timeout
    for name in names:
        ended.append(wait(client, name, left))
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
    return ended


def check_succeeded(job: JobInfo, advice: str = "") -> None:
    """Raise unless the job succeeded; the command then exits with the job's exit code."""
    if job.exit_status:
        why = job.cause or job.message
        more = f"; {advice}" if advice and (job.state == states.FAILED or job.kept_until) else ""
        raise JobFailed(f"{describe_end(job)}{why and f': {why}'}{more}", job.exit_status)


def describe_end(job: JobInfo) -> str:
    """Return that a job has failed, or its state."""
    has_failed = job.state == states.FAILED or job.kept_until
    return f"job {job.name!r} {'failed' if has_failed else f'is {job.state}'}"


def describe_kept(client: Backend, job: JobInfo) -> str:
    """Return until when a failed job is kept, and what to do with it; empty if it is not."""
    if not job.kept_until:
        return ""
    end = datetime.fromtimestamp(job.kept_until / 1000)
    until = f"{end:%H:%M}" if end.date() == datetime.now().date() else f"{end:%Y-%m-%d %H:%M}"
    open_it, end_it = (command_for(client, f"container.{verb}", job) for verb in ("ssh", "stop"))
    return f"kept until {until} for `{open_it}`; `{end_it}` ends it"


@dataclass(frozen=True)
class UserSummary:
    """The jobs of one user: how many, in which states, and the GPUs they use and have used."""

    user: str
    jobs: int
    running: int
    waiting: int
    failed: int
    gpus: int  # of running jobs
    gpu_hours: float  # of the jobs' latest attempts


def summarise_users(jobs: Iterable[JobInfo]) -> list[UserSummary]:
    """Return a row for each user, those with most GPU-hours first."""
    groups: dict[str, list[JobInfo]] = {}
    for job in jobs:
        groups.setdefault(job.user, []).append(job)
    rows = [_summary(user, group) for user, group in groups.items()]
    return sorted(rows, key=lambda row: (-row.gpu_hours, -row.jobs, row.user))


def _summary(user: str, jobs: Sequence[JobInfo]) -> UserSummary:
    running = [job for job in jobs if job.state == states.RUNNING]
    return UserSummary(
        user,
        len(jobs),
        len(running),
        sum(job.state == states.WAITING for job in jobs),
        sum(job.state == states.FAILED for job in jobs),
        sum(job.gpus or 0 for job in running),
        round(sum(job.gpu_hours or 0.0 for job in jobs), 2),
    )


def stop(client: Backend, names: Sequence[str]) -> list[JobInfo]:
    """Ask jobs to stop, by name or pattern; nothing is stopped if one of them is unknown."""
    if not names:
        raise ConfigError("name the jobs to stop, or patterns such as 'train-*'")
    return stop_all(client, [job for name in names for job in find_matching(client, name)])


def stop_all(client: Backend, jobs: Iterable[JobInfo]) -> list[JobInfo]:
    """Ask each of these jobs that is unfinished to stop, and return their new states.

    A cluster may take a while and report RUNNING until then; such a job is returned as STOPPING.
    """
    asked = {job.key: job for job in jobs}
    for key, job in asked.items():
        if not job.final:
            client.stop_job(key)
    now = [client.job(key) for key in asked]
    sessions.forget_ended(client, now)
    return [job if job.final else dataclasses.replace(job, state=states.STOPPING) for job in now]


def move(client: Backend, name: str, first: bool = False) -> JobInfo:
    """Put a waiting job before the others of its owner, and return it with its place."""
    if not first:
        hint = command("job.move", name, "--first")
        raise ConfigError(f"say where to: `{hint}` puts the job before your other waiting jobs")
    require(client, "queue_moves")
    job = find(client, name)
    client.move_first(job.key)
    return client.job(job.key)


def is_pattern(name: str) -> bool:
    return bool(set("*?[") & set(name))


def find_matching(client: Backend, name: str) -> list[JobInfo]:
    """Return the job with this name, or the unfinished jobs that match the pattern."""
    if not is_pattern(name):
        return [find(client, name)]
    user, _, pattern = name.rpartition("~")
    active = client.jobs(username=user or client.user, state=states.UNFINISHED)
    found = [job for job in active if wildcards.matches(job.name, pattern)]
    if not found:
        raise NotFound(f"no unfinished job matches {name!r}", 404)
    return found


def submitted_document(client: Backend, name: str) -> dict[str, Any]:
    """Return the document of the job, with secrets masked by the server."""
    found = client.job_document(find(client, name).key)
    return found if isinstance(found, dict) else {"text": found}
