"""The connections of a store to name nodes and data nodes, shared by its threads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import SplitResult, quote, urlsplit

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.http1 import HttpAnswer, StreamedBody, error_text
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.storage.hdfs.web.errors import DataNodeError, NoAnswer, RemoteError
from openpai_tasks.storage.retry import CorruptData

V1 = "/webhdfs/v1"
POOL = "/jmx?get=Hadoop:service=NameNode,name=NameNodeInfo::BlockPoolId"
NO_WEBHDFS = ", which has no WebHDFS: use the web port of a name node, such as 9870 or 50070"
GATEWAY = re.compile(r"/a/([^/:]+)")  # OpenPAI's way to a data node
SAFE = "/%?&=:;,+@!$'()*~[]"  # what a redirect has escaped itself, or need not
ERROR_FIELDS = {"exception", "javaClassName", "message"}


class WebHdfsClient:
    """Sends requests; raises RemoteError for an error that HDFS explains, and NoAnswer for any other."""

    def __init__(self, timeout: float = 60, verify: bool | str = True) -> None:
        self._pool = ConnectionPool(timeout, verify)

    def close(self) -> None:
        self._pool.close()

    def ask(self, method: str, server: str, target: str, expected: int = 200) -> HttpAnswer:
        """Send a request to a name node and return its whole answer; redirects are not followed."""
        answer = self._send(method, server, target)
        _check(answer, server, expected, NO_WEBHDFS)
        _read(answer, server)
        return answer

    def follow(
        self,
        method: str,
        url: SplitResult,
        expected: int = 200,
        body: StreamedBody | None = None,
        streams: bool = False,
    ) -> HttpAnswer:
        """Send a request to a data node and return its whole answer, or only its head if it ``streams``."""
        server = f"{url.scheme}://{url.netloc}"
        target = quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=SAFE)
        behind = GATEWAY.match(url.path)
        try:
            answer = self._send(method, server, target, body)
            _check(answer, server, expected)
            if not streams:
                _read(answer, server)
        except NoAnswer as err:
            raise DataNodeError(str(err), behind[1] if behind else url.hostname or "") from err
        return answer

    def block_pool(self, server: str) -> str:
        """Return the identity of a name node's HDFS; empty if unknown."""
        try:
            return str(parse(self.ask("GET", server, POOL).content)["beans"][0]["BlockPoolId"])
        except (NoAnswer, RemoteError, ValueError, LookupError, TypeError):
            return ""

    def _send(self, method: str, server: str, target: str, body: StreamedBody | None = None) -> HttpAnswer:
        headers = {"Accept": "*/*"}
        if body:
            headers["Content-Type"] = "application/octet-stream"
        try:
            return self._pool.request(method, server, target, headers, body or b"", repeats=True)
        except PaiError:  # from the source of the body; some of ours are also OSErrors
            raise
        except OSError as err:
            raise NoAnswer(f"{urlsplit(server).netloc}: {error_text(err)}") from err


def make_body(pieces: Iterable[bytes], size: int | None) -> StreamedBody:
    """Return the body of a file; sending it raises CorruptData unless it has the size."""
    return StreamedBody(pieces if size is None else _exactly(pieces, size), size)


def _exactly(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    sent = 0
    for piece in pieces:
        sent += len(piece)
        if sent > size:
            raise CorruptData(f"more than the {size} bytes there were at first; it grew while it was read")
        yield piece
    if sent < size:
        raise CorruptData(f"only {sent} of {size} bytes; it shrank while it was read")


def check_redirect(server: str, url: str) -> SplitResult:
    """Return the URL that a server redirects to; refuse a plain one from a server that was asked over TLS.

    A server behind a TLS proxy often does not know about it; if its URL has the same host, https is used.
    """
    here = urlsplit(server)
    try:
        to = urlsplit(url)
        is_host = to.netloc.isascii() and to.netloc.isprintable() and " " not in to.netloc
        is_valid = to.scheme in ("http", "https") and to.hostname and is_host and to.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise NoAnswer(f"{here.netloc} redirects to no address")
    if here.scheme != "https" or to.scheme == "https":
        return to
    if to.hostname != here.hostname or to.port not in (None, 80, here.port):
        where = f"{server} redirects to {to.scheme}://{to.netloc}"
        raise PathError(f"{where}, without encryption: refused; its data nodes need https")
    return to._replace(scheme="https", netloc=here.netloc)


def _check(answer: HttpAnswer, server: str, expected: int, hint: str = "") -> None:
    if answer.status_code == expected:
        return
    if error := _remote_error(_read(answer, server), answer.status_code):
        raise error
    what = hint if answer.status_code == 404 else ""
    raise NoAnswer(f"http status {answer.status_code} from {urlsplit(server).netloc}{what}")


def _remote_error(content: bytes, status: int) -> RemoteError | None:
    try:
        error = parse(content)["RemoteException"]
        if not {"exception", "message"} <= error.keys() <= ERROR_FIELDS:
            return None
        return RemoteError(_text(error["exception"]), _text(error["message"]), status)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _read(answer: HttpAnswer, server: str) -> bytes:
    try:
        return answer.content
    except OSError as err:
        raise NoAnswer(f"{urlsplit(server).netloc}: {error_text(err)}") from err
