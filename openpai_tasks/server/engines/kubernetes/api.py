"""The API of Kubernetes over the Unix socket of ``kubectl proxy``, for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import h11

from openpai_tasks.errors import PaiError
from openpai_tasks.protocol.fields import MALFORMED
from openpai_tasks.protocol.json_text import parse

ANSWER_SECONDS = 60.0
LARGEST = 256 << 20  # bytes of one answer
LONGEST_LINE = 8 << 20  # bytes of an object in a watch
READ = 1 << 16
PAGE = 500  # objects in one answer to a list
REQUESTS = 20  # at the same time, besides those that follow something
PROXY_AWAY = "kubectl proxy cannot be reached"
FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 403, 404, 409, 410

_MAY_CHANGE = re.compile(r'exceeded quota|status unknown for quota|" cannot \w{1,20} resource "')
"""Refusals that may end: the use of a new quota, and all permissions after a start of the API server, are
unknown at first."""


class KubeError(PaiError):
    """Raised for an answer of the API that is an error; ``code`` is 0 if there was no answer."""

    def __init__(self, message: str, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.already_exists = reason == "AlreadyExists"
        # It cannot be reached or is overloaded, two requests have changed a quota at once, or the user has to
        # log in again.
        is_conflict = code == CONFLICT and not self.already_exists
        self.may_pass = code in (0, 401, 408, 429) or code >= 500 or is_conflict
        self.may_be_allowed = code == FORBIDDEN and may_be_allowed(message)


def may_be_allowed(message: str) -> bool:
    """Whether what was forbidden may be allowed later, since quotas and permissions change."""
    return _MAY_CHANGE.search(message) is not None


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise KubeError if the code inside fails because an answer does not have the expected fields."""
    try:
        yield
    except MALFORMED as err:
        raise KubeError(f"unexpected answer of Kubernetes: {type(err).__name__}: {err}") from err


def path(namespace: str, kind: str, name: str = "", part: str = "", **query: str | int) -> str:
    """Return the path of objects in a namespace, or of one of them."""
    found = f"/api/v1/namespaces/{quote(namespace)}/{kind}" + (f"/{quote(name)}" if name else "")
    return found + (f"/{part}" if part else "") + (f"?{urlencode(query)}" if query else "")


class KubeApi:
    """Sends each request on a new connection, which costs little on a Unix socket."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._slots = asyncio.Semaphore(REQUESTS)

    async def get(self, path: str) -> dict[str, Any]:
        return await self._exchange("GET", path)

    async def pages(self, path: str, **query: str | int) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a list in parts, so that no answer is too large."""
        more = ""
        while True:
            page = await self.get(f"{path}?{urlencode({**query, 'limit': PAGE, 'continue': more})}")
            yield page
            if not (more := page["metadata"].get("continue", "")):
                return

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        made = await self._exchange("POST", path, body)
        if made["metadata"].get("name") != body.get("metadata", {}).get("name"):
            raise KubeError("Kubernetes answered with something else than the created object")
        return made

    async def delete(self, path: str) -> None:
        """Delete an object at once; a missing one is no error."""
        try:
            await self._exchange("DELETE", path, {"gracePeriodSeconds": 0})
        except KubeError as err:
            if err.code != NOT_FOUND:
                raise

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            async with self._slots:
                content = await asyncio.wait_for(self._read(method, path, body), ANSWER_SECONDS)
            found = parse(content)
        except asyncio.TimeoutError as err:
            raise KubeError(f"Kubernetes did not answer within {ANSWER_SECONDS:g} s") from err
        except ValueError as err:
            raise KubeError("Kubernetes answered with something else than JSON") from err
        with reading():
            found["metadata"].items()
        answer: dict[str, Any] = found
        return answer

    async def _read(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        content = bytearray()
        async with contextlib.aclosing(self._request(method, path, body)) as answer:
            async for data in answer:
                content += data
                if len(content) > LARGEST:
                    raise KubeError(f"an answer of Kubernetes is larger than {LARGEST >> 20} MB")
        return bytes(content)

    def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield an answer as it arrives, until the server ends it."""
        return self._request("GET", path, None)

    async def lines(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield an answer line by line."""
        rest = b""
        async with contextlib.aclosing(self._request("GET", path, None)) as answer:
            async for data in answer:
                *complete, rest = (rest + data).split(b"\n")
                for line in complete:
                    yield line
                if len(rest) > LONGEST_LINE:
                    raise KubeError(f"an object of Kubernetes is larger than {LONGEST_LINE >> 20} MB")

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket)
        except OSError as err:
            raise KubeError(f"{PROXY_AWAY}: {err.strerror}") from err
        try:
            connection = h11.Connection(h11.CLIENT)
            writer.write(_encode(connection, method, path, body))
            head, refusal = None, b""
            while not isinstance(event := await _next_event(connection, reader), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data) and head and head.status_code < 400:
                    yield bytes(event.data)
                elif isinstance(event, h11.Data) and len(refusal) < READ:
                    refusal += event.data
            if head and head.status_code >= 400:
                raise _error(head.status_code, refusal)
        except (OSError, h11.RemoteProtocolError) as err:
            raise KubeError(f"the connection to Kubernetes was lost: {err}") from err
        finally:
            writer.close()


def _encode(connection: h11.Connection, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    headers = [("Host", "localhost"), ("Accept", "application/json, */*"), ("Connection", "close")]
    headers += (
        [("Content-Type", "application/json"), ("Content-Length", str(len(content)))] if content else []
    )
    sent = connection.send(h11.Request(method=method, target=path, headers=headers)) or b""
    sent += connection.send(h11.Data(data=content)) or b"" if content else b""
    return sent + (connection.send(h11.EndOfMessage()) or b"")


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(READ))
    assert not isinstance(event, type)
    return event


def _error(code: int, body: bytes) -> KubeError:
    """Return the error of an answer, with the message and the reason in its ``Status``."""
    reason = ""
    try:
        status = parse(body)
        message, reason = str(status["message"]), str(status.get("reason"))
    except (ValueError, KeyError, TypeError):
        message = body.decode("utf-8", "replace").strip() or f"HTTP status {code}"
    return KubeError(" ".join(message.split()), code, reason)
