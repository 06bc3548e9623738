"""The end of a task: its exit code, its state, and the cause of a failure, found in its log."""

from __future__ import annotations

import dataclasses
import io
import signal
from collections.abc import Iterator
from typing import Any

from openpai_tasks import causes
from openpai_tasks.protocol import exit_codes, states
from openpai_tasks.protocol.document.masking import STARS
from openpai_tasks.server.engines.base import Engine, TaskExit
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import now

LAST_LINES, LONGEST_END = 15, 4096  # of a failed task's log
SEARCHED = 1 << 18  # bytes at the end of a log that are searched for the cause of a failure
LONGEST_MATCH = 2048
NOT_FOUND = 127  # exit code of shells for an unknown command
_SHORTEST = 3  # a shorter secret would be found in most texts


def read_log_end(engine: Engine, task: Task, size: int = SEARCHED) -> bytes:
    """Return the last bytes of a task's log; empty if there is none."""
    try:
        with engine.open_log(task, "all") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - size))
            return file.read(size)
    except FileNotFoundError:
        return b""


def read_gpu_percent(engine: Engine, task: Task) -> float | None:
    """Return the mean use of a task's GPUs; None if it has none, or nothing was recorded."""
    if not task.gpu or not engine.records_usage:
        return None
    try:
        with engine.open_log(task, usage.FILE) as file:
            rows = usage.parse_rows(file.read(usage.MOST_BYTES).decode("ascii", "replace"))
    except FileNotFoundError:
        return None
    found = usage.merge(rows).values if rows else {}
    means = [mean for name, (mean, _) in found.items() if name.startswith("gpu") and name[3:].isdecimal()]
    return min(100.0, sum(means) / len(means)) if means else None


def with_exit(task: Task, end: TaskExit, job_is_stopped: bool) -> Task:
    """Return the task with its final state."""
    code = _exit_code(task, end, job_is_stopped)
    words = end.reason if end.user_code is None else describe(end.user_code)
    more = f"; {end.reason}" if end.user_code is not None and end.reason else ""
    return dataclasses.replace(
        task,
        state=states.final_state(code),
        sub_state=states.COMPLETED,
        completed=_end_time(end),
        exit_code=code,
        user_exit_code=end.user_code,
        diagnostics=words + more,
        peak_memory_mb=end.peak_memory_mb,
        cpu_seconds=end.cpu_seconds,
        gpu_percent=end.gpu_percent,
    )


def with_kept_exit(task: Task, end: TaskExit) -> Task:
    """Return a task whose failure was recorded while it was kept, with its final state."""
    return dataclasses.replace(
        task,
        state=states.FAILED,
        sub_state=states.COMPLETED,
        completed=_end_time(end),
        peak_memory_mb=end.peak_memory_mb,
        cpu_seconds=end.cpu_seconds,
        gpu_percent=end.gpu_percent,
    )


def with_cause(task: Task, end: TaskExit, log: bytes, secrets: dict[str, Any]) -> Task:
    """Return the failed task with the cause found in its log; an exit code of the platform has priority."""
    code, matched = find_cause(end.user_code or 0, log)
    return dataclasses.replace(
        task,
        exit_code=code if end.platform_code is None else end.platform_code,
        matched=mask_secrets(matched, secrets),
        log_end=mask_secrets(last_lines(log, LAST_LINES, LONGEST_END), secrets),
        cause=mask_secrets(_headline(log, end), secrets),
    )


def _headline(log: bytes, end: TaskExit) -> str:
    """Return the cause of a failure in one line, as `job.why` finds it; empty if nothing says so."""
    if end.platform_code is not None and end.reason:
        return end.reason
    found = causes.find_cause(last_lines(log, causes.READ_LINES, SEARCHED).splitlines(), end.user_code)
    return found.headline if found else ""


def _end_time(end: TaskExit) -> int:
    """Return when a task ended, by its engine's clock, but not in the future."""
    return min(end.ended or now(), now())


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


def mask_secrets(text: str, secrets: dict[str, Any]) -> str:
    """Replace every secret in the text by stars, the longest first."""
    for secret in sorted(set(_secret_texts(secrets)), key=len, reverse=True):
        text = text.replace(secret, STARS)
    return text


def _secret_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _secret_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _secret_texts(one)
    elif isinstance(value, (str, int, float)) and len(str(value)) >= _SHORTEST:
        yield str(value)


# The cause of a failure


# Lower-case words that a line must contain in this order; `*` at the end includes the rest of the line.
_PATTERNS = (
    (221, "tensorflow*resourceexhaustederror*oom*"),
    (221, "ran out of memory trying to allocate"),
    (222, "signal code: address not mapped*"),
    (223, "cuda_error_ecc_uncorrectable*"),
    (224, "cuda driver version is insufficient for cuda runtime version"),
    (225, "dropout supported only in cudnn v"),
    (226, "cuda runtime error 2 : out of memory"),
    (228, "unknown option"),
    (228, "bad argument #2 to *"),
    (228, "invalid argument:"),
    (228, "option -start_symbol has no default value"),
    (229, "perhaps your file is in a different file format"),
    (229, "exception occurred: error opening file"),
    (229, "unicodeencodeerror:"),
    (229, "unicodedecodeerror"),
    (229, "exception: unknown text header name"),
    (229, "exception: unknown label header name"),
    (229, "eoferror: ran out of input"),
    (229, "utils.lua:*input/output error"),
    (229, "errors.unknownerror:*input/output error"),
    (229, "cp: failed to close*input/output error"),
    (229, "exception occurred:*input/output error"),
    (230, "valueerror: restore called with invalid save path"),
    (231, "syntaxerror: invalid syntax"),
    (231, "unpicklingerror"),
    (231, "assign requires shapes of both tensors to match"),
    (231, "attributeerror:*has no attribute"),
    (231, "nameerror: name* is not defined"),
    (232, "importerror:*"),
    (233, "indexerror:*index out of range"),
    (234, "segmentation fault"),
    (235, "core dumped"),
)
_NOT_FOUND = (
    (exit_codes.COMMAND_NOT_FOUND, "command not found"),
    (exit_codes.COMMAND_NOT_FOUND, ": not found"),
)


def find_cause(user_code: int, log: bytes) -> tuple[int, str]:
    """Return the cluster's code for a command's exit code, and the text of the log that decided it.

    When a command fails, a cluster reads the end of the log and gives the failure the first code, from 220
    to 235, whose pattern it finds. These are the patterns that can match there, in its order.
    """
    code = exit_codes.from_user_code(user_code)
    if code not in (exit_codes.USER_FAILURE, exit_codes.COMMAND_NOT_FOUND):
        return code, ""
    lower = log.lower()
    for known, words in (*(_NOT_FOUND if user_code == NOT_FOUND else ()), *_PATTERNS):
        place = _find_words(lower, words.encode().split(b"*"))
        if place:
            return known, log[place][:LONGEST_MATCH].decode("utf-8", errors="replace")
    return exit_codes.USER_FAILURE, ""


def _find_words(log: bytes, words: list[bytes]) -> slice | None:
    """Return the part of the first line with these words, in linear time, unlike a regular expression."""
    first, *others = words
    start = log.find(first)
    while start >= 0:
        line_end = log.find(b"\n", start)
        line_end = line_end if line_end >= 0 else len(log)
        end = start + len(first)
        for word in others:
            place = log.find(word, end, line_end)
            if place < 0:
                break
            end = place + len(word)
        else:
            if others:  # the match is as long as possible
                end = log.rfind(others[-1], end - len(others[-1]), line_end) + len(others[-1])
            return slice(start, end)
        start = log.find(first, line_end)
    return None
