"""The cause of a failure, found in the command's log: the cluster's codes 220 to 235.

When a command fails, a cluster reads the end of the log and gives the failure the first code whose pattern it
finds. These are the patterns that can match there, in its order.
"""

from __future__ import annotations

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import exit_codes

LONGEST_MATCH = 2048
NOT_FOUND = 127  # exit code of shells for an unknown command


@dataclass(frozen=True)
class _Pattern:
    """Lower-case words that a line of the log must contain in this order."""

    code: int
    words: tuple[bytes, ...]
    is_whole: bool = False  # the match reaches to the end of the line

    def find(self, log: bytes) -> tuple[int, int] | None:
        """Return the position of the first match in a log in lower case."""
        start = log.find(self.words[0])
        while start >= 0:
            end = log.find(b"\n", start)
            end = end if end >= 0 else len(log)
            if match := self._in_line(log, start, end):
                return start, end if self.is_whole else match
            start = log.find(self.words[0], end)
        return None

    def _in_line(self, log: bytes, start: int, end: int) -> int:
        """Return where the last word ends, at its last occurrence; 0 if a word is missing."""
        at = start + len(self.words[0])
        for word in self.words[1:]:
            place = log.find(word, at, end)
            if place < 0:
                return 0
            at = place + len(word)
        return log.rfind(self.words[-1], start, end) + len(self.words[-1]) if self.words[1:] else at


def _plain(code: int, *words: str) -> list[_Pattern]:
    return [_Pattern(code, (one.encode(),)) for one in words]


def _line(code: int, *words: str, is_whole: bool = False) -> list[_Pattern]:
    return [_Pattern(code, tuple(one.encode() for one in words), is_whole)]


_PATTERNS = (
    *_line(221, "tensorflow", "resourceexhaustederror", "oom", is_whole=True),
    *_plain(221, "ran out of memory trying to allocate"),
    *_line(222, "signal code: address not mapped", is_whole=True),
    *_line(223, "cuda_error_ecc_uncorrectable", is_whole=True),
    *_plain(224, "cuda driver version is insufficient for cuda runtime version"),
    *_plain(225, "dropout supported only in cudnn v"),
    *_plain(226, "cuda runtime error 2 : out of memory"),
    *_plain(228, "unknown option"),
    *_line(228, "bad argument #2 to ", is_whole=True),
    *_plain(228, "invalid argument:", "option -start_symbol has no default value"),
    *_plain(229, "perhaps your file is in a different file format"),
    *_plain(229, "exception occurred: error opening file", "unicodeencodeerror:", "unicodedecodeerror"),
    *_plain(229, "exception: unknown text header name", "exception: unknown label header name"),
    *_plain(229, "eoferror: ran out of input"),
    *_line(229, "utils.lua:", "input/output error"),
    *_line(229, "errors.unknownerror:", "input/output error"),
    *_line(229, "cp: failed to close", "input/output error"),
    *_line(229, "exception occurred:", "input/output error"),
    *_plain(230, "valueerror: restore called with invalid save path"),
    *_plain(231, "syntaxerror: invalid syntax", "unpicklingerror"),
    *_plain(231, "assign requires shapes of both tensors to match"),
    *_line(231, "attributeerror:", "has no attribute"),
    *_line(231, "nameerror: name", " is not defined"),
    *_line(232, "importerror:", is_whole=True),
    *_line(233, "indexerror:", "index out of range"),
    *_plain(234, "segmentation fault"),
    *_plain(235, "core dumped"),
)
_NOT_FOUND = _plain(exit_codes.COMMAND_NOT_FOUND, "command not found", ": not found")


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
