"""A gateway that loses its server during a submission: one complete job, never two."""

import http.server
import json
import threading

import pytest
import requests

DATABASE_DOWN = b'{"code": "ECONNREFUSED", "message": "connect ECONNREFUSED 127.0.0.1:5432"}'
LOST = {502: (502, b"Bad Gateway"), 500: (500, DATABASE_DOWN)}


class Losing(http.server.BaseHTTPRequestHandler):
    """Forwards everything, but answers submissions with an error after the server accepted them.

    Then the next ``server.failing`` reads of jobs fail.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "/jobs/" in self.path and self.server.has_lost and self.server.failing:
            self.server.failing -= 1
            self.answer(500, DATABASE_DOWN, "application/json")
        else:
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
        self.server.has_lost |= lost
        status, body = answer.status_code, _as_share(self.path, answer.content)
        if lost:
            status, body = self.server.lost
        self.answer(status, body, answer.headers.get("Content-Type", "text/plain"))

    def answer(self, status, body, type):
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def _as_share(path, content):
    """Describe the storage as a share, which is mounted here: a remote cluster has no local folder."""
    if not path.endswith("/storages/home"):
        return content
    return json.dumps(
        {**json.loads(content), "type": "nfs", "data": {"server": "nas", "path": "/home"}}
    ).encode()


@pytest.fixture
def gateway(cluster):
    login = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Losing) as server:
        server.target, server.lost, server.failing, server.has_lost = login["uri"], LOST[502], 0, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        cluster.ok("cluster.add", "gw", uri, "--user", login["user"], OPENPAI_TOKEN=login["token"])
        mount = cluster.home / "local" / "storage" / "home"
        cluster.ok("config.set", f"storage.mounts=gw/home={mount}", "--is-global")
        cluster.server = server
        yield cluster
        cluster.ok("cluster.delete", "gw")
        server.shutdown()


def submit(gateway, name):
    (gateway.project / "s.py").write_text(f"print('whole')  # {name}")
    return gateway.inv("job.sub", "python3 s.py", "-j", name, "--sources", "s.py", "-a", "gw", "--follow")


def jobs_named(gateway, name):
    return gateway.ok("job.list", "--keyword", name, "-o", "json").json()


@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("status", [502, 500])
def test_job_with_a_lost_response_is_looked_up_and_keeps_its_sources(gateway, status, failing):
    gateway.server.lost, gateway.server.failing = LOST[status], failing
    name = f"lost-{status}-{failing}"
    ran = submit(gateway, name)
    assert (ran.code, ran.out) == (0, "whole\n"), ran
    assert len(jobs_named(gateway, name)) == 1 and gateway.server.failing == 0


@pytest.mark.parametrize("status", [502, 500])
def test_a_job_that_cannot_be_looked_up_keeps_its_sources(gateway, status):
    gateway.server.lost, gateway.server.failing = LOST[status], 10**6
    name = f"unknown-{status}"
    ran = submit(gateway, name)
    assert (
        ran.code == 121 and f"may have been submitted: check with `inv job.status {name} -a gw`" in ran.err
    ), ran
    assert "Traceback" not in ran.err
    gateway.server.failing = 0
    gateway.ok("job.wait", name, "-a", "gw")
    assert gateway.ok("job.logs", name, "-a", "gw").out == "whole\n"
    assert submit(gateway, name).code == 122  # it exists
    assert len(jobs_named(gateway, name)) == 1
