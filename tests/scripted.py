"""A small real HTTP server that sends scripted responses and records its requests."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.sdk.pai_server import QuietServer


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "")


@dataclass(frozen=True)
class Reply:
    """JSON unless it is text or bytes."""

    body: Any = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Scripted:
    """``answers`` maps "METHOD /path" to the response: a Reply, its body, or a function of the request."""

    def __init__(self, answers: dict[str, Any], certificate: str | None = None) -> None:
        self.answers, self.seen = answers, list[ReceivedRequest]()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are written one after the other

            def log_message(self, *args: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                url = urlsplit(self.path)
                request = ReceivedRequest(
                    self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers.items()), body
                )
                server.seen.append(request)
                response = server.respond(request)
                data = response.body if isinstance(response.body, (str, bytes)) else json.dumps(response.body)
                data = data.encode() if isinstance(data, str) else data
                self.send_response(response.status)
                for name, value in response.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

        self.http = QuietServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(
                self.http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.http.server_address[1]
        self.uri = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def respond(self, request: ReceivedRequest) -> Reply:
        found = self.answers.get(f"{request.method} {request.path}")
        if found is None:
            words = {"code": "NoApiError", "message": f"API {request.path} is not found."}
            return Reply(words, 404)
        answer = found(request) if callable(found) else found
        return answer if isinstance(answer, Reply) else Reply(answer)

    def received(self, method: str = "GET") -> list[ReceivedRequest]:
        return [one for one in self.seen if one.method == method]

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
