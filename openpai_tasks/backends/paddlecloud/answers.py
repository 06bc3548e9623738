"""What PaddleCloud answers, as values; odd fields become empty ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import count, mapping, moment, rows, text, texts, whole

TRAINER, PSERVER = "trainer", "pserver"
COMPLETE, FAILED = ENDS = ("Complete", "Failed")


@dataclass(frozen=True)
class TrainerSet:
    """The trainers of a job: how many run, have succeeded and have failed; times are in ms."""

    job: str
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    parallelism: int | None = None
    started: int | None = None
    completed: int | None = None
    is_terminating: bool = False  # killed, but its pods have not ended yet
    namespace: str = ""
    created: int | None = None
    end: str = ""  # "Complete" or "Failed" once Kubernetes says so
    message: str = ""  # why it failed
    folder: str = ""  # the name of its package on the machine that submitted it


@dataclass(frozen=True)
class PserverSet:
    """The parameter servers of a job."""

    job: str
    ready: int = 0
    total: int = 0


@dataclass(frozen=True)
class PaddlePod:
    """A pod of a job; ``reason`` explains why it waits or how it ended."""

    name: str
    phase: str = "Unknown"
    started: int | None = None
    completed: int | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    ip: str = ""


@dataclass(frozen=True)
class Quota:
    """The limits of a namespace and what is used of them, as Kubernetes quantities by resource."""

    hard: Mapping[str, str]
    used: Mapping[str, str]


def trainer_sets(body: Mapping[str, Any]) -> Iterator[TrainerSet]:
    """Read the list of jobs: of Kubernetes, or the flat one of the design document."""
    names = set()
    for row in _items(body):
        found = _trainer_set(row)
        names.add(found.job)
        if found.job:
            yield found
    for name in texts(body.get("terminating")):
        if name and name not in names:
            yield TrainerSet(name, is_terminating=True)


def pserver_sets(body: Mapping[str, Any]) -> Iterator[PserverSet]:
    for row in _items(body):
        name, status = _name(row), mapping(row.get("status"))
        if name.endswith(f"-{PSERVER}"):
            job = name.removesuffix(f"-{PSERVER}")
            yield PserverSet(job, count(status.get("ready_replicas")), count(status.get("replicas")))


def pods(body: Mapping[str, Any]) -> Iterator[PaddlePod]:
    for row in _items(body):
        if name := _name(row):
            yield _pod(name, mapping(row.get("status")))


def quotas(body: Mapping[str, Any]) -> Iterator[Quota]:
    for row in _items(body):
        status = mapping(row.get("status"))
        hard, used = (
            {key: text(value) for key, value in mapping(status.get(part)).items()}
            for part in ("hard", "used")
        )
        yield Quota(hard, used)


def _items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return rows(body.get("items") if "items" in body else body.get("msg"))


def _name(row: Mapping[str, Any]) -> str:
    return text(mapping(row.get("metadata")).get("name")) or text(row.get("name"))


def _trainer_set(row: Mapping[str, Any]) -> TrainerSet:
    status, metadata = mapping(row.get("status")) or row, mapping(row.get("metadata"))
    end = next((one for one in rows(status.get("conditions")) if text(one.get("type")) in ENDS), {})
    wanted = whole(mapping(row.get("spec")).get("parallelism", row.get("parallelism")))
    return TrainerSet(
        _name(row).removesuffix(f"-{TRAINER}"),
        active=count(status.get("active")),
        succeeded=count(status.get("succeeded")),
        failed=count(status.get("failed")),
        parallelism=wanted,
        started=_time(status, "start_time", "startTime"),
        completed=_time(status, "completion_time", "completionTime") or _time(end, "last_transition_time"),
        is_terminating=bool(text(metadata.get("deletion_timestamp"))),
        namespace=text(metadata.get("namespace")),
        created=_time(metadata, "creation_timestamp"),
        end=text(end.get("type")),
        message=text(end.get("message")),
        folder=text(mapping(metadata.get("annotations")).get("paddle-job-package")),
    )


def _pod(name: str, status: Mapping[str, Any]) -> PaddlePod:
    container = next(iter(rows(status.get("container_statuses"))), {})
    state = mapping(container.get("state"))
    ended, waiting = mapping(state.get("terminated")), mapping(state.get("waiting"))
    blocked = _unmet(status) if not ended else {}
    shown = ended or waiting or blocked
    return PaddlePod(
        name,
        text(status.get("phase")) or "Unknown",
        started=_time(status, "start_time"),
        completed=_time(ended, "finished_at"),
        exit_code=whole(ended.get("exit_code")),
        reason=text(shown.get("reason")) or text(status.get("reason")),
        message=text(shown.get("message")) or text(status.get("message")),
        ip=text(status.get("pod_ip")),
    )


def _unmet(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the condition that keeps a pod from starting."""
    return next((row for row in rows(status.get("conditions")) if text(row.get("status")) == "False"), {})


def _time(fields: Mapping[str, Any], *keys: str) -> int | None:
    """Return a time of Kubernetes, written as ISO 8601, in ms."""
    written = next((text(fields[key]) for key in keys if fields.get(key)), "")
    try:
        return moment(datetime.fromisoformat(written.replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
