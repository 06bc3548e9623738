"""The end of a task: its exit code, its state, and the end of its log without secrets."""

from __future__ import annotations

import dataclasses
import io
import signal
from collections.abc import Iterator
from typing import Any

from openpai_tasks.protocol import exit_codes, states
from openpai_tasks.protocol.document.masking import STARS
from openpai_tasks.server.engines.base import Engine, TaskExit
from openpai_tasks.server.scheduling import log_patterns
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import now

LAST_LINES, LONGEST_END = 15, 4096  # of a failed task's log
SEARCHED = 1 << 18  # bytes at the end of a log that are searched for the cause of a failure
_SHORTEST = 3  # a shorter secret would be found in most texts


def read_log_end(engine: Engine, task: Task) -> bytes:
    """Return the end of a task's log; empty if there is none."""
    try:
        with engine.open_log(task, "all") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - SEARCHED))
            return file.read(SEARCHED)
    except FileNotFoundError:
        return b""


def finished(task: Task, end: TaskExit, job_is_stopped: bool) -> Task:
    """Return the task with its final state."""
    code = _exit_code(task, end, job_is_stopped)
    words = end.reason if end.user_code is None else describe(end.user_code)
    more = f"; {end.reason}" if end.user_code is not None and end.reason else ""
    return dataclasses.replace(
        task,
        state=states.final_state(code),
        sub_state=states.COMPLETED,
        completed=end.ended or now(),
        exit_code=code,
        user_exit_code=end.user_code,
        diagnostics=words + more,
        peak_memory_mb=end.peak_memory_mb,
        cpu_seconds=end.cpu_seconds,
    )


def explained(task: Task, end: TaskExit, log: bytes, secrets: dict[str, Any]) -> Task:
    """Return the failed task with the cause found in its log; an exit code of the platform has priority."""
    code, matched = log_patterns.recognise(end.user_code or 0, log)
    return dataclasses.replace(
        task,
        exit_code=code if end.platform_code is None else end.platform_code,
        matched=hidden(matched, secrets),
        log_end=hidden(last_lines(log, LAST_LINES, LONGEST_END), secrets),
    )


def _exit_code(task: Task, end: TaskExit, job_is_stopped: bool) -> int:
    """Return the exit code: that of the stop for a stopped task, its own if it had ended before."""
    is_stopped = end.stopped and task.state in (states.STOPPING, states.WAITING)
    if is_stopped or (end.user_code is None and task.state == states.STOPPING):
        return exit_codes.STOPPED_BY_USER if job_is_stopped else exit_codes.STOPPED_WITH_ATTEMPT
    if end.platform_code is not None:
        return end.platform_code
    return exit_codes.from_user_code(
        end.user_code if end.user_code is not None else exit_codes.RUNTIME_FAILURE
    )


def describe(user_exit_code: int) -> str:
    """Describe the end of a command."""
    if user_exit_code == 0:
        return "succeeded"
    try:
        name = signal.Signals(user_exit_code - 128).name
    except ValueError:
        return f"exited with code {user_exit_code}"
    return f"was ended by {name} (exit code {user_exit_code})"


def last_lines(log: bytes, lines: int, size: int) -> str:
    """Return the end of a log, with at most this many lines and bytes."""
    text = log[-size:].decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def hidden(text: str, secrets: dict[str, Any]) -> str:
    """Replace every secret in the text by stars, the longest first."""
    for secret in sorted(set(_words(secrets)), key=len, reverse=True):
        text = text.replace(secret, STARS)
    return text


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _words(one)
    elif isinstance(value, list):
        for one in value:
            yield from _words(one)
    elif isinstance(value, (str, int, float)) and len(str(value)) >= _SHORTEST:
        yield str(value)
