"""The log of one task, read incrementally."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from openpai_tasks.backends.http.retries import Policies
from openpai_tasks.backends.openpai.log_addresses import addresses
from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.protocol.models import JobInfo, TaskInfo


class LogCalls(Protocol):
    """The calls of a connection that are needed to read logs."""

    def log_locations(
        self, key: str, attempt: int, role: str, index: int, retry: int, policies: Policies | None = None
    ) -> dict[str, str]: ...

    def read_log(self, uri: str, offset: int = 0, policies: Policies | None = None) -> Iterator[bytes]: ...


class LogReader:
    """A ``TaskLog`` of OpenPAI, which has one address for each stream."""

    def __init__(
        self, calls: LogCalls, job: JobInfo, task: TaskInfo, stream: str, policies: Policies | None = None
    ) -> None:
        self._calls, self._stream, self._policies = calls, stream, policies
        self._where = (job.key, job.attempt, task.role, task.index, task.attempt)
        self._known = addresses(task.log)  # these servers need not be asked
        self._uris: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        self.is_absent = False

    def read(self) -> Iterator[bytes]:
        self._uris = self._uris or self._find()
        try:
            yield from self._grown()
        except ApiError:
            if self._known:
                raise
            self._uris = self._find()  # addresses expire after two minutes
            yield from self._grown()

    def rewind(self) -> None:
        self._offsets.clear()

    def _grown(self) -> Iterator[bytes]:
        for name, uri in self._uris.items():
            with contextlib.suppress(*[NotFound] if self._known else []):  # the file has not been written yet
                for data in self._calls.read_log(uri, self._offsets.get(name, 0), self._policies):
                    self._offsets[name] = self._offsets.get(name, 0) + len(data)
                    yield data

    def _find(self) -> dict[str, str]:
        """Return the addresses of the logs that make up the stream; empty while there is no log."""
        try:
            found = self._known or self._calls.log_locations(*self._where, self._policies)
        except NotFound:
            self.is_absent = True
            return {}
        self.is_absent = False
        one_by_one = self._stream == "all" and "all" not in found
        streams = ["stdout", "stderr"] if one_by_one else [self._stream]
        names = [name for stream in streams for name in (f"{stream}.1", stream) if name in found]
        for name in names:
            # The log was rotated: the bytes read before are in this file now.
            if name.endswith(".1") and name not in self._offsets:
                self._offsets[name] = self._offsets.pop(name.removesuffix(".1"), 0)
        return {name: found[name] for name in names}
