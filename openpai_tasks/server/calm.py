"""A log that stays short in bad times: what comes in thousands is written once a minute."""

from __future__ import annotations

import errno
import logging
import resource
import time
from collections.abc import Callable

PAUSE = 60.0  # seconds
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Calm(logging.Filter):
    """One line instead of a traceback where files run out; complaints of the web server now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        if not kind:
            return True
        if self._clock() < self._next.get(kind, 0.0):
            return False
        self._next[kind] = self._clock() + PAUSE
        if kind == "descriptors":
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            record.msg = f"too many open files (the limit is {limit}): what needs one more has to wait"
            record.args, record.exc_info, record.exc_text = (), None, None
        return True


def _kind(record: logging.LogRecord) -> str:
    """What it is one of many of; nothing for a line that counts by itself."""
    cause = record.exc_info[1] if record.exc_info else None
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_DESCRIPTORS:
            return "descriptors"
        cause = cause.__cause__ or cause.__context__
    return f"{record.name} {record.msg}" if record.name.startswith("uvicorn") else ""
