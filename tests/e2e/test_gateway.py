"""A gateway that loses its server in the middle of a submission: one job, whole, never two."""

import http.server
import json
import threading

import pytest
import requests


class Losing(http.server.BaseHTTPRequestHandler):
    """Passes everything on, but answers submissions by 502 after the server took them."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.pass_on()

    def do_PUT(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on(lost=self.path.endswith("/jobs"))

    def pass_on(self, lost=False):
        size = int(self.headers.get("Content-Length") or 0)
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        answer = requests.request(
            self.command,
            self.server.target + self.path,
            data=self.rfile.read(size),
            headers=headers,
            timeout=30,
        )
        body = b"Bad Gateway" if lost else _as_share(self.path, answer.content)
        self.send_response(502 if lost else answer.status_code)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def _as_share(path, content):
    """A cluster elsewhere has no folder of this machine: its storage is a share, which is mounted here."""
    if not path.endswith("/storages/home"):
        return content
    return json.dumps(
        {**json.loads(content), "type": "nfs", "data": {"server": "nas", "path": "/home"}}
    ).encode()


@pytest.fixture
def gateway(cluster):
    login = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Losing) as server:
        server.target = login["uri"]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        cluster.ok("cluster.add", "gw", uri, "--user", login["user"], OPENPAI_TOKEN=login["token"])
        mount = cluster.home / "local" / "storage" / "home"
        cluster.ok("config.set", f"storage.mounts=gw/home={mount}", "--is-global")
        yield cluster
        cluster.ok("cluster.delete", "gw")
        server.shutdown()


def test_a_lost_answer_is_looked_up_and_the_sources_stay(gateway):
    (gateway.project / "s.py").write_text("print('whole')")
    ran = gateway.inv(
        "job.sub", "python3 s.py", "-j", "lost-once", "--sources", "s.py", "-a", "gw", "--follow"
    )
    assert (ran.code, ran.out) == (0, "whole\n"), ran
    jobs = json.loads(gateway.ok("job.list", "--keyword", "lost-once", "-o", "json").out)
    assert len(jobs) == 1
