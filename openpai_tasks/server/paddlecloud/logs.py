"""Logs of pods: the last lines of each, also of a job that was killed."""

from __future__ import annotations

import io
import re
from typing import BinaryIO

from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud.document import TRAINER
from openpai_tasks.server.paddlecloud.jobs import no_job
from openpai_tasks.server.paddlecloud.records import PaddleRecords
from openpai_tasks.server.paddlecloud.workers import TaskPod, pods_of

LINES = 10
MOST_BYTES = 4 << 20  # of one pod
BANNER = "=" * 26
LOG = "all"
_BLOCK = 64 * 1024
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


def read_logs(context: Context, request: Request) -> Reply:
    """Return the last ``n`` lines of each trainer, or of the pod ``w``, which may be a parameter server."""
    name, wanted = request.first("jobname"), request.first("w")
    if not name:
        raise ApiError("no jobname specified", 400)
    count = _count(request.first("n") or str(LINES))
    found = PaddleRecords(context.state.database).job(request.caller.user, name)
    if found is None:
        raise no_job(name)
    pods = pods_of(context, found)
    if wanted:
        pod = next((one for one in pods if one.name == wanted), None)
        if pod is None:
            raise NotFound(f"job {name} has no pod {wanted[:80]!r}", 404)
        return 200, {"code": 200, "msg": _tail_of(context, pod, count)}
    sections = [
        f"{BANNER}{pod.name}{BANNER}\n{_tail_of(context, pod, count)}" for pod in pods if pod.role == TRAINER
    ]
    return 200, {"code": 200, "msg": "".join(sections)}


def tail(file: BinaryIO, lines: int, most: int = MOST_BYTES) -> str:
    """Return the last lines of a file, at most this many bytes of it."""
    place = file.seek(0, io.SEEK_END)
    found, size, newlines = list[bytes](), 0, 0
    while place > 0 and newlines <= lines and size < most:
        length = min(_BLOCK, place, most - size)
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
