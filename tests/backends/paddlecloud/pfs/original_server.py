"""A small PFS server that behaves as PaddleCloud's own did in 2018, with its peculiarities.

``touch`` clears a file whose size changes and sets no times; a downloaded chunk names the requested size and
has no proper content type; an answer to an upload has no results, and a failed one several documents.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
AT_END = "this file reaches end"


class OriginalServer:
    """Use as a context manager; ``folder`` is the home of ``ann`` in the datacenter ``dc1``."""

    def __init__(self, folder: Path, token: str = "t0ken") -> None:
        self.folder, self.token = folder, token
        self.calls: list[str] = []
        self.sent: list[tuple[str, int, int]] = []  # path, offset and size of each uploaded chunk

    def __enter__(self) -> OriginalServer:
        original = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                original._serve(self)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, call: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(call.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = call.rfile.read(int(call.headers.get("Content-Length", 0)))
        if call.headers["Authorization"] != f"Token {self.token}":
            return _answer(call, _document("get username error:401"))
        route = parts.path.removeprefix("/api/v1/pfs/")
        try:
            answer = self._routed(call.command, route, query, body)
        except FileNotFoundError:
            answer = _document("stat: no such file or directory")
        except OSError as err:
            answer = _document(f"error: {err}")
        _answer(call, answer)

    def _routed(self, method: str, route: str, query: dict[str, str], body: bytes) -> bytes:
        if route == "storage/chunks":
            self.calls.append(f"{method} chunk")
            return self._read(query) if method == "GET" else self._write(body)
        if route == "chunks":
            self.calls.append("sum")
            return self._sum(query)
        given = query if method == "GET" else json.loads(body[:2048])
        self.calls.append(given["method"])
        return {
            "stat": self._stat,
            "ls": self._list,
            "touch": self._touch,
            "mkdir": self._make,
            "rm": self._rm,
        }[given["method"]](given)

    def _path(self, text: str) -> Path:
        assert text.startswith("/pfs/dc1/home/ann"), text
        if re.search(r"[*?\[]", text):
            text = re.sub(r"\\(.)", r"\1", text)
        return self.folder.joinpath(text.removeprefix("/pfs/dc1/home/ann").lstrip("/"))

    def _row(self, path: Path) -> dict[str, Any]:
        facts = path.stat()
        name = "/".join(["/pfs/dc1/home/ann", *path.relative_to(self.folder).parts])
        return {"Path": name, "ModTime": facts.st_mtime_ns, "Size": facts.st_size, "IsDir": path.is_dir()}

    def _stat(self, given: dict[str, Any]) -> bytes:
        return _document("", self._row(self._path(given["path"])))

    def _list(self, given: dict[str, Any]) -> bytes:
        path = self._path(given["arg"])
        found = list(path.iterdir()) if path.is_dir() else [path]
        return _document("", [self._row(one) for one in found] or None)

    def _touch(self, given: dict[str, Any]) -> bytes:
        path, size = self._path(given["path"]), given["filesize"]
        if not path.exists() or path.stat().st_size != size:
            with open(path, "wb") as file:
                file.truncate(size)
        return _document("", {"path": given["path"]})

    def _make(self, given: dict[str, Any]) -> bytes:
        for text in given["path"]:
            self._path(text).mkdir(0o700, parents=True, exist_ok=True)
        return _document("", [{"path": text} for text in given["path"]])

    def _rm(self, given: dict[str, Any]) -> bytes:
        for path in map(self._path, given["path"]):
            if path.is_dir() and not given["r"]:
                return _document(f"can't del directory:{path}")
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return _document("", None)

    def _sum(self, query: dict[str, str]) -> bytes:
        size = int(query["chunksize"])
        if not 4096 <= size <= 4 << 20:
            return _document("chunksize error")
        with open(self._path(query["path"]), "rb") as file:
            file.seek(int(query["offset"]))
            data = file.read(size)
        checksum = hashlib.md5(data).hexdigest()
        return _document("", {"offset": int(query["offset"]), "checksum": checksum, "len": len(data)})

    def _read(self, query: dict[str, str]) -> bytes:
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{urlencode(query)}"\r\n'
        )
        head += "Content-Type: application/octet-stream\r\n\r\n"
        with open(self._path(query["path"]), "rb") as file:
            file.seek(int(query["offset"]))
            data = file.read(int(query["chunksize"]))
        end = _document("" if len(data) == int(query["chunksize"]) else AT_END)
        return head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode() + end

    def _write(self, body: bytes) -> bytes:
        head, _, rest = body.partition(b"\r\n\r\n")
        given = parse_qs(head.split(b'filename="')[1].split(b'"')[0].decode())
        path, offset, size = given["path"][0], int(given["offset"][0]), int(given["chunksize"][0])
        try:
            file = os.open(self._path(path), os.O_RDWR)
        except FileNotFoundError as err:
            return _document(f"open: {err.strerror.lower()}") + _document("invalid argument") + _document("")
        os.pwrite(file, rest[:size], offset)
        os.close(file)
        self.sent.append((path, offset, size))
        return _document("")


def _document(err: str, results: Any = None) -> bytes:
    return json.dumps({"err": err, "results": results}).encode() + b"\n"


def _answer(call: BaseHTTPRequestHandler, body: bytes) -> None:
    call.send_response(200)
    call.send_header("Content-Type", "text/plain; charset=utf-8")
    call.send_header("Content-Length", str(len(body)))
    call.end_headers()
    call.wfile.write(body)
