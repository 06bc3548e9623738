"""The nodes of Slurm as they were last seen, also by an earlier server."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

from openpai_tasks.server.engines.process import write_file
from openpai_tasks.server.engines.slurm import programs
from openpai_tasks.server.engines.slurm.mirror import QueueMirror
from openpai_tasks.server.engines.slurm.programs import SlurmDown, SlurmRefusal

FRESH_SECONDS = 10.0  # that an answer is used
FIRST_SECONDS = 5.0  # that a new server waits for the first answer
AGAIN_SECONDS = 5.0  # before Slurm is asked again if it did not answer


class NodesCache:
    """Answers at once; Slurm is asked in a thread."""

    def __init__(self, path: Path, mirror: QueueMirror) -> None:
        """``path`` is a file for the last answer."""
        self._path, self._mirror = path, mirror
        self._text = self._saved()
        self.known = programs.parse_nodes(self._text)
        self._asked_at = float("-inf")
        self._closing = threading.Event()
        self._thread = self._ask()
        self._thread.join(FIRST_SECONDS)
        if self._asked_at < 0 and not mirror.trouble:
            mirror.note_down(SlurmDown(f"Slurm does not answer: no word for {FIRST_SECONDS:g} s"))

    def refresh(self) -> None:
        """Ask for news if the last answer is old."""
        if time.monotonic() - self._asked_at > FRESH_SECONDS and not self._thread.is_alive():
            self._thread = self._ask()

    def close(self) -> None:
        self._closing.set()

    def _ask(self) -> threading.Thread:
        thread = threading.Thread(target=self._ask_until_answered, name="slurm-nodes", daemon=True)
        thread.start()
        return thread

    def _ask_until_answered(self) -> None:
        while not self._closing.is_set():
            try:
                text = programs.node_list()
            except (SlurmDown, SlurmRefusal) as err:
                self._mirror.note_down(err)
                self._closing.wait(AGAIN_SECONDS)
                continue
            self._mirror.note_up()
            self.known, self._asked_at = programs.parse_nodes(text), time.monotonic()
            if text != self._text:
                self._text = text
                with contextlib.suppress(OSError):
                    write_file(self._path, text)
            return

    def _saved(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
