"""Where the logs of tasks are, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

from openpai_tasks.backends.http import bodies
from openpai_tasks.backends.http.retries import UNPAUSED, Policies
from openpai_tasks.backends.openpai import log_addresses
from openpai_tasks.backends.openpai.transport import OpenPaiConnection
from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.protocol import fields

if TYPE_CHECKING:
    from openpai_tasks.backends.base import TaskLog
    from openpai_tasks.protocol.models import JobInfo, TaskInfo


class LogEndpoints(OpenPaiConnection):
    """The part of a client that reads logs."""

    def open_log(self, job: JobInfo, task: TaskInfo, stream: str, retries: bool = True) -> TaskLog:
        from openpai_tasks.backends.openpai.log_reader import LogReader

        return LogReader(self, job, task, stream, None if retries else UNPAUSED)

    def log_locations(
        self, key: str, attempt: int, role: str, index: int, retry: int, policies: Policies | None = None
    ) -> dict[str, str]:
        """Return the addresses of a task's logs by name; the addresses are short-lived."""
        where: dict[str, str | int] = {"job": key, "attempt": attempt, "role": role, "index": index}
        if not self.dialect.task_logs:
            raise NotFound(f"{self._where()} gives no address for the output of {role}-{index}", 404)
        path = self._path(self.dialect.task_logs, task_attempt=retry, **where)
        rows = fields.rows(self._object("GET", path, policies=policies).get("locations"))
        found = {fields.text(log.get("name")): fields.text(log.get("uri")) for log in rows}
        return {name: uri for name, uri in found.items() if name and uri}

    def read_log(self, uri: str, offset: int = 0, policies: Policies | None = None) -> Iterator[bytes]:
        """Yield the bytes of a log from ``offset`` on, or nothing if it has not grown; no token is sent."""
        url = self._log_url(uri)
        if log_addresses.is_page(url):
            yield from filter(None, [self._log_page(log_addresses.page(url, offset), policies)])
            return
        headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
        exchange = self._exchange()
        sent = self._send("GET", url, policies=policies, headers=headers, stream=exchange, abroad=True)
        with sent as response:
            if response.status_code == 416:
                return
            self._check(response)
            skip = 0 if response.status_code == 206 else offset
            for chunk in self._pieces(response, exchange):
                yield from filter(None, [chunk[skip:]])
                skip = max(0, skip - len(chunk))

    def _log_url(self, uri: str) -> str:
        """Return the URL of a log: behind the reverse proxy, or on its node if there is no proxy."""
        is_plain = self.cluster.uri.startswith("http://")
        direct = log_addresses.on_node(uri) if is_plain and not self.cluster.prefix else ""
        return direct or self._absolute(uri)

    def _log_page(self, url: str, policies: Policies | None) -> bytes:
        response = self._send("GET", url, abroad=True, limit=bodies.LOG_PAGE, policies=policies)
        self._check(response)
        return log_addresses.text_of_page(response.body.decode("utf-8", "replace"))

    def _absolute(self, address: str) -> str:
        """Return the full URL of an address in an answer, which may be relative to the server's root."""
        try:
            return urljoin(self._root + "/", address)
        except ValueError as err:
            shown = mask_keys(address)[:80]
            raise ApiError(f"{self._where()} gives an invalid address: {shown!r}") from err

    def _path(self, path: str, **values: str | int) -> str:
        """Fill the values into a path of the API."""
        return path.format(
            **{name: quote(str(value), safe="~", errors="replace") for name, value in values.items()}
        )
