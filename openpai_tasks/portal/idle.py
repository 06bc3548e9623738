"""End the process when nobody has used the portal for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

IDLE_SECONDS = 30 * 60.0


class PortalActivity:
    """Requests in progress, and when the last one ended."""

    def __init__(self) -> None:
        self._open = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Count a request; a page that is followed live counts until it is closed."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return the time since the last request; 0 during one."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._last


def end_when_idle(activity: PortalActivity, seconds: float) -> None:
    """Watch in the background, and end the process once it is idle for so long."""

    def watch() -> None:
        while (idle := activity.idle_seconds()) < seconds:
            time.sleep(max(0.05, min(seconds - idle, 5.0)))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="idle", daemon=True).start()
