"""The cause of a failure, found in the command's log: the cluster's codes 220 to 235.

When a command fails, a cluster reads the end of the log and gives the failure the first code whose pattern it
finds. These are the patterns that can match there, in its order.
"""

from __future__ import annotations

import re

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import exit_codes

LONGEST_MATCH = 2048
NOT_FOUND = 127  # exit code of shells for an unknown command


@dataclass(frozen=True)
class _Pattern:
    """Lower-case words that the log must contain; with ``regex``, on a line that matches it."""

    code: int
    words: bytes
    regex: re.Pattern[bytes] | None = None

    def find(self, log: bytes) -> tuple[int, int] | None:
        """Return the position of the pattern in a log in lower case."""
        start = log.find(self.words)
        if start < 0:
            return None
        if self.regex is None:
            return start, start + len(self.words)
        match = self.regex.search(log)
        return match.span() if match else None


def _plain(code: int, *words: str) -> list[_Pattern]:
    return [_Pattern(code, one.encode()) for one in words]


def _line(code: int, words: str, regex: str) -> list[_Pattern]:
    return [_Pattern(code, words.encode(), re.compile(regex.encode()))]


_PATTERNS = (
    *_line(221, "resourceexhaustederror", r"tensorflow.*resourceexhaustederror.*oom.*"),
    *_plain(221, "ran out of memory trying to allocate"),
    *_line(222, "address not mapped", r"signal code: address not mapped.*"),
    *_line(223, "cuda_error_ecc_uncorrectable", r"cuda_error_ecc_uncorrectable.*"),
    *_plain(224, "cuda driver version is insufficient for cuda runtime version"),
    *_plain(225, "dropout supported only in cudnn v"),
    *_plain(226, "cuda runtime error 2 : out of memory"),
    *_plain(228, "unknown option"),
    *_line(228, "bad argument #2 to ", r"bad argument #2 to .*"),
    *_plain(228, "invalid argument:", "option -start_symbol has no default value"),
    *_plain(229, "perhaps your file is in a different file format"),
    *_plain(229, "exception occurred: error opening file", "unicodeencodeerror:", "unicodedecodeerror"),
    *_plain(229, "exception: unknown text header name", "exception: unknown label header name"),
    *_plain(229, "eoferror: ran out of input"),
    *_line(
        229,
        "input/output error",
        r"(?:utils\.lua:|errors\.unknownerror:|cp: failed to close|exception occurred:).*input/output error",
    ),
    *_plain(230, "valueerror: restore called with invalid save path"),
    *_plain(231, "syntaxerror: invalid syntax", "unpicklingerror"),
    *_plain(231, "assign requires shapes of both tensors to match"),
    *_line(231, "attributeerror:", r"attributeerror:.*has no attribute"),
    *_line(231, "nameerror: name", r"nameerror: name.* is not defined"),
    *_line(232, "importerror:", r"importerror:.*"),
    *_line(233, "indexerror:", r"indexerror:.*index out of range"),
    *_plain(234, "segmentation fault"),
    *_plain(235, "core dumped"),
)
_NOT_FOUND = _line(exit_codes.COMMAND_NOT_FOUND, "not found", r"(?:command|:) not found")


def recognise(user_code: int, log: bytes) -> tuple[int, str]:
    """Return the cluster's code for a command's exit code, and the text of the log that decided it."""
    code = exit_codes.from_user_code(user_code)
    if code not in (exit_codes.USER_FAILURE, exit_codes.COMMAND_NOT_FOUND):
        return code, ""
    lower = log.lower()
    for pattern in (*(_NOT_FOUND if user_code == NOT_FOUND else ()), *_PATTERNS):
        place = pattern.find(lower)
        if place:
            found = log[place[0] : place[1]][:LONGEST_MATCH]
            return pattern.code, found.decode("utf-8", errors="replace")
    return exit_codes.USER_FAILURE, ""
