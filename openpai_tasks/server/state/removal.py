"""Remove finished jobs that are too old, too many or too large; outputs on a storage are never touched.

The newest jobs are kept longest. Jobs with the tag ``keep`` are never removed, and do not count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from openpai_tasks.files.removal import discard
from openpai_tasks.protocol import states
from openpai_tasks.server.state.state import REMOVED, State, folder_name, now
from openpai_tasks.settings.keeping import KeepLimits

KEEP = "keep"
_FINISHED = f"state IN ({', '.join(repr(state) for state in sorted(states.FINAL))})"
_LEAST_FREE = 256  # pages of the database
_FREE_SHARE = 4  # shrink it if a quarter of it is free


class RemovableJob(NamedTuple):
    """A job that exceeds a limit."""

    key: str
    completed: int
    size: int


class JobRemoval:
    """Finds and removes the jobs that limits exclude."""

    def __init__(self, state: State) -> None:
        self._state, self._database = state, state.database

    def exceeding(self, limits: KeepLimits) -> list[RemovableJob]:
        """Return the jobs that exceed a limit, oldest first."""
        self._measure()
        before = now() - 1000 * limits.seconds if limits.seconds is not None else None
        number = size = 0
        found = []
        for job in self._finished():
            number, size = number + 1, size + job.size
            too_many = limits.jobs is not None and number > limits.jobs
            too_large = limits.size is not None and size > limits.size and number > 1
            if too_many or too_large or (before is not None and job.completed < before):
                found.append(job)
        return found[::-1]

    def remove(self, jobs: list[RemovableJob]) -> list[RemovableJob]:
        """Remove the jobs, and return those that were there and still finished; shrink the database."""
        gone = [job for job in jobs if self._remove_if_unchanged(job)]
        discard(self._state.folder / REMOVED)  # also what an earlier server has left behind
        if gone:
            self._database.shrink(_LEAST_FREE, _FREE_SHARE)
        return gone

    def _remove_if_unchanged(self, job: RemovableJob) -> bool:
        """Remove the job unless it was started again meanwhile."""
        with self._database.transaction():
            found = self._state.job(job.key)
            is_same = found is not None and found.completed == job.completed
            return is_same and self._state.remove(job.key)

    def _finished(self) -> Iterator[RemovableJob]:
        """Yield the jobs that may be removed, newest first."""
        rows = self._database.rows(
            "SELECT key, completed, bytes FROM jobs JOIN job_sizes ON job = key"
            f" WHERE {_FINISHED} AND key NOT IN (SELECT job FROM tags WHERE tag = ?)"
            " ORDER BY completed DESC, queued DESC",
            [KEEP],
        )
        return (RemovableJob(row["key"], row["completed"], row["bytes"]) for row in rows)

    def _measure(self) -> None:
        """Note the size of jobs that have finished since the last time."""
        unknown = f"{_FINISHED} AND key NOT IN (SELECT job FROM job_sizes)"
        for row in self._database.rows(f"SELECT key FROM jobs WHERE {unknown}"):
            size = _bytes_on_disk(self._state.folder / folder_name(row["key"]))
            self._database.write(
                f"INSERT OR REPLACE INTO job_sizes SELECT key, ? FROM jobs WHERE key = ? AND {_FINISHED}",
                [size, row["key"]],
            )


def _bytes_on_disk(folder: Path) -> int:
    """Return the disk usage of the folder, without following links."""
    total, left = 0, [str(folder)]
    while left:  # os.walk is recursive before Python 3.12, and jobs can nest folders
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:  # removed meanwhile, or its path is too long
            continue
    return total
