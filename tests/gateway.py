"""A TLS server that demands a client certificate and forwards requests, like the ingress of a cluster."""

from __future__ import annotations

import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DROPPED = {"connection", "transfer-encoding", "content-length", "date", "server"}


class Gateway:
    """Forwards to ``uri``; ``tokens`` are those of the users whose certificate is enough to log in."""

    def __init__(self, uri: str, certificate: Path, clients: Path) -> None:
        self.uri, self.tokens, self.users = urlsplit(uri), dict[str, str](), list[str]()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def log_message(self, *args: Any) -> None:
                pass

            def forward(self) -> None:
                gateway.forward(self)

            do_GET = do_POST = do_PUT = do_DELETE = forward

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *args: None  # type: ignore[method-assign]  # a refused client
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
        self.http.socket = context.wrap_socket(self.http.socket, True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def forward(self, caller: Any) -> None:
        certificate = caller.connection.getpeercert()
        user = dict(pair for (pair,) in certificate["subject"])["commonName"]
        self.users.append(user)
        headers = {name: value for name, value in caller.headers.items() if name.lower() != "host"}
        if user in self.tokens and "Authorization" not in caller.headers:
            headers["Authorization"] = f"Token {self.tokens[user]}"
        body = caller.rfile.read(int(caller.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection(self.uri.hostname or "", self.uri.port, timeout=60)
        try:
            server.request(caller.command, self.uri.path + caller.path, body, headers)
            answer = server.getresponse()
            data = answer.read()
        finally:
            server.close()
        caller.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in DROPPED:
                caller.send_header(name, value)
        caller.send_header("Content-Length", str(len(data)))
        caller.end_headers()
        caller.wfile.write(data)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
