"""Logs: their addresses, for callers with a token, and their content, for callers with a ticket."""

from __future__ import annotations

import os
import re
from functools import partial
from urllib.parse import quote, urlencode

from openpai_tasks.errors import NotFound
from openpai_tasks.protocol import routes, states
from openpai_tasks.protocol.json_text import parse_object
from openpai_tasks.server import api_errors, fields
from openpai_tasks.server.accounts.tokens import LOGS
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.profiles import LOG_NODE
from openpai_tasks.server.api.handlers.jobs import task_attempts
from openpai_tasks.server.api.request import Reply, Request, stream_file
from openpai_tasks.server.state.records import Job, Task

TAIL = 16 * 1024
MOST_JOBS = 500
"""Jobs whose results are read with one request."""
RESULT_TAIL = 256 * 1024
"""Bytes at the end of a log in which a result is looked for."""
MOST_RESULTS = 8 << 20
"""Bytes of results in one answer."""
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def list_logs(context: Context, request: Request) -> Reply:
    """Return the addresses of a task attempt's logs, valid for two minutes."""
    job = context.state.job(request.params["job"])
    tries = _task_attempts(context, job, request) if job else []
    if job is None or not tries:  # like OpenPAI, which does not answer 404
        raise api_errors.unknown("Failed to get log list")
    for task in tries:
        if str(task.attempt) == request.params["task_attempt"]:
            tail = "true" in (request.first("tail-mode"), request.first("tailMode"))
            return 200, {"locations": _locations(context, job, task, tail)}
    raise api_errors.no_log()


def _task_attempts(context: Context, job: Job, request: Request) -> list[Task]:
    try:
        return task_attempts(context, job, request)
    except NotFound:
        return []


def get_log(context: Context, request: Request) -> Reply:
    """Return the content of one log: all of it, the part in a Range header, or its end."""
    claims = context.tokens.read_ticket(LOGS, request.first("token"))
    if claims is None:
        raise api_errors.bad_token()
    tries = context.state.task_attempts(claims["job"], claims["attempt"], claims["role"], claims["index"])
    task = next((one for one in tries if one.uid == claims["uid"]), None)
    if task is None or request.first("pod-uid", task.uid) != task.uid:
        raise api_errors.bad_token()
    name = request.params["file"]
    if name not in context.engine.logs(task):
        raise api_errors.no_log()
    wanted = f"bytes=-{TAIL}" if request.first("tail-mode") == "true" else request.headers.get("range", "")
    return slice_log(context, task, name, wanted)


def slice_log(context: Context, task: Task, name: str, wanted: str) -> Reply:
    """Return an existing log, or the part of it in a Range header."""
    size, opened = context.engine.logs(task)[name], partial(context.engine.open_log, task, name)
    match = RANGE.fullmatch(wanted.strip())
    if not match or match[0] == "bytes=-" or (size == 0 and wanted == f"bytes=-{TAIL}"):
        return stream_file(opened, 0, size, 200, {"accept-ranges": "bytes"})
    start, end = _bounds(match[1], match[2], size)
    if start >= size or end < start:
        return stream_file(opened, 0, 0, 416, {"content-range": f"bytes */{size}"})
    headers = {"accept-ranges": "bytes", "content-range": f"bytes {start}-{end}/{size}"}
    return stream_file(opened, start, end - start + 1, 206, headers)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return the first and the last byte; without ``first``, ``last`` counts bytes from the end."""
    if not first:
        return max(size - int(last), 0), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def _locations(context: Context, job: Job, task: Task, tail: bool) -> list[dict[str, str]]:
    names = sorted(context.profile.without("logs", context.engine.logs(task)))
    if not names:
        raise api_errors.no_log()
    claims = {
        "job": task.job,
        "attempt": task.job_attempt,
        "role": task.role,
        "index": task.index,
        "uid": task.uid,
    }
    query = {
        "username": job.user,
        "framework-name": states.debug_id(job.key),
        "pod-uid": task.uid,
        "taskrole": states.role_key(task.role),
        "token": context.tokens.ticket(LOGS, claims),
        **({"tail-mode": "true"} if tail else {}),
    }
    paths = {name: routes.LOG_FILE.format(node=LOG_NODE, file=quote(name)) for name in names}
    return [{"name": name, "uri": f"{path}?{urlencode(query)}"} for name, path in paths.items()]


def read_printed_results(context: Context, request: Request) -> Reply:
    """Return the last JSON object that each of these ended jobs printed, as a line; "" if it printed none.

    Left out are jobs that have not ended, or with longer logs, and those beyond the size limit.
    """
    keys = fields.names(fields.mapping(request.body, ("jobs",)), "jobs")
    if len(keys) > MOST_JOBS:
        raise api_errors.invalid(f'"jobs" must have at most {MOST_JOBS} names, got {len(keys)}')
    rows: list[dict[str, object]] = []
    room = MOST_RESULTS
    for job in context.state.jobs_by_key(keys):
        line = _printed_result(context, job) if job.state in states.FINAL else None
        if line is not None and len(line) <= room:
            room -= len(line)
            text = line.decode("utf-8", "replace")
            rows.append({"name": job.key, "completedTime": job.completed, "line": text})
    return 200, {"jobs": rows}


def _printed_result(context: Context, job: Job) -> bytes | None:
    """Return the last object of the first task that printed one; None if its log is too long to be sure."""
    for task in context.state.tasks(job.key, job.attempt):
        try:
            with context.engine.open_log(task, "stdout") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - RESULT_TAIL))
                lines = file.read(RESULT_TAIL).split(b"\n")
        except OSError:  # the task printed nothing
            continue
        is_whole = size <= RESULT_TAIL
        for line in reversed(lines if is_whole else lines[1:]):
            if parse_object(line) is not None:
                return line.strip()
        if not is_whole:
            return None
    return b""
