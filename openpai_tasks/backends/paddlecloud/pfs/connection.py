"""The calls of PFS, over connections that all threads share; errors are converted to ours.

What the server answers is not trusted: it may be of any form and size.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from openpai_tasks.errors import Denied, NoSuchPath, PaiError, PathError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http1 import error_text
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.store import require_utf8

CHUNK = 4 << 20
"""Bytes of a chunk: the most that servers of all versions accept."""
BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
FILES, CHUNKS, CONTENT = "files", "chunks", "storage/chunks"

SILENCE = 60.0  # seconds
LONGEST = 120.0  # seconds for one call, however little it transfers
SLOWEST = 1 << 16  # bytes per second; slower calls are given up
LISTING_LIMIT = 1 << 28  # bytes; a million files
FRAME_LIMIT = 1 << 16  # bytes of other documents, and around a chunk
EXTENSIONS, REPLACE = "x-pfs-extensions", "replace"
CHUNK_MD5 = "x-pfs-md5"

MISSING = "no such file or directory"
REFUSED = ("unauthorized", "permission denied", "public data supports only")
UNKNOWN_USER, BAD_SUM = "get username error", "checksum error"
MD5 = re.compile(r"[0-9a-f]{32}")

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass(frozen=True)
class PfsEntry:
    """A file or folder, as the server describes it."""

    path: str
    is_folder: bool
    size: int
    mtime_ms: int


@dataclass(frozen=True)
class ChunkSum:
    """Length and MD5 of a chunk, as the server has it."""

    length: int
    md5: str


class PfsCall(NamedTuple):
    """A call about a path; ``size`` is the number of bytes that the server reads or writes for it."""

    method: str
    route: str
    path: str
    query: Mapping[str, Any] | None = None
    body: bytes = b""
    kind: str = ""
    size: int = 0
    limit: int = FRAME_LIMIT


class PfsConnection:
    """The files of a datacenter at one endpoint, for one user; ``renew`` returns a new token.

    Paths are those of the store: ``/home/<user>/…``.
    """

    def __init__(
        self,
        endpoint: str,
        datacenter: str,
        token: str,
        renew: Callable[[], str] | None = None,
        verify: bool | str = True,
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._endpoint, self._root = endpoint, f"/pfs/{datacenter}"
        self._token, self._renew, self._verify, self._certificate = token, renew, verify, certificate
        self._client = HttpClient(uses_proxies=not endpoint.startswith("http://127.0.0.1"))
        self._lock = threading.Lock()
        self.chunk = CHUNK
        self._extensions = ""

    @property
    def can_replace(self) -> bool:
        """Whether the server copies, renames and dates files, as its answers so far show."""
        return REPLACE in self._extensions

    def address(self, path: str) -> str:
        return self._endpoint + quote(self.full(path))

    def stat(self, path: str) -> PfsEntry | None:
        try:
            found = self._ask(PfsCall("GET", FILES, path, {"method": "stat", "path": self.full(path)}))
        except NoSuchPath:
            return None
        return self._entry(found, path)

    def list(self, path: str) -> Sequence[PfsEntry]:
        """Return the entries of a folder; of a file, the file itself."""
        query = {"method": "ls", "r": "false", "arg": escape(self.full(path))}
        found = self._ask(PfsCall("GET", FILES, path, query, limit=LISTING_LIMIT))
        if found is not None and not isinstance(found, list):
            raise self._malformed(path)
        return [self._entry(row, path) for row in found or ()]

    def resize(self, path: str, size: int, mtime_ms: int | None = None) -> None:
        """Give the file a size, and create it if missing; servers that can also set its time."""
        time = {} if mtime_ms is None else {"modtime": mtime_ms * 1_000_000}
        self._change("POST", path, {"method": "touch", "filesize": size, "path": self.full(path), **time})

    def make_folder(self, path: str) -> None:
        self._change("POST", path, {"method": "mkdir", "path": [self.full(path)]})

    def remove(self, path: str, recursive: bool) -> None:
        self._change("DELETE", path, {"method": "rm", "r": recursive, "path": [escape(self.full(path))]})

    def sum(self, path: str, offset: int) -> ChunkSum:
        """Return length and MD5 of the chunk that begins there."""
        where = {"path": self.full(path), "offset": offset, "chunksize": self.chunk}
        found = self._ask(PfsCall("GET", CHUNKS, path, {"method": "GetChunkMeta", **where}, size=self.chunk))
        return self._sum(found, path)

    def _sum(self, found: Any, path: str) -> ChunkSum:
        length, md5 = _fields(found, "len", "checksum")
        if not _is_size(length) or not isinstance(md5, str) or not MD5.fullmatch(md5.lower()):
            raise self._malformed(path)
        return ChunkSum(length, md5.lower())

    def read(self, path: str, offset: int, size: int) -> tuple[bytes, str]:
        """Return the bytes of a chunk, fewer if the file ends before, and the MD5 that the server sends."""
        where = {"path": self.full(path), "offset": offset, "chunksize": size}
        call = PfsCall("GET", CONTENT, path, where, size=size, limit=size + FRAME_LIMIT)
        status, headers, body = self._send(call)
        if status != 200 or not body.startswith(b"--"):
            self._results(status, body, path)
            raise self._malformed(path)
        return self._unframe(body, path, size), headers.get(CHUNK_MD5, "")

    def write(self, path: str, offset: int, data: bytes, more: Mapping[str, Any]) -> ChunkSum | None:
        """Write a chunk, and return what the server has then; None if it does not say.

        ``more`` is for servers that can replace files: see the embedded cluster's.
        """
        query = {"chunksize": len(data), "offset": offset, "path": self.full(path), **more}
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; '
        head += f'filename="{urlencode(query)}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        body = b"".join([head.encode(), data, f"\r\n--{BOUNDARY}--\r\n".encode()])
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        found = self._ask(PfsCall("POST", CONTENT, path, body=body, kind=kind, size=len(data)))
        return self._sum(found, path) if found is not None else None

    def copy(self, path: str, target: str, size: int) -> None:
        """Copy a file inside the server, if it can replace files."""
        self._change("POST", path, {"method": "cp", "path": [self.full(path), self.full(target)]}, size)

    def move(self, path: str, target: str, mtime_ms: int | None = None) -> None:
        """Rename a file and set its time, if the server can replace files."""
        time = {} if mtime_ms is None else {"modtime": mtime_ms * 1_000_000}
        self._change("POST", path, {"method": "mv", "path": [self.full(path), self.full(target)], **time})

    def full(self, path: str) -> str:
        """Return the path at the server."""
        names = path.split("/")[1:]
        if not path.startswith("/") or "." in names or ".." in names or "\0" in path:
            raise PathError(f"{path!r} cannot be a path in PFS")
        require_utf8(path, "a PFS server")
        return "/".join([self._root, *(name for name in names if name)])

    def _change(self, method: str, path: str, body: dict[str, Any], size: int = 0) -> None:
        data = json.dumps(body).encode()
        self._ask(PfsCall(method, FILES, path, body=data, kind="application/json", size=size))

    def _ask(self, call: PfsCall) -> Any:
        status, headers, body = self._send(call)
        self._extensions = self._extensions or headers.get(EXTENSIONS, "")
        return self._results(status, body, call.path)

    def _send(self, call: PfsCall) -> Reply:
        """Send a call and return its answer; a token that is refused is renewed once."""
        token = self._token or self._renewed("")
        reply = self._exchange(call, token)
        if not _is_token_unknown(reply) or self._renew is None:
            return reply
        return self._exchange(call, self._renewed(token))

    def _renewed(self, old: str) -> str:
        """Return a new token; threads whose calls fail at the same time share one."""
        with self._lock:
            if self._token == old and self._renew is not None:
                self._token = self._renew()
            return self._token

    def _exchange(self, call: PfsCall, token: str) -> Reply:
        exchange = Exchange(SILENCE, LONGEST + call.size / SLOWEST)
        headers = {"Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Token {token}"} if token else {}
        headers |= {"Content-Type": call.kind} if call.kind else {}
        url = f"{self._endpoint}/api/v1/pfs/{call.route}"
        try:
            answer = self._client.request(
                call.method,
                url,
                exchange,
                self._verify,
                call.query,
                headers,
                call.body or None,
                certificate=self._certificate,
            )
            exchange.renew()
            return answer.status_code, answer.headers, answer.read(call.limit)
        except OSError as err:
            where = f"{call.path}: no answer from {self._endpoint}"
            raise Unreachable(f"{where}: {error_text(err)}", is_outage=True) from err

    def _results(self, status: int, body: bytes, path: str) -> Any:
        """Return ``results`` of an answer; raise the error that it reports."""
        if status == 404:
            raise PathError(f"{path}: {self._endpoint} has no PFS service; check the address")
        if status >= 500 or status == 429:
            raise Unreachable(f"{path}: {self._endpoint} is not ready: http status {status}")
        document = _first_document(body)
        if status in (401, 403):
            text = document.get("detail") or document.get("err") or "not allowed"
            raise Denied(f"{path}: refused by {self._endpoint}: {_line(text)}", status)
        if not isinstance(document.get("err"), str):
            raise self._malformed(path) if status == 200 else PathError(f"{path}: http status {status}")
        if document["err"] or status != 200:
            raise self._error(document["err"] or f"http status {status}", path)
        return document.get("results")

    def _error(self, text: str, path: str) -> PaiError:
        lower = text.lower()
        if MISSING in lower:
            return NoSuchPath(f"{path}: no such file or folder on {self._endpoint}")
        if lower == BAD_SUM:
            return CorruptData(f"{path}: damaged in transit")
        if UNKNOWN_USER in lower:
            return Denied(f"{path}: refused by {self._endpoint}: {_line(text)}", 401)
        if any(word in lower for word in REFUSED):
            return Denied(f"{path}: refused by {self._endpoint}: {_line(text)}", 403)
        return PathError(f"{path}: the server answered: {_line(text)}")

    def _entry(self, row: Any, path: str) -> PfsEntry:
        name, size, time, is_folder = _fields(row, "Path", "Size", "ModTime", "IsDir")
        right = isinstance(name, str) and isinstance(is_folder, bool) and _is_size(size)
        if not right or not isinstance(time, int) or not name.startswith(f"{self._root}/"):
            raise self._malformed(path)
        return PfsEntry(name[len(self._root) :], is_folder, 0 if is_folder else size, time // 1_000_000)

    def _unframe(self, body: bytes, path: str, size: int) -> bytes:
        """Return the bytes of a chunk; a document with ``err`` may follow the last mark."""
        begin = body.find(b"\r\n\r\n") + 4
        end = body.rfind(f"\r\n--{BOUNDARY}".encode())
        if not body.startswith(f"--{BOUNDARY}\r\n".encode()) or begin < 4 or end < begin:
            raise CorruptData(f"{path}: an incomplete chunk from {self._endpoint}")
        if end - begin > size:
            raise CorruptData(
                f"{path}: a chunk of {end - begin} bytes from {self._endpoint} instead of {size}"
            )
        return body[begin:end]

    def _malformed(self, path: str) -> PathError:
        return PathError(f"{path}: cannot understand the answer of {self._endpoint}; check the address")


def escape(path: str) -> str:
    """Return a pattern that matches only this path; the server expands patterns."""
    return re.sub(r"([*?\[\\])", r"\\\1", path) if re.search(r"[*?\[]", path) else path


def _is_token_unknown(reply: Reply) -> bool:
    """Whether the server does not know the token; the original PFS says so in a successful answer."""
    status, _, body = reply
    return status == 401 or (body.startswith(b"{") and UNKNOWN_USER.encode() in body[:1024])


def _first_document(body: bytes) -> dict[str, Any]:
    """Return the first JSON object: servers may send several, one after the other."""
    try:
        found, _ = _DECODER.raw_decode(body.decode("utf-8", "replace").lstrip("\ufeff \r\n\t"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fields(found: Any, *names: str) -> tuple[Any, ...]:
    return tuple(found.get(name) if isinstance(found, dict) else None for name in names)


def _whole(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


_DECODER = json.JSONDecoder(parse_int=_whole)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _line(text: Any) -> str:
    return " ".join(str(text).split())[:300]
