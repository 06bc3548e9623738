"""Read how an attempt of a job ended from the exit fields of its status.

Servers since 0.18 dump the pod's final status as YAML into ``appExitDiagnostics``. It contains the report of
the container's runtime, with the user's stderr, as text. It may be cut off anywhere, or be plain text.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import mapping, rows, text, whole

LARGEST = 1 << 15  # characters of a dump that are read
MOST_LINES, LONGEST_LINE = 20, 500  # of a log
LONGEST_SUMMARY = 200

# Compiled on first use, as some take long and few commands need them.
_IS_DUMP = r"matched:|containers:|errorLogs:|origin(?:al)?UserExitCode:"
_REPORT = r"(?s)\[PAI_RUNTIME_ERROR_START\](.*?)(?:\[PAI_RUNTIME_ERROR_END\]|\Z)"
_NOT_YAML = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
_HALF_ESCAPE = r"(?<!\\)\\+(?:[xuU][0-9A-Fa-f]{0,7})?\Z"
_CLOSERS = ("", '"', '"}]}')
_OWN_CODE = r"originUserExitCode:\s*(-?[0-9]{1,9})"
_EXITED = r"\b(?:exited with code |was ended by SIG\w+ \(exit code )([0-9]{1,3})\b"
_COLOURS = r"\x1b\[[0-9;?]*[A-Za-z]"


@dataclass(frozen=True)
class Diagnostics:
    """How an attempt ended; fields that the server leaves out are empty."""

    phrase: str = ""  # the platform's name for the exit code
    reason: str = ""  # what the exit code means
    solutions: tuple[str, ...] = ()
    trigger: str = ""  # why this ended the attempt
    exit_code: int | None = None  # of the command, which the platform may have replaced
    text: str = ""  # description of this particular end
    matched: str = ""  # the output by which the platform recognised the failure
    user_log: tuple[str, ...] = ()  # the last lines of the command's output
    platform_log: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """A one-line summary."""
        if self.text:
            return _shorten(self.text)
        code = "" if self.exit_code is None else f"exit code {self.exit_code}"
        head = f"{code} ({self.phrase})" if code and self.phrase else code or self.phrase
        last = _first_line(self.matched.splitlines()[::-1]) or _first_line(self.user_log[::-1])
        return _shorten(": ".join(filter(None, (head, last or self.reason))) or self.trigger)


def read(status: Mapping[str, Any]) -> Diagnostics:
    """Read the exit fields of a ``jobStatus``; any of them may be missing."""
    dump = status.get("appExitDiagnostics")
    words = dump if isinstance(dump, str) else ""
    runtime = mapping(mapping(status.get("appExitMessages")).get("runtime"))
    if words and re.search(_IS_DUMP, words[:LARGEST]):
        pod = _parse(words)
        runtime = runtime or (_report(pod) if pod else _unparsed(words))
        words = _describe_pod(pod)
    spec, logs = mapping(status.get("appExitSpec")), mapping(runtime.get("errorLogs"))
    solutions = spec.get("solution")
    return Diagnostics(
        phrase=text(spec.get("phrase")),
        reason=text(spec.get("reason")),
        solutions=tuple(filter(None, map(text, solutions if isinstance(solutions, list) else [solutions]))),
        trigger=text(status.get("appExitTriggerMessage")),
        exit_code=whole(runtime.get("originUserExitCode", runtime.get("originalUserExitCode"))),
        text=text(runtime.get("reason")) or _clean(words[:LARGEST]).strip(),
        matched=_clean(text(runtime.get("matchedUserLogString"))),
        user_log=_lines(logs.get("user")),
        platform_log=_lines(logs.get("platform", logs.get("runtime"))),
    )


@functools.lru_cache(maxsize=4096)  # a watched job is read again and again, and dumps take long to parse
def own_exit_code(words: str) -> int | None:
    """Return the exit code of a task's command from the text about its end, if that has it."""
    found = read({"appExitDiagnostics": words}).exit_code
    named = re.search(_EXITED, words) if found is None else None
    return int(named[1]) if named else found


# The dump


def _parse(dump: str) -> dict[str, Any]:
    """Parse the mapping in a dump, also after leading text; empty if there is none."""
    bounded = _clean(dump[:LARGEST])
    for candidate in (bounded, bounded.partition("matched:")[2]):
        found = mapping(_load(candidate))
        matched = (mapping(value) for key, value in found.items() if key.endswith("matched"))
        if found:
            return {**found, **next(matched, {})}
    return {}


def _load(dump: str) -> Any:
    """Parse YAML that may be cut off in a quoted string or in the middle of a line."""
    from openpai_tasks.protocol.yaml import reader  # loads PyYAML, which few answers need

    ends = (re.sub(_HALF_ESCAPE, "", dump) + closer for closer in _CLOSERS)
    for candidate in (*ends, dump.rpartition("\n")[0]):
        with contextlib.suppress(ProtocolError):
            return reader.read(candidate).value
    return None


def _report(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the report of the container's runtime, in the dump itself or in a container's message."""
    if "errorLogs" in pod or "originUserExitCode" in pod:
        return pod
    found = mapping(pod.get("runtime"))
    for message in (text(one.get("message")) for one in rows(pod.get("containers"))):
        report = re.search(_REPORT, message)
        found = found or (mapping(_load(report[1].strip("\n"))) if report else {})
    return found


def _unparsed(dump: str) -> dict[str, Any]:
    """Return the same for a dump that cannot be parsed, with its last lines as the log."""
    code = re.search(_OWN_CODE, dump[:LARGEST])
    return {**({"originUserExitCode": code[1]} if code else {}), "errorLogs": {"user": dump[:LARGEST]}}


def _describe_pod(pod: dict[str, Any]) -> str:
    """Return why the pod or one of its containers ended, if there is no report."""
    for one in (pod, *rows(pod.get("containers"))):
        reason, message = text(one.get("reason")), text(one.get("message"))
        message = "" if re.search(_REPORT, message) else message
        if message or reason not in ("", "Error"):
            return ": ".join(filter(None, (reason, message)))
    return ""


# Values of unknown types


def _lines(value: Any) -> tuple[str, ...]:
    """Return the last lines of a log, each cut to a length that fits a screen."""
    lines = _clean(text(value)[-LARGEST:]).rstrip().splitlines()[-MOST_LINES:]
    return tuple(line.rstrip()[:LONGEST_LINE] for line in lines)


def _clean(words: str) -> str:
    return words and re.sub(_NOT_YAML, " ", re.sub(_COLOURS, "", words))  # most jobs have none


def _first_line(lines: Iterable[str]) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in lines if line.strip()), "")


def _shorten(words: str) -> str:
    line = " ".join(_first_line(words[:LARGEST].splitlines()).split())
    return line if len(line) <= LONGEST_SUMMARY else line[: LONGEST_SUMMARY - 1] + "…"
