"""SIGTERM as an error that can be caught, so that what was begun is ended first."""

from __future__ import annotations

import contextlib
import signal
import threading


class Terminated(KeyboardInterrupt):
    """Whoever runs us wants us to end: `timeout`, Docker and batch systems say so by SIGTERM."""


@contextlib.contextmanager
def terminable():
    """Within it SIGTERM does as Ctrl-C does; where it is somebody else's to handle, nothing changes."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number, frame):
    signal.signal(number, signal.SIG_IGN)  # once is enough: what was begun is being cleared away
    raise Terminated
