"""Local records of sweeps: ``./.openpai/sweeps/<cluster>/<name>.jsonl``, with a line for each job.

A record has the jobs of a sweep and their points; whether they exist, only the cluster knows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import LARGEST_LIST, read_limited, reason
from openpai_tasks.protocol.document.shape import Shape, first_mismatch
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.settings.home import make_private
from openpai_tasks.text.hints import option

MOST_SWEEPS = 100
"""Sweeps whose jobs are looked up at once."""
SHAPE: Shape = {"identity": (str,), "job": (str,), "point": ({"*": str},)}
"""A line of a record."""


@dataclass
class SweepRecord:
    """The jobs of a sweep that were submitted from this folder."""

    path: Path
    identity: str = ""
    points: dict[str, Point] = field(default_factory=dict)  # by job name
    is_cut: bool = False  # the last line is unfinished

    def begin(self, identity: str) -> None:
        """Start the sweep or continue it; raise if another sweep has this name."""
        if self.identity and self.identity != identity:
            message = f"sweep {self.path.stem!r} was started with another command, image or sources"
            raise ConfigError(f"{message}; choose another {option('job_name')}")
        if not self.identity:
            self.identity = identity
            self._append({"identity": identity})

    def add(self, name: str, point: Point) -> None:
        self.points[name] = point
        self._append({"job": name, "point": point})

    def _append(self, line: dict[str, object]) -> None:
        make_private(self.path.parent)
        try:
            how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW  # others may write to the folder
            handle = os.open(self.path, how, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write("\n" * self.is_cut + json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as err:
            raise ConfigError(f"cannot write {self.path}: {err.strerror}") from err
        self.is_cut = False


def list_sweeps(folder: Path, cluster: str) -> list[str]:
    """Return the names of the sweeps that were submitted from this folder, newest first."""
    found = [path for path in (folder / ".openpai" / "sweeps" / cluster).glob("*.jsonl") if path.is_file()]
    return [path.stem for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def recorded_jobs(folder: Path, cluster: str) -> dict[str, str]:
    """Return the sweep of each job that was submitted from this folder, of the newest sweeps."""
    found: dict[str, str] = {}
    for name in list_sweeps(folder, cluster)[:MOST_SWEEPS]:
        path = _path(folder, cluster, name)
        with contextlib.suppress(OSError, ConfigError):
            found |= dict.fromkeys(_recorded(folder, cluster, name, path.stat().st_mtime_ns), name)
    return found


@functools.lru_cache(MOST_SWEEPS)
def _recorded(folder: Path, cluster: str, name: str, modified: int) -> tuple[str, ...]:
    """Return the jobs in the record of a sweep as of its last change."""
    return tuple(load(folder, cluster, name).points)


def stamp(folder: Path, cluster: str, name: str) -> str:
    """Return a text that changes with the record of a sweep; empty if there is none."""
    path = _path(folder, cluster, name)
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{path.absolute()} {found.st_mtime_ns} {found.st_size}"


def _path(folder: Path, cluster: str, name: str) -> Path:
    return folder / ".openpai" / "sweeps" / cluster / f"{name}.jsonl"


def load(folder: Path, cluster: str, name: str) -> SweepRecord:
    """Load the record of a sweep; empty if there is none yet."""
    record = SweepRecord(_path(folder, cluster, name))
    try:
        text = read_limited(record.path, LARGEST_LIST)
    except FileNotFoundError:
        return record
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {record.path}: {reason(err)}") from err
    record.is_cut = bool(text) and not text.endswith("\n")
    for line in text.splitlines():
        try:
            entry = parse(line)
        except ValueError:
            continue  # the last line of an interrupted run
        if first_mismatch(entry, SHAPE):
            raise ConfigError(f"{record.path} is not a valid record of a sweep; remove it")
        record.identity = entry.get("identity", record.identity)
        if "job" in entry:
            record.points[entry["job"]] = entry.get("point", {})
    return record
