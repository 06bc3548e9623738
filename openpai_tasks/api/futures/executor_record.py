"""Records of executors: ``~/.openpai/executors/<name>.jsonl``, private to the user.

The first line has the cluster, the storage and the key of the results. Others have the calls of some jobs and
what is needed to submit them, and are written before that; or the name of a job that was submitted. Lines are
only added, each with one write: a program that is killed leaves at most a last line that is cut, which is
ignored. The program that submits the jobs locks the record until it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import IO, Any

from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.home import home, make_private

FORMAT = 1
SUBMITTED = "submitted"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")


@dataclass(frozen=True)
class ExecutorFacts:
    """What is needed to find and read the results of an executor."""

    cluster: str
    mark: str  # which cluster that was, as aliases can change
    user: str
    storage: str
    workspace: str
    key: str = field(repr=False)
    max_jobs: int | None = None
    tags: tuple[str, ...] = ()
    format: int = FORMAT


@dataclass(frozen=True)
class RecordedBundle:
    """Jobs with their calls, the document that they share, and the archive of their calls on the storage.

    The document is empty if it contains secrets of the user; these jobs cannot be submitted later.
    """

    jobs: Mapping[str, list[int]]
    document: str = field(default="", repr=False)
    placeholder: str = ""
    archive: str = ""  # SHA-256


class ExecutorRecord:
    """The record of one executor."""

    def __init__(self, name: str, facts: ExecutorFacts) -> None:
        self.name, self.facts = name, facts
        self.bundles: list[RecordedBundle] = []
        self.submitted: set[str] = set()
        self._held: IO[bytes] | None = None

    @classmethod
    def create(cls, name: str, facts: ExecutorFacts) -> ExecutorRecord:
        """Start a record; raise if there is one of that name."""
        record, path = cls(name, facts), _path(name)
        make_private(path.parent)
        try:
            record._write(asdict(facts), os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            ways = f"PaiExecutor.attach({name!r}) collects its results; name={name + '-$'!r} makes a new one"
            raise ConfigError(f"an executor named {name!r} exists: {ways}") from None
        except ConfigError:  # the disk is full: leave no record that nobody can read
            path.unlink(missing_ok=True)
            raise
        record._held = path.open("rb")
        fcntl.flock(record._held, fcntl.LOCK_SH)
        return record

    @classmethod
    def load(cls, name: str) -> ExecutorRecord:
        """Read the record of an earlier executor."""
        path = _path(name)
        try:
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a cut line has no end
        except FileNotFoundError:
            raise NotFound(f"no executor named {name!r} was started here (looked for {path})", 404) from None
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"cannot read {path}: {err}") from err
        try:
            first, *others = map(json.loads, lines)
            record = cls(name, ExecutorFacts(**first))
            record.bundles = [RecordedBundle(**line) for line in others if SUBMITTED not in line]
            record.submitted = {line[SUBMITTED] for line in others if SUBMITTED in line}
        except (ValueError, TypeError) as err:
            raise ConfigError(f"{path} is not a valid record of an executor; remove it") from err
        return record

    def add(self, bundle: RecordedBundle) -> None:
        """Record jobs and their calls, before they are submitted."""
        self._write(asdict(bundle))

    def mark_submitted(self, job: str) -> None:
        """Record that a job was submitted."""
        self._write({SUBMITTED: job})

    @property
    def is_held(self) -> bool:
        """Whether the program that started the executor may still submit its jobs."""
        try:
            with _path(self.name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def release(self) -> None:
        """End the lock: all jobs are submitted."""
        if self._held:
            self._held.close()

    def remove(self) -> None:
        """Remove the record of an executor that has given out all results."""
        with contextlib.suppress(OSError):
            _path(self.name).unlink()

    def _write(self, line: Mapping[str, Any], how: int = 0) -> None:
        path = _path(self.name)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | how, 0o600)
            with os.fdopen(handle, "ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
        except FileExistsError:
            raise
        except OSError as err:
            raise ConfigError(f"cannot write {path}: {err.strerror}") from err


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"invalid name of an executor {name!r}: use letters, digits, _ and -")
    return home() / "executors" / f"{name}.jsonl"
