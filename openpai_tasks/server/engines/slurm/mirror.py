"""The queue of Slurm as it was last seen, and whether Slurm answers at all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from openpai_tasks.errors import PaiError
from openpai_tasks.server.engines.process import write_file
from openpai_tasks.server.engines.slurm import batches, programs
from openpai_tasks.server.engines.slurm.programs import QueueRow, SlurmDown, SlurmRefusal

LOOK_SECONDS = 0.8  # between two looks while something changes; the scheduler polls every second
LOOK_LATEST = 5.0  # between two looks if nothing changes, to spare the controller
PAUSE_SECONDS = 5.0  # before Slurm is asked again if it did not answer


class QueueMirror:
    """One ``squeue`` for all tasks, and not for every poll."""

    def __init__(self, trouble_file: Path, folder: Path) -> None:
        """``trouble_file`` exists while Slurm does not answer, and has the reason; see ``is_of_other``."""
        self._trouble_file, self._folder = trouble_file, folder
        self.rows: Mapping[str, QueueRow] = {}
        self.trouble = ""  # why Slurm does not answer
        self._states: dict[str, str] = {}
        self._look_at = self._ask_again_at = float("-inf")
        self._interval = LOOK_SECONDS

    def is_of_other(self, row: QueueRow, name: str) -> bool:
        return batches.is_of_other(row, name, self._folder)

    def poll_soon(self) -> None:
        """Look again with the next poll, as something will change."""
        self._look_at, self._interval = float("-inf"), LOOK_SECONDS

    def refresh(self) -> bool:
        """Ask Slurm if it is time to; return whether ``rows`` are new."""
        if time.monotonic() < self._look_at or self.is_pausing:
            return False
        try:
            self.rows = programs.queue()
        except (SlurmDown, SlurmRefusal) as err:
            self.note_down(err)
            return False
        self.note_up()
        seen = {id: row.state for id, row in self.rows.items()}
        self._interval = LOOK_SECONDS if seen != self._states else min(self._interval * 1.5, LOOK_LATEST)
        self._states, self._look_at = seen, time.monotonic() + self._interval
        return True

    @property
    def is_pausing(self) -> bool:
        return time.monotonic() < self._ask_again_at

    def check_answering(self) -> None:
        if self.is_pausing:
            raise SlurmDown(self.trouble)

    def note_down(self, err: PaiError) -> None:
        """Note that Slurm does not answer; each further question would take many seconds."""
        if not self.is_pausing:
            self.trouble, self._ask_again_at = str(err), time.monotonic() + PAUSE_SECONDS
            with contextlib.suppress(OSError):
                write_file(self._trouble_file, f"{self.trouble}\n")

    def note_up(self) -> None:
        self.trouble, self._ask_again_at = "", float("-inf")
        with contextlib.suppress(OSError):
            self._trouble_file.unlink(missing_ok=True)
