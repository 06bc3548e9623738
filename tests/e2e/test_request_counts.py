"""Commands send few requests, counted by a relay in front of an embedded cluster."""

import http.client
import json
import urllib.parse

import pytest
import yaml

from tests.scripted import Reply, Scripted

API = "/rest-server/api"
FORWARDED = ("Content-Type", "Authorization")


def call(port, method, path, body="", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body.encode(), headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return content, answer.status, answer.getheader("Content-Type", "")


class Relay(Scripted):
    """Sends each request to a real server, and returns its response."""

    def __init__(self, port, user):
        super().__init__({})
        self._real, self.user = port, user

    def respond(self, request):
        query = f"?{urllib.parse.urlencode(request.query)}" if request.query else ""
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        content, status, kind = call(self._real, request.method, request.path + query, request.body, headers)
        return Reply(content, status, (("Content-Type", kind),))


@pytest.fixture
def relay(cluster):
    """A relay that the shell knows as the cluster `lab`."""
    home = cluster.home / "local"
    port = json.loads((home / "server.json").read_text())["port"]
    login = json.loads((home / "credentials.json").read_text())
    body = json.dumps({"username": login["user"], "password": login["password"]})
    path = "/api/v1/authn/basic/login"
    token = json.loads(call(port, "POST", path, body, {"Content-Type": "application/json"})[0])["token"]
    relay = Relay(port, login["user"])
    record = {"cluster_alias": "lab", "pai_uri": relay.uri, "user": login["user"], "generation": "1.8"}
    (cluster.home / "clusters.yaml").write_text(yaml.safe_dump([record]))
    cluster.environment |= {"OPENPAI_TOKEN": token}
    yield relay
    relay.close()


def test_commands_send_few_requests(cluster, relay):
    def requests(*command):
        relay.seen.clear()
        cluster.ok(*command, "-a", "lab")
        return [f"{request.method} {request.path.removeprefix(API)}" for request in relay.seen]

    job = f"/v2/jobs/{relay.user}~one"
    storages = ["GET /v2/storages", "GET /v2/storages/home"]
    sent = requests("job.sub", "true", "--job-name", "one")
    assert sent == [*storages, f"GET {job}", "POST /v2/jobs", f"GET {job}"]
    assert requests("job.list") == ["GET /v2/jobs"]
    assert requests("job.status", "one") == [f"GET {job}", f"GET {job}/events", "GET /v2/jobs"]


def test_listing_clusters_sends_no_request(cluster, relay):
    assert "lab" in cluster.ok("cluster.list").out
    assert relay.seen == []
