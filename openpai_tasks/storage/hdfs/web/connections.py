"""The connections of a store: kept alive, shared by threads, with a timeout for every wait.

``Wire`` has the few methods of a ``requests.Session`` that PyHDFS calls: PyHDFS handles WebHDFS, and ``Wire``
moves the bytes at a fraction of the cost per request.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from requests.exceptions import ConnectionError as Broken

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.http1 import HEAD_LIMIT, HttpConnection, ServerKey, why
from openpai_tasks.net.log_masking import log_request
from openpai_tasks.storage.hdfs.web.answers import is_address
from openpai_tasks.storage.hdfs.web.http import NoJson, Reply, explains
from openpai_tasks.storage.retry import Damaged

V1 = "/webhdfs/v1"
REDIRECT = 307
DONE = {"GET": 200, "POST": 200, "PUT": 201}
"""Status codes of a data node for success."""
POOL = "/jmx?get=Hadoop:service=NameNode,name=NameNodeInfo::BlockPoolId"
NO_WEBHDFS = ", which has no WebHDFS: use the web port of a name node, such as 9870 or 50070"
GATEWAY = re.compile(r"/a/([^/:]+)")  # OpenPAI's way to a data node
SAFE = "/%?&=:;,+@!$'()*~[]"  # what a redirect has escaped itself, or need not


class DataNodeGone(Broken):
    """Raised when a data node fails; ``host`` is its machine."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


@dataclass(frozen=True)
class RequestBody:
    """The body of a request; ``size`` is the total of the pieces, if known."""

    pieces: Iterable[bytes]
    size: int | None


class Wire:
    """The connections of one store, shared by its threads."""

    def __init__(self, prefix: str = V1, timeout: float = 60, verify: bool | str = True) -> None:
        self._prefix, self._pool = prefix, ConnectionPool(timeout, verify)
        self._trouble = threading.local()
        self._sender = threading.local()  # the name node that may redirect this thread
        self.has_answered = False  # whether any name node has answered

    def request(self, method: str, url: str, params: Mapping[str, Any], **_: Any) -> Reply:
        """Send a request of PyHDFS to a name node, below the prefix, without following redirects."""
        scheme, rest = url.split("://", 1)
        host, _slash, path = rest.partition("/")
        target = self._prefix + f"/{path}".removeprefix(V1)
        self._sender.scheme, self._sender.host = scheme, host
        self._trouble.text = f"{host} is starting or on standby"  # in case PyHDFS then asks another one
        try:
            reply = self._ask(method.upper(), scheme, host, f"{target}?{urlencode(params, quote_via=quote)}")
            if reply.status_code >= 400 and not explains(reply):
                hint = NO_WEBHDFS if reply.status_code == 404 else ""
                raise Broken(f"http status {reply.status_code} from {host}{hint}")
            if reply.status_code == REDIRECT:
                reply.discard()
                if not is_address(reply.headers.get("location", "")):
                    raise Broken(f"{host} redirects to no address")
        except Broken as err:
            self._trouble.text = str(err)
            raise
        self.has_answered = True
        return reply

    def trouble(self) -> str:
        """The last error of a name node in this thread."""
        return str(self._trouble.text)

    def block_pool(self, scheme: str, host: str) -> str:
        """Return the identity of a name node's HDFS; empty if unknown."""
        try:
            reply = self._ask("GET", scheme, host, POOL)
            pool = reply.json()["beans"][0]["BlockPoolId"] if reply.status_code == 200 else ""
        except (Broken, NoJson, ValueError, LookupError, TypeError):
            return ""
        return str(pool)

    def get(self, url: str, stream: bool = False, **_: Any) -> Reply:
        """Get the URL of a data node that a name node redirected to."""
        return self._follow("GET", url, None)

    def put(self, url: str, data: RequestBody, **_: Any) -> Reply:
        return self._follow("PUT", url, data)

    def post(self, url: str, data: RequestBody, **_: Any) -> Reply:
        return self._follow("POST", url, data)

    def close(self) -> None:
        self._pool.close()

    def _follow(self, method: str, url: str, body: RequestBody | None) -> Reply:
        parts = urlsplit(self._kept_secret(url))
        target = quote(parts.path + (f"?{parts.query}" if parts.query else ""), safe=SAFE)
        behind = GATEWAY.match(parts.path)
        host = behind[1] if behind else parts.hostname or ""
        try:
            reply = self._ask(method, parts.scheme, parts.netloc, target, body)
            is_odd = reply.status_code != DONE[method] and not (reply.status_code >= 400 and explains(reply))
            if is_odd:
                raise Broken(f"http status {reply.status_code} from {parts.netloc}")
            if body is not None and reply.status_code == DONE[method]:
                reply.discard()
        except Broken as err:
            raise DataNodeGone(str(err), host) from err
        return reply

    def _kept_secret(self, url: str) -> str:
        """Return the URL; refuse a plain one from a server that was asked over TLS.

        A server behind a TLS proxy often does not know about it; if its URL has the same host, https is used.
        """
        to = urlsplit(url)
        if getattr(self._sender, "scheme", "http") != "https" or to.scheme == "https":
            return url
        here = urlsplit(f"https://{self._sender.host}")
        if to.hostname != here.hostname or to.port not in (None, 80, here.port):
            where = f"https://{self._sender.host} redirects to {to.scheme}://{to.netloc}"
            raise PathError(f"{where}, without encryption: refused; its data nodes need https")
        return to._replace(scheme="https", netloc=here.netloc).geturl()

    def _ask(
        self, method: str, scheme: str, host: str, target: str, body: RequestBody | None = None
    ) -> Reply:
        key = _key(scheme, host)
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n".encode("ascii")
        while True:
            connection = self._acquire(key)
            try:
                reply = self._exchange(connection, method, head, body)
                size = body.size if body else None
                log_request(method, f"{scheme}://{host}{target}", size, reply.status_code)
                return reply
            except PaiError:  # from the source of the body; some of ours are also OSErrors
                connection.close()
                raise
            except (OSError, ssl.SSLError) as err:  # also Broken
                connection.close()
                if connection.used and body is None and not isinstance(err, TimeoutError):
                    continue  # closed while idle: nothing was done, retry on another connection
                raise Broken(f"{host}: {why(err)}") from err
            except BaseException:
                connection.close()
                raise

    def _exchange(
        self, connection: HttpConnection, method: str, head: bytes, body: RequestBody | None
    ) -> Reply:
        if body is None:
            length = b"" if method == "GET" else b"Content-Length: 0\r\n"
            connection.stream.sendall(head + length + b"\r\n")
        else:
            try:
                _send(connection.stream, head, body)
            except PaiError:
                raise
            except OSError as err:
                return self._early(connection, err)
        return self._reply(connection)

    def _early(self, connection: HttpConnection, err: OSError) -> Reply:
        """Read the answer of a server that refuses a body: it hangs up before it has read all of it."""
        if isinstance(err, TimeoutError):
            raise err
        try:
            reply = self._reply(connection)
        except (OSError, ssl.SSLError):
            raise err from None
        if reply.status_code < 400:
            raise err
        return reply

    def _reply(self, connection: HttpConnection) -> Reply:
        connection.exchange.renew()  # a body may have taken any time
        return Reply(connection, self._pool.keep)

    def _acquire(self, key: ServerKey) -> HttpConnection:
        try:
            return self._pool.acquire(key)
        except (OSError, ssl.SSLError) as err:
            raise Broken(f"{key[1]}:{key[2]}: {why(err)}") from err


def _send(stream: socket.socket, head: bytes, body: RequestBody) -> None:
    """Send head and body; small ones in one packet."""
    kind = b"Content-Type: application/octet-stream\r\n"
    if body.size is None:
        stream.sendall(head + kind + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in body.pieces:
            if piece:
                stream.sendall(b"%x\r\n" % len(piece))
                stream.sendall(piece)
                stream.sendall(b"\r\n")
        stream.sendall(b"0\r\n\r\n")
        return
    waiting, sent = head + kind + b"Content-Length: %d\r\n\r\n" % body.size, 0
    for piece in body.pieces:
        sent += len(piece)
        if sent > body.size:
            raise Damaged(f"more than the {body.size} bytes there were at first; it grew while it was read")
        if waiting and len(piece) <= HEAD_LIMIT:
            stream.sendall(waiting + piece)
        else:
            stream.sendall(waiting)
            stream.sendall(piece)
        waiting = b""
    if sent < body.size:
        raise Damaged(f"only {sent} of {body.size} bytes; it shrank while it was read")
    stream.sendall(waiting)


def _key(scheme: str, host: str) -> ServerKey:
    parts = urlsplit(f"{scheme}://{host}")
    return scheme, parts.hostname or "", parts.port or (443 if scheme == "https" else 80)
