"""Find the cause of a failure in the last lines of a program's output and in its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from openpai_tasks.causes.boxes import without_boxes
from openpai_tasks.causes.table import (
    CAUSES,
    MISSING_COMMAND,
    MISSING_FILE,
    OTHERS,
    RUNTIME,
    Cause,
)
from openpai_tasks.causes.tracebacks import LONGEST, last_traceback, shorten, task_paths_removed
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.plain import one_line

READ_LINES = 1000
"""The last lines of output among which the cause is looked for."""
SEARCHED_LINES = 40
"""The last of these in which any row of the table counts, not only tracebacks and errors of the shell."""
LONGEST_LINE = 1000
CRASHES = frozenset({132, 135, 136, 137, 139})
"""Exit codes of programs that had no time to print a traceback: one in the output is older."""
_SHELL = re.compile(
    r"(?:[^:\s]{1,300}: (?:line )?\d{1,9}|(?:/\S{1,20}/)?(?:ba|da|z)?sh): (?:-c: line \d{1,9}: )?(.+)"
)
_SHELL_WORDS = (
    *("not found", "No such file", "Permission denied", "cannot execute", "syntax error", "unexpected E"),
    *("unbound variable", "parameter not set", "bad interpreter", "Exec format", "nterminated quoted"),
)
_NO_SCRIPT = re.compile(r"\S{1,300}: ((?:can't open file|No module named) .+)")
_NO_MODULE = re.compile(r"\S{1,300}: Error while finding module .{1,300} \(\w+: (No module named .+)\)")
_HARMLESS = re.compile(r"(?<!NCCL )(?<!=)\b(?:WARN(?:ING)?|INFO|DEBUG|NOTE)\b|[Ww]arning:|[Dd]eprecated")
_NO_MESSAGE = re.compile(r"\s|\{|\[[\d\"{]|.*\b(?:0|[Nn]o|without) (?:errors?|fail\w{1,4}|problems?)\b")
"""Last lines that report no failure: code below a warning, JSON, and summaries of success."""


@dataclass(frozen=True)
class FoundCause:
    """The headline, the row of the table if there is one, and what its pattern has found.

    ``file`` is the file of the user's own sources in which a Python program failed.
    """

    headline: str
    row: Cause | None = None
    groups: tuple[str, ...] = ("",)
    file: str = ""

    @property
    def advice(self) -> str:
        return self.row.advise(self.groups) if self.row else ""


def find_cause(lines: Sequence[str], exit_code: int | None = None) -> FoundCause | None:
    """Return why a command failed; None if neither its output nor its exit code says so."""
    plain = without_boxes([line[:LONGEST_LINE] for line in lines[-READ_LINES:]])
    found = _in_output(plain, exit_code) or cause_of_code(exit_code)
    return found or (_last_message(plain) if exit_code else None)


def cause_of_code(code: int | None) -> FoundCause | None:
    """Return what an exit code, of a command or of the platform, means by itself."""
    for row in CAUSES:
        if code in row.codes:
            return FoundCause(
                row.headline or f"{row.title[0].lower()}{row.title[1:]} (exit code {code})", row
            )
    return None


def _in_output(last: Sequence[str], exit_code: int | None) -> FoundCause | None:
    traceback = None if exit_code in CRASHES else last_traceback(last)
    for line in last[: traceback.at if traceback else None : -1]:
        if words := _shell_error(line):
            return _explain(words, words)
        if found := _last_match(RUNTIME, [line]):
            return found
    found, lines = None, last[-SEARCHED_LINES:]
    if traceback:
        found = _explain(traceback.exception, str(traceback), traceback.place[0])
        if found.row is MISSING_FILE and traceback.is_start_of_program and "/" not in found.groups[0]:
            found = replace(found, row=MISSING_COMMAND)
        if found.row or not traceback.is_consequence:
            return found
        lines = [*last[: traceback.start][-SEARCHED_LINES:], *last[traceback.at + 1 :]]
    recent = [line for line in reversed(lines) if not _HARMLESS.search(line)]
    others = OTHERS[:-2] if exit_code in CRASHES else OTHERS[:-1]
    return _last_match(CAUSES[: -len(OTHERS)], recent) or found or _last_match(others, recent)


def _explain(line: str, headline: str, file: str = "") -> FoundCause:
    """Return the cause that a line names, and the row that matches it except for the last two, vague ones."""
    for row in CAUSES[:-2]:
        if groups := row.search(line):
            return FoundCause(_clean(headline), row, groups, file)
    return FoundCause(_clean(headline), file=file)


def _last_match(rows: Sequence[Cause], backwards: Iterable[str]) -> FoundCause | None:
    for line in backwards:
        for row in rows:
            if groups := row.search(line):
                return FoundCause(_clean(row.headline.format(*groups) or line.strip()), row, groups)
    return None


def _last_message(lines: Sequence[str]) -> FoundCause | None:
    """Return the last line of the output if it reports a failure, as that of ``sys.exit("no data")`` does."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    if len(last) > LONGEST or _NO_MESSAGE.match(last) or _HARMLESS.search(last):
        return None
    return _last_match(OTHERS[-1:], [last]) if " " in last.strip() else None


def _shell_error(line: str) -> str:
    """Return an error of a shell, or of Python about its script, without what precedes it."""
    found = _SHELL.fullmatch(line)
    if found and any(word in found[1] for word in _SHELL_WORDS):
        return found[1]
    script = _NO_SCRIPT.fullmatch(line) or _NO_MODULE.fullmatch(line)
    return script[1] if script else ""


def _clean(headline: str) -> str:
    return one_line(shorten(task_paths_removed(headline), LONGEST))
