"""Pods: the tasks of jobs, as Kubernetes describes them, and the last lines of their logs."""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.kubernetes import PHASES
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud.document import PSERVER, TRAINER
from openpai_tasks.server.paddlecloud.jobs import metadata, no_job, timestamp
from openpai_tasks.server.paddlecloud.records import PaddleJob, PaddleRecords
from openpai_tasks.server.state.records import Task

LINES = 10
MOST_BYTES = 4 << 20  # of one pod
BANNER = "=" * 26
LOG = "all"
_BLOCK = 64 * 1024
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
ROLES = {TRAINER: (TRAINER,), PSERVER: (PSERVER,), "all": (TRAINER, PSERVER)}
LABELS = {TRAINER: "paddle-job", PSERVER: "paddle-job-pserver"}
MESSAGES = {
    1: "General Error",
    134: "Program Abort",
    136: "Erroneous arithmetic operation",
    137: "killed: out of memory? submit it with more memory",
    139: "Segmentation Fault",
}


@dataclass(frozen=True)
class TaskPod:
    """One task of a job; ``task`` is None as long as the job waits."""

    owner: PaddleJob
    role: str
    index: int
    task: Task | None

    @property
    def name(self) -> str:
        """The name, whose last five characters differ for every run of a task."""
        job, attempt = self.owner.job, self.task.attempt if self.task else 0
        identity = f"{job.key} {job.submitted} {job.attempt} {self.role} {self.index} {attempt}"
        mark = hashlib.sha256(identity.encode()).hexdigest()[:5]
        return f"{self.owner.name}-{self.role}-{mark}"

    @property
    def phase(self) -> str:
        """The phase; a parameter server that was stopped after the trainers' success has not failed."""
        if self.task is None:
            return PHASES[states.WAITING]
        is_stopped_at_end = self.task.state == states.STOPPED and self.owner.job.state == states.SUCCEEDED
        return PHASES.get(states.SUCCEEDED if is_stopped_at_end else self.task.state, "Failed")


def list_workers(context: Context, request: Request) -> Reply:
    """Return the pods of one job or of all; ``role`` also shows those of parameter servers."""
    role = request.first("role", TRAINER)
    if role not in ROLES:
        raise ApiError(f"invalid role {role[:80]!r}: expected {', '.join(ROLES)}", 400)
    records, user, name = PaddleRecords(context.state.database), request.caller.user, request.first("jobname")
    one = records.job(user, name) if name else None
    found = ([one] if one else []) if name else records.jobs(user)
    tasks = records.tasks(user, one.job.key if one else "") if found else {}
    pods = [pod for job in found if job.is_listed for pod in _pods(job, tasks.get(job.job.key, ()))]
    return 200, {"items": [_pod(context, pod) for pod in pods if pod.role in ROLES[role]]}


def list_pservers(context: Context, request: Request) -> Reply:
    records, user = PaddleRecords(context.state.database), request.caller.user
    counts = records.counts(user)
    listed = [one for one in records.jobs(user) if one.pservers and not one.is_killed]
    return 200, {"items": [_pserver_set(one, counts.get(one.job.key, Counter())) for one in listed]}


def _pserver_set(one: PaddleJob, counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    ready = counts[PSERVER, states.RUNNING] + counts[PSERVER, states.STOPPING]
    replicas = 0 if one.job.state in states.FINAL else one.pservers
    return {
        "metadata": metadata(one, f"{one.name}-pserver", {LABELS[PSERVER]: one.name}),
        "spec": {"replicas": one.pservers},
        "status": {"ready_replicas": ready or None, "replicas": replicas},
    }


def _pods(one: PaddleJob, tasks: Iterable[Task]) -> Iterator[TaskPod]:
    """Yield the pods of a job: the trainers, then the parameter servers."""
    found = {(task.role, task.index): task for task in tasks}
    for role, count in ((TRAINER, one.trainers), (PSERVER, one.pservers)):
        for index in range(count):
            yield TaskPod(one, role, index, found.get((role, index)))


def _pod(context: Context, pod: TaskPod) -> dict[str, Any]:
    task = pod.task
    container = "trainer" if pod.role == TRAINER else pod.owner.name
    return {
        "metadata": metadata(pod.owner, pod.name, {LABELS[pod.role]: pod.owner.name}),
        "status": {
            "phase": pod.phase,
            "pod_ip": task.ip if task else None,
            "start_time": timestamp(task.launched) if task else None,
            "container_statuses": [{"name": container, "state": _state(context, pod)}],
        },
    }


def _state(context: Context, pod: TaskPod) -> dict[str, Any]:
    state: dict[str, Any] = {"running": None, "terminated": None, "waiting": None}
    task = pod.task
    if task is None or task.state == states.WAITING:
        return state | {"waiting": {"reason": "Pending", "message": _why_waiting(context, pod.owner)}}
    if task.state not in states.FINAL:
        return state | {"running": {"started_at": timestamp(task.launched)}}
    code = task.user_exit_code if task.user_exit_code is not None else task.exit_code
    ended = {
        "exit_code": code if code is not None else 255,
        "message": _message(task, code),
        "reason": "Completed" if task.state == states.SUCCEEDED else "Error",
        "started_at": timestamp(task.launched),
        "finished_at": timestamp(task.completed),
    }
    return state | {"terminated": ended}


def _message(task: Task, code: int | None) -> str:
    if task.state == states.SUCCEEDED:
        return ""
    if task.state == states.STOPPED:
        return "stopped at the end of the job"
    return MESSAGES.get(code if code is not None else 255, "") or f"the task {task.diagnostics}"


def _why_waiting(context: Context, one: PaddleJob) -> str:
    """Return the latest reason why a job waits."""
    reasons = ("FailedScheduling", "Queued")
    events = (event for event in context.state.events(one.job.key) if event.reason in reasons)
    return next((event.message for event in events), "")


# Logs, also of a job that was killed


def read_logs(context: Context, request: Request) -> Reply:
    """Return the last ``n`` lines of each trainer, or of the pod ``w``, which may be a parameter server."""
    name, wanted = request.first("jobname"), request.first("w")
    if not name:
        raise ApiError("no jobname specified", 400)
    count = _count(request.first("n") or str(LINES))
    found = PaddleRecords(context.state.database).job(request.caller.user, name)
    if found is None:
        raise no_job(name)
    pods = list(_pods(found, context.state.tasks(found.job.key, found.job.attempt)))
    if wanted:
        pod = next((one for one in pods if one.name == wanted), None)
        if pod is None:
            raise NotFound(f"job {name} has no pod {wanted[:80]!r}", 404)
        return 200, {"code": 200, "msg": _tail_of(context, pod, count)}
    sections = [
        f"{BANNER}{pod.name}{BANNER}\n{_tail_of(context, pod, count)}" for pod in pods if pod.role == TRAINER
    ]
    return 200, {"code": 200, "msg": "".join(sections)}


def tail(file: BinaryIO, lines: int) -> str:
    """Return the last lines of a file, at most MOST_BYTES of it."""
    place = file.seek(0, io.SEEK_END)
    found, size, newlines = list[bytes](), 0, 0
    while place > 0 and newlines <= lines and size < MOST_BYTES:
        length = min(_BLOCK, place, MOST_BYTES - size)
        place -= length
        file.seek(place)
        block = file.read(length)
        found.append(block)
        size += length
        newlines += block.count(b"\n")
    kept = _LINE.findall(b"".join(reversed(found)))
    return b"".join(kept[max(0, len(kept) - lines) :]).decode("utf-8", "replace")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiError(f"invalid n {text[:80]!r}: expected a number of lines", 400)
    return int(text)


def _tail_of(context: Context, pod: TaskPod, lines: int) -> str:
    if pod.task is None:
        return "the pod waits to be started\n"
    try:
        with context.engine.open_log(pod.task, LOG) as file:
            return tail(file, lines)
    except FileNotFoundError:
        return ""
