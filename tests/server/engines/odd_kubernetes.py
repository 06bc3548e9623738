"""A Kubernetes that gives odd answers: an HTTP server on a Unix socket, behind a program named kubectl."""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

KUBECTL = """#!/bin/sh
case "$*" in
*--unix-socket=*) ln -s {socket} "${{*#*--unix-socket=}}"; exec sleep 600 ;;
*' /bin/sh '*) printf '\\nend\\n' ;;
*) echo ns ;;
esac
"""
LOG = "2024-01-01T00:00:01.1Z line 1\n2024-01-01T00:00:02.1Z line 2\n"


class OddKubernetes(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Runs each pod as soon as its secret is there; it has ended with 3 at once."""

    daemon_threads = True

    def __init__(self, socket: Path) -> None:
        self.odd: bytes | None = None  # the first answer to each request, from now on
        self.asked: set[tuple[str, str]] = set()
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.changed = threading.Condition()
        super().__init__(str(socket), _Handler)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | int:
        """Return the answer, or the number of an error."""
        kind, _, name = path.removeprefix("/api/v1/namespaces/ns").strip("/").partition("/")
        if "selfsubjectaccessreviews" in path:
            return {"metadata": {}, "status": {"allowed": True}}
        if method == "POST":
            return self._create(kind, body)
        with self.changed:
            if not name:
                items = list(self.pods.values()) if kind == "pods" else []
                return {"metadata": {"resourceVersion": str(len(self.created))}, "items": items}
            if name not in self.pods:
                return 404
            if method == "DELETE":
                del self.pods[name]
                return {"metadata": {}}
            return self.pods[name]

    def _create(self, kind: str, body: dict[str, Any]) -> dict[str, Any] | int:
        name = body["metadata"]["name"]
        with self.changed:
            if kind == "pods":
                if name in self.pods:
                    return 409
                body["metadata"] |= {"uid": name, "namespace": "ns", "resourceVersion": "1"}
                self.created.append(name)
                self.pods[name] = body
                self.changed.notify_all()
            elif name in self.pods:
                ended = {"exitCode": 3, "finishedAt": "2024-01-01T00:00:02Z"}
                states = [{"name": "task", "state": {"terminated": ended}}]
                self.pods[name] |= {"status": {"phase": "Failed", "containerStatuses": states}}
                self.changed.notify_all()
        return body


class _Handler(BaseHTTPRequestHandler):
    def _reply(self) -> None:
        kube, url = cast("OddKubernetes", self.server), urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        if kube.odd is not None and (self.command, url.path) not in kube.asked:
            kube.asked.add((self.command, url.path))
            self.wfile.write(kube.odd)
            return
        if url.path.endswith("/log"):
            self._send(200, LOG.encode())
        elif "watch" in parse_qs(url.query):
            self._watch(kube)
        else:
            found = kube.answer(self.command, url.path, body)
            if isinstance(found, int):
                reason = {409: "AlreadyExists", 404: "NotFound"}[found]
                self._send(found, json.dumps({"message": reason, "reason": reason}).encode())
            else:
                self._send(200, json.dumps(found).encode())

    do_GET = do_POST = do_DELETE = _reply

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        with contextlib.suppress(BrokenPipeError):
            self.end_headers()
            self.wfile.write(content)

    def _watch(self, kube: OddKubernetes) -> None:
        """Send the pods after a change; then the watch ends."""
        with kube.changed:
            self._send(200, b"")
            kube.changed.wait(0.5)
            pods = list(kube.pods.values())
        with contextlib.suppress(BrokenPipeError):  # the engine is being closed
            for pod in pods:
                self.wfile.write(
                    json.dumps({"type": "MODIFIED", "object": pod, "new": [None]}).encode() + b"\n"
                )

    def address_string(self) -> str:
        return "a test"

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def odd_kubernetes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OddKubernetes]:
    """Yield one whose kubectl is the first in PATH."""
    socket = folder / "api"
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(socket=socket))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with OddKubernetes(socket) as kube:
        threading.Thread(target=kube.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield kube
        finally:
            kube.shutdown()
