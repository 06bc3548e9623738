"""What this folder knows of a sweep: ``./.openpai/sweeps/<cluster>/<name>.jsonl``, a line for each job.

The cluster has the last word on what is there; the record says which sweep a job belongs to, and its point.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.settings.home import make_private


@dataclass
class SweepRecord:
    """The jobs of one sweep that were submitted from this folder."""

    path: Path
    identity: str = ""
    points: dict[str, Point] = field(default_factory=dict)  # by the name of the job
    is_cut: bool = False  # its last line has no end

    def begin(self, identity: str) -> None:
        """Go on with the sweep of this name, which must be the same one."""
        if self.identity and self.identity != identity:
            words = f"a sweep named {self.path.stem!r} was begun with another command, image or sources"
            raise ConfigError(f"{words}; choose another --job-name")
        if not self.identity:
            self.identity = identity
            self._append({"identity": identity})

    def add(self, name: str, point: Point) -> None:
        self.points[name] = point
        self._append({"job": name, "point": point})

    def _append(self, line: dict[str, object]) -> None:
        make_private(self.path.parent)
        try:
            how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW  # the folder may not be the user's
            handle = os.open(self.path, how, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write("\n" * self.is_cut + json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as err:
            raise ConfigError(f"cannot write {self.path}: {err.strerror}") from err
        self.is_cut = False


def load(folder: Path, cluster: str, name: str) -> SweepRecord:
    """The record of a sweep; an empty one if there is none yet."""
    record = SweepRecord(folder / ".openpai" / "sweeps" / cluster / f"{name}.jsonl")
    try:
        text = record.path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return record
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {record.path}: {err}") from err
    record.is_cut = bool(text) and not text.endswith("\n")
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was cut off
        record.identity = told.get("identity", record.identity)
        if "job" in told:
            record.points[told["job"]] = told["point"]
    return record
