"""Housekeeping of the embedded cluster: remove old finished jobs, and rotate the server's log."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.settings.keeping import KeepLimits

log = logging.getLogger(__name__)

FIRST_AFTER = 30.0  # seconds; a start has other things to do
EVERY = 600.0
LARGEST_LOG = 4 << 20
LOG, OLD_LOG = "server.log", "server.log.1"
STREAMS = (1, 2)  # stdout and stderr


class Housekeeper:
    """A thread that cleans up now and then."""

    def __init__(self, removal: JobRemoval, limits: KeepLimits, home: Path) -> None:
        self._removal, self._limits, self._home = removal, limits, home
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def clean(self) -> None:
        """Clean up once."""
        gone = self._removal.remove(self._removal.exceeding(self._limits))
        if gone:
            log.info("removed %d finished jobs beyond the limits of local.keep", len(gone))
        rotate_log(self._home)

    def _run(self) -> None:
        pause = FIRST_AFTER
        while not self._closing.wait(pause):
            pause = EVERY
            try:
                self.clean()
            except Exception:  # the next time may succeed
                log.exception("cannot clean up")


def rotate_log(home: Path, largest: int = LARGEST_LOG) -> bool:
    """Begin a new server.log if it has grown too large, and keep the one before it."""
    path = home / LOG
    try:
        is_ours = os.path.samestat(path.stat(), os.fstat(STREAMS[-1]))  # not if it is started by hand
        if not is_ours or path.stat().st_size <= largest:
            return False
        path.replace(home / OLD_LOG)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return False
    for stream in STREAMS:
        os.dup2(handle, stream)
    os.close(handle)
    return True
