"""The connection to an OpenPAI cluster: its generation, how users log in, and the logs of tasks."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urljoin

from openpai_tasks.backends.base import TaskLog
from openpai_tasks.backends.http import bodies, logins
from openpai_tasks.backends.http.connection import ServerConnection
from openpai_tasks.backends.http.retries import UNPAUSED, Policies
from openpai_tasks.backends.openpai.dialects import ApiDialect, dialect_of
from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.protocol import fields, routes
from openpai_tasks.protocol.models import JobInfo, TaskInfo

FILES = {"stdout": "user.pai.stdout", "stderr": "user.pai.stderr", "all": "user.pai.all"}
_LOG_MANAGER = re.compile(r"(/log-manager(?:/[^/]+:[0-9]+)?)/tail/")
_ON_NODE = re.compile(r"/log-manager/((?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})(/.*)", re.DOTALL)
_PAGES = "/containerlogs/"
_BEGINS = re.compile(r"<pre[^<>]*>", re.IGNORECASE)
_ENDS = ("</pre>", "</PRE>")
_CUT = "�"  # replaces a character whose last bytes have not been written yet


class LogEndpoints(ServerConnection):
    """A connection that knows the generation of the server, and reads logs."""

    label = "OpenPAI"

    @property
    def login_pauses(self) -> tuple[float, ...]:
        return logins.NO_PAUSES if self.polls_cheaply else logins.PAUSES

    @functools.cached_property
    def dialect(self) -> ApiDialect:
        """The rules of the cluster's generation; if it is unknown, ask the cluster once."""
        if not self.cluster.generation and self._learn:
            self.cluster = self._learn(self.cluster)
        return dialect_of(self.cluster.generation)

    def _base(self) -> str:
        _ = self.dialect  # learning about an unknown cluster may change its base URL
        return super()._base()

    def _log_in(self, user: str, password: str) -> dict[str, Any]:
        return self._object(
            "POST", routes.LOGIN_V1, auth=False, data={"username": user, "password": password}
        )

    def open_log(self, job: JobInfo, task: TaskInfo, stream: str, retries: bool = True) -> TaskLog:
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
        if is_page(url):
            yield from filter(None, [self._log_page(f"{url}?start={offset}", policies)])
            return
        headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
        exchange = self._exchange()
        sent = self._send("GET", url, policies=policies, headers=headers, stream=exchange, any_host=True)
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
        direct = on_node(uri) if is_plain and not self.cluster.prefix else ""
        return direct or self._absolute(uri)

    def _log_page(self, url: str, policies: Policies | None) -> bytes:
        """Return the log in a page; without ``start`` in its URL, a page shows only the last 4 KB."""
        response = self._send("GET", url, any_host=True, limit=bodies.LOG_PAGE, policies=policies)
        self._check(response)
        return text_of_page(response.body.decode("utf-8", "replace"))

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


class LogReader:
    """A ``TaskLog`` of OpenPAI, which has one address for each stream."""

    def __init__(
        self, calls: LogEndpoints, job: JobInfo, task: TaskInfo, stream: str, policies: Policies | None = None
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


def addresses(container_log: str) -> dict[str, str]:
    """Return the addresses of the complete logs by name; none if the server has to be asked for them.

    OpenPAI 0.18 has a log manager, which serves the end of a log under ``tail`` and all of it under ``full``.
    OpenPAI 0.14 has a page of YARN's NodeManager for each log, and no page for both streams together.
    """
    folder = container_log.rstrip("/")
    if _LOG_MANAGER.search(container_log):
        whole = _LOG_MANAGER.sub(r"\1/full/", folder, count=1)
        return {name: f"{whole}/{file}" for name, file in FILES.items()}
    if is_page(container_log):
        return {name: f"{folder}/{file}/" for name, file in FILES.items() if name != "all"}
    return {}


def on_node(uri: str) -> str:
    """Return the address of a log on its node for an address behind the reverse proxy, or ""."""
    found = _ON_NODE.fullmatch(uri)
    return f"http://{found[1]}{found[2]}" if found else ""


def is_page(url: str) -> bool:
    """Whether an address is an HTML page that shows a log."""
    return _PAGES in url


def text_of_page(source: str) -> bytes:
    """Return the log in such a page; empty if the page only reports that there is no log."""
    begins, end = _BEGINS.search(source), max(map(source.rfind, _ENDS))
    from html import unescape

    return unescape(source[begins.end() : end]).rstrip(_CUT).encode() if begins and end >= 0 else b""
