"""What a task's end comes to: its exit code, its state, and what is kept of its log but for secrets."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from typing import Any

from openpai_tasks.protocol import exit_codes, states
from openpai_tasks.protocol.document.masking import STARS
from openpai_tasks.server.engines import Exit
from openpai_tasks.server.scheduling import log_patterns
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import now

LAST_LINES, LONGEST_END = 15, 4096  # of a failed task's log
_SHORTEST = 3  # a secret that is shorter would be found in most texts


def finished(task: Task, end: Exit, job_is_stopped: bool) -> Task:
    """The task as it is now that it is over."""
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
    )


def explained(task: Task, end: Exit, secrets: dict[str, Any]) -> Task:
    """The failed task with what its log says; a code of the platform's own says more than that."""
    code, matched = log_patterns.recognise(end.user_code or 0, end.log)
    return dataclasses.replace(
        task,
        exit_code=code if end.platform_code is None else end.platform_code,
        matched=hidden(matched, secrets),
        log_end=hidden(last_lines(end.log, LAST_LINES, LONGEST_END), secrets),
    )


def _exit_code(task: Task, end: Exit, job_is_stopped: bool) -> int:
    """Stopped tasks say who wanted it; one that had ended before it was asked keeps its own code."""
    asked = end.stopped or end.user_code is None
    if asked and task.state in (states.STOPPING, states.WAITING):
        return exit_codes.STOPPED_BY_USER if job_is_stopped else exit_codes.STOPPED_WITH_ATTEMPT
    if end.platform_code is not None:
        return end.platform_code
    return exit_codes.from_user_code(
        end.user_code if end.user_code is not None else exit_codes.RUNTIME_FAILURE
    )


def describe(user_exit_code: int) -> str:
    """What became of a command, in words."""
    if user_exit_code == 0:
        return "succeeded"
    try:
        name = signal.Signals(user_exit_code - 128).name
    except ValueError:
        return f"exited with code {user_exit_code}"
    return f"was ended by {name} (exit code {user_exit_code})"


def last_lines(log: bytes, lines: int, size: int) -> str:
    """The end of a log: at most so many lines and bytes."""
    text = log[-size:].decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def hidden(text: str, secrets: dict[str, Any]) -> str:
    """The text with stars for every secret in it, the longest first."""
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
