"""Wait for events in the thread that Ctrl-C interrupts."""

from __future__ import annotations

import threading
import time

STEP = 0.02  # seconds


def wait_for_event(event: threading.Event, seconds: float) -> bool:
    """Wait until the event is set, up to a number of seconds; return whether it is set.

    Ctrl-C in ``Event.wait`` may leave the event's lock held, and the thread that sets it waits for ever.
    """
    limit = time.monotonic() + seconds
    while not event.is_set() and (left := limit - time.monotonic()) > 0:
        time.sleep(min(STEP, left))
    return event.is_set()
