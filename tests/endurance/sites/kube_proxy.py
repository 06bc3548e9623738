"""A proxy in front of the API server that cuts, delays and refuses connections."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER = """HTTP/1.1 {code} Refused\r
Content-Type: application/json\r
Content-Length: {size}\r
Connection: close\r
\r
{body}"""


class KubeProxy:
    """Speaks TLS with the API server's own certificate, and passes bytes on."""

    def __init__(self, kubeconfig: str, folder: str) -> None:
        """``folder`` has the certificate and its key: certs/apiserver.crt and .key."""
        words = ["kubectl", f"--kubeconfig={kubeconfig}", "config", "view", "--raw", "--minify", "-o", "json"]
        self._config: dict[str, Any] = json.loads(subprocess.check_output(words, text=True))
        address = urlsplit(self._config["clusters"][0]["cluster"]["server"])
        self._target = (str(address.hostname), int(address.port or 443))
        certificate = Path(folder, "certs", "apiserver.crt")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._to_server = ssl.create_default_context(cafile=str(certificate))
        self._lock = threading.Lock()
        self._open: set[ssl.SSLSocket] = set()
        self.delay = 0.0  # seconds before each piece of an answer
        self.refusal = 0  # HTTP status of the answer to each request
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, request_queue_size = True, 128

        self._listener = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()

    def kubeconfig(self) -> dict[str, Any]:
        """Return the kubeconfig with the address of this proxy."""
        config: dict[str, Any] = json.loads(json.dumps(self._config))
        cluster = config["clusters"][0]["cluster"]
        cluster["server"] = f"https://127.0.0.1:{self._listener.server_address[1]}"
        return config

    def cut(self) -> int:
        """Close all connections; return how many there were."""
        with self._lock:
            found = list(self._open)
        for one in found:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)  # while its thread uses the connection
        return len(found) // 2

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self.cut()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        with self._context.wrap_socket(connection, server_side=True) as client:
            if code := self.refusal:
                client.recv(1 << 16)
                client.sendall(_refusal(code))
                return
            with (
                socket.create_connection(self._target, 5) as plain,
                self._to_server.wrap_socket(plain, server_hostname=self._target[0]) as server,
            ):
                with self._lock:
                    self._open |= {client, server}
                try:
                    self._pass_on(client, server)
                finally:
                    with self._lock:
                        self._open -= {client, server}

    def _pass_on(self, client: ssl.SSLSocket, server: ssl.SSLSocket) -> None:
        """Pass bytes on in both directions; OpenSSL crashes if two threads use a connection at once."""
        targets = {client: server, server: client}
        with selectors.DefaultSelector() as chosen:
            for one in targets:
                chosen.register(one, selectors.EVENT_READ)
            while True:
                ready = [one for one in targets if one.pending()]
                for source in ready or [key.fileobj for key, _ in chosen.select()]:
                    assert isinstance(source, ssl.SSLSocket)
                    source.settimeout(0)
                    try:
                        data = source.recv(1 << 16)
                    except ssl.SSLWantReadError:
                        continue
                    if not data:
                        return
                    if source is server and self.delay:
                        time.sleep(self.delay)
                    targets[source].settimeout(None)
                    targets[source].sendall(data)


def _refusal(code: int) -> bytes:
    body = json.dumps({"kind": "Status", "apiVersion": "v1", "message": f"refused with {code}", "code": code})
    return ANSWER.format(code=code, size=len(body), body=body).encode()
