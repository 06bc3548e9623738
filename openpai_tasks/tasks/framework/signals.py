"""SIGTERM as an exception, so that commands can clean up before they exit."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which `timeout`, Docker and batch systems send to end a program."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C inside the block, unless the caller has installed a handler already."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleanup
    raise Terminated
