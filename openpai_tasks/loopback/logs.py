"""What a server prints to its log: one line a minute about a lack of space, descriptors or memory."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable

from openpai_tasks.files import shortages

PAUSE = 60.0  # seconds


def start() -> None:
    """Print messages of this process to its log."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.raiseExceptions = False  # when the disk is full, messages are lost
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())


class RepeatFilter(logging.Filter):
    """Limits messages that may occur thousands of times to one per minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        shortage = shortages.find_shortage(record.exc_info[1] if record.exc_info else None)
        if shortage:
            record.msg, record.args = _describe(record, shortage), ()
            record.exc_info = record.exc_text = None
        elif not record.name.startswith("uvicorn"):
            return True
        kind = f"{record.name} {record.msg}" if not shortage else record.msg
        if self._clock() < self._next.get(kind, 0.0):
            return False
        self._next[kind] = self._clock() + PAUSE
        return True


def _describe(record: logging.LogRecord, shortage: BaseException) -> str:
    """Return the message about a shortage in one line."""
    if isinstance(shortage, OSError) and shortage.errno in shortages.NO_DESCRIPTORS:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files (the limit is {limit}): new connections have to wait"
    return f"{record.getMessage()}: {shortages.describe(shortage)}"
