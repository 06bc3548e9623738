"""Jobs of a datacenter: submit, list and kill them, and read their output."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from openpai_tasks.backends.paddlecloud import packages
from openpai_tasks.backends.paddlecloud.answers import PaddlePod, TrainerSet
from openpai_tasks.backends.paddlecloud.client import PaddleClient, TrainingRequest
from openpai_tasks.backends.paddlecloud.job_records import JobRecords
from openpai_tasks.errors import Conflict, NotFound, TimedOut
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.paddlecloud.request import DEFAULT_ENTRY, DEFAULT_NAME, InvalidArgument, PaddleRequest
from openpai_tasks.storage.job_files.workspace import OWN_FILES, REFERENCE, SOURCE
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

END_SECONDS = 60.0  # for the pods of a killed job
POLL_SECONDS = 0.1
PARALLEL = 8  # folders that are looked into at once

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINATING, TERMINATED, FOREIGN = "Terminating", "Terminated", "Foreign"
UNFINISHED = (PENDING, RUNNING, TERMINATING)


@dataclass(frozen=True)
class PaddleJobRow:
    """A job as the tables show it; times are in ms."""

    name: str
    state: str
    namespace: str = ""
    desired: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    started: int | None = None
    completed: int | None = None
    ps_ready: int = 0
    ps_total: int = 0

    @property
    def is_listed(self) -> bool:
        """Whether the cluster has counts of its workers."""
        return self.state not in (TERMINATING, TERMINATED, FOREIGN)

    @property
    def age(self) -> float | None:
        """Seconds since the start."""
        return None if self.started is None else max(0.0, time.time() - self.started / 1000)


@dataclass(frozen=True)
class QuotaRow:
    """A limit of the user, and how much of it is used; "" if the datacenter does not report it."""

    resource: str
    limit: str
    used: str = ""


def list_jobs(client: PaddleClient, all: bool = False) -> list[PaddleJobRow]:
    """List the jobs that have not ended, newest first, without those of `pai`.

    With ``all``, also those that have ended, those that were killed and whose folder is still there, and
    those of `pai`, as foreign.
    """
    found = _newest_first(client)
    kept = [one for one in found if all or _state(one) in UNFINISHED]
    if len(kept) < len(found):
        ended = counted(len(found) - len(kept), "ended job")
        client.say(f"not listed: {ended} (`{command('paddle.jobs', '-a')}` lists all)")
    return _rows(client, kept, all)


def _newest_first(client: PaddleClient) -> list[TrainerSet]:
    """Return what the cluster lists: waiting jobs first; those of which only the name is left come last."""
    # Of those that started in the same second, the last is the newest.
    return sorted(
        reversed(client.trainer_sets()),
        key=lambda found: (found.is_terminating, -(found.started if found.started is not None else 1 << 60)),
    )


def _rows(client: PaddleClient, listed: Sequence[TrainerSet], all: bool) -> list[PaddleJobRow]:
    servers = {found.job: found for found in client.pserver_sets()}
    gone = sorted({*_folders(client)} - {found.job for found in listed}) if all else []
    foreign = _foreign_jobs(client, {found.job for found in listed}, gone)
    rows = []
    for found in listed:
        ps = servers.get(found.job)
        row = _job(client, found, ps.ready if ps else 0, ps.total if ps else 0)
        if found.job not in foreign:
            rows.append(row)
        elif all:
            rows.append(dataclasses.replace(row, state=FOREIGN))
    return rows + [
        PaddleJobRow(name, FOREIGN if name in foreign else TERMINATED, _namespace(client)) for name in gone
    ]


def _foreign_jobs(client: PaddleClient, listed: Collection[str], gone: Iterable[str]) -> set[str]:
    """Return the jobs that `pai` submitted, among those that the cluster lists and those it does not."""
    asked = [*({*listed} & JobRecords(client).names()), *gone]
    if not asked:
        return set()
    with ThreadPoolExecutor(PARALLEL) as pool:
        answers = pool.map(lambda name: _is_foreign(client, name, name in listed), asked)
        return {name for name, is_foreign in zip(asked, answers, strict=True) if is_foreign}


def _is_foreign(client: PaddleClient, name: str, is_listed: bool) -> bool:
    """Whether a job's folder holds files that `pai` or its jobs wrote.

    A folder with nothing but outputs is a package only if the cluster still lists the job.
    """
    folder = job_folder(client, name)
    names = set(_names_in(client, folder))
    if packages.FOLDER in names or (not is_listed and names and names <= OWN_FILES):
        return True
    return SOURCE in names and any(map(REFERENCE.fullmatch, _names_in(client, f"{folder}/{SOURCE}")))


def _names_in(client: PaddleClient, folder: str) -> tuple[str, ...]:
    try:
        return tuple(name.rstrip("/") for name in client.files(folder))
    except NotFound:
        return ()


def _job(client: PaddleClient, found: TrainerSet, ready: int, total: int) -> PaddleJobRow:
    counted = found.active + found.succeeded + found.failed
    return PaddleJobRow(
        found.job,
        _state(found),
        found.namespace or _namespace(client),
        counted if found.parallelism is None else found.parallelism,
        found.active,
        found.succeeded,
        found.failed,
        found.started,
        found.completed,
        ready,
        total,
    )


def _state(found: TrainerSet) -> str:
    if found.is_terminating:
        return TERMINATING
    if found.active and found.started is not None:
        return RUNNING
    if found.failed:
        return FAILED
    return SUCCEEDED if found.succeeded and not found.active else PENDING


def _namespace(client: PaddleClient) -> str:
    return client.user.translate(str.maketrans("@._", "---"))


def _folders(client: PaddleClient) -> tuple[str, ...]:
    """Return the names of the folders that submissions have made."""
    return _names_in(client, f"{client.home}/jobs")


def parse_resource(what: str, job: str, all: bool) -> Callable[[PaddleClient], Sequence[object]]:
    """Return the function that lists these resources."""
    if job and what != "workers":
        raise InvalidArgument(f"only `get workers` takes a job, got {job!r}")
    if what == "workers":
        if not job and not all:
            raise InvalidArgument("name the job whose workers to list, or use -a for those of all jobs")
        return lambda client: list_workers(client, job)
    if what not in ("jobs", "quota"):
        raise InvalidArgument(f"there are jobs, workers and quota to get, not {what!r}")
    return partial(list_jobs if what == "jobs" else list_quota, all=all)


def list_workers(client: PaddleClient, job: str = "") -> list[PaddlePod]:
    """List the workers of a job, or those of all jobs."""
    if not job:
        return list(client.workers())
    name = known_job(client, job)
    found = list(client.workers(name))
    if not found and all(known.job != name for known in client.trainer_sets()):
        raise NotFound(f"no job named {name!r} on {client.datacenter}")
    return found


NAMES = {
    "requests.memory": "Memory",
    "requests.cpu": "CPU",
    "alpha.kubernetes.io/nvidia-gpu": "GPU",
    "pods": "MaxParallelism",
}
"""The limits that the table shows, by their names in Kubernetes."""


def list_quota(client: PaddleClient, all: bool = False) -> list[QuotaRow]:
    """List the limits of the user; with ``all``, also those that the table usually leaves out."""
    rows = []
    for quota in client.quotas():
        shown = [key for key in NAMES if key in quota.hard]
        shown += [key for key in sorted(quota.hard) if key not in NAMES] if all else []
        rows += [QuotaRow(NAMES.get(key, key), quota.hard[key], quota.used.get(key, "")) for key in shown]
    return rows


# Submissions


def plan_training(client: PaddleClient, request: PaddleRequest) -> TrainingRequest:
    """Return the submission of a checked request, with the name that the job gets."""
    name = _choose_name(client, request.jobname)
    same = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    for other in ("package", "jobname", "pservers", "faulttolerant"):
        del same[other]
    if not request.entry and not request.topology:
        same["entry"] = DEFAULT_ENTRY
        client.say(f"without -entry and -topology, the trainers run `{DEFAULT_ENTRY}`")
    return TrainingRequest(
        name=name,
        folder=os.path.basename(os.path.abspath(request.package)),
        pservers=request.parallelism if request.pservers is None else request.pservers,
        fault_tolerant=request.faulttolerant,
        **same,
    )


def _choose_name(client: PaddleClient, wanted: str) -> str:
    """Return the name of a new job; one that was not chosen by the user is made unique."""
    there = {found.job: found for found in client.trainer_sets()}
    if wanted:
        if _is_foreign(client, wanted, wanted in there):
            folder = job_folder(client, wanted)
            raise Conflict(f"{folder} holds the files of a job of pai: use another -jobname")
        if wanted in there:
            raise Conflict(_describe_conflict(there[wanted]))
        return wanted
    taken = {*there, *_folders(client)}
    names = itertools.chain([DEFAULT_NAME], (f"{DEFAULT_NAME}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _describe_conflict(found: TrainerSet) -> str:
    name = found.job
    if found.is_terminating:
        return f"a job named {name!r} is still terminating; wait for its end, or use another -jobname"
    state, kill = _state(found).lower(), command("paddle.kill", name)
    return f"a job named {name!r} exists already ({state}): `{kill}` removes it, or use another -jobname"


def package_folders(client: PaddleClient, name: str) -> list[str]:
    """Return the folder of the job with this name, and of the newest job whose package has it.

    Servers of 2018 do not report the name of the package.
    """
    newest = [found.job for found in _newest_first(client) if found.folder == name][:1]
    return [job_folder(client, job) for job in (name, *newest)]


def job_folder(client: PaddleClient, name: str) -> str:
    """Return the folder that the package of a job is uploaded to."""
    return f"{client.home}/jobs/{name}"


# Jobs by name


def known_job(client: PaddleClient, name: str) -> str:
    """Return the name of a job as the cluster knows it; ``NAME-trainer`` is accepted, too."""
    if not name.endswith("-trainer") or any(found.job == name for found in client.trainer_sets()):
        return name
    return name.removesuffix("-trainer")


def newest_job(client: PaddleClient) -> str:
    """Return the name of the newest job."""
    found = [job for job in _rows(client, _newest_first(client), all=False) if job.is_listed]
    if not found:
        raise NotFound(
            f"there are no jobs on {client.datacenter}; `{command('paddle.submit')}` starts one", 404
        )
    return found[0].name


def check_logs(lines: int, worker: str, follow: bool) -> None:
    """Raise for invalid options of `logs`."""
    if lines < 0:
        raise InvalidArgument(f"-n must be at least 0, got {lines}")
    if worker and follow:
        raise InvalidArgument("-f follows all trainers: leave out -w")


def read_logs(client: PaddleClient, job: str, lines: int, worker: str) -> tuple[tuple[PaddlePod, ...], str]:
    """Return the workers of a job and the last lines of their output, or only those of one worker."""
    name = known_job(client, job) if job else newest_job(client)
    pods = () if worker else client.workers(name)
    return pods, client.logs(name, lines, worker)


def check_own(client: PaddleClient, name: str) -> None:
    """Raise if `pai` submitted the job: only its own commands stop it and remove its files."""
    is_listed = any(found.job == name for found in client.trainer_sets())
    if not _is_foreign(client, name, is_listed):
        return
    where = ("-a", client.cluster.alias) if is_listed else ()
    stop = command("job.stop", name, *where)
    remove = command("paddle.pfs-rm", job_folder(client, name), "--recursive")
    raise Conflict(
        f"job {name!r} was submitted by pai, so nothing was done: `{stop}` stops it, "
        f"`{remove}` removes its files",
        409,
    )


def kill(client: PaddleClient, name: str, is_folder_enough: bool = False) -> None:
    """Stop a job; with ``is_folder_enough``, it may be gone already, if it has left its folder."""
    try:
        client.kill(name)
    except NotFound:
        if not (is_folder_enough and name in _folders(client)):
            raise


def wait_for_end(client: PaddleClient, name: str) -> None:
    """Wait until the pods of a killed job have ended: they could still write to its folder."""
    limit = time.monotonic() + END_SECONDS
    while any(found.job == name for found in client.trainer_sets()):
        if time.monotonic() > limit:
            raise TimedOut(f"job {name} has not ended within {END_SECONDS:.0f} s; its folder is still there")
        time.sleep(POLL_SECONDS)
