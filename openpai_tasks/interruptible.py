"""Waiting for an event in the thread that Ctrl-C interrupts."""

from __future__ import annotations

import threading
import time

STEP = 0.02  # seconds


def nap(event: threading.Event, seconds: float) -> bool:
    """Wait until the event is set, but no longer than so many seconds; whether it is set.

    A Ctrl-C in ``Event.wait`` may come just when the event is locked, and leave it so: whoever sets it then
    waits for ever.
    """
    limit = time.monotonic() + seconds
    while not event.is_set() and (left := limit - time.monotonic()) > 0:
        time.sleep(min(STEP, left))
    return event.is_set()
