"""Commands send few requests, few of them in a row, counted by a relay in front of an embedded cluster."""

import http.client
import json
import threading
import urllib.parse

import pytest
import yaml

from tests.scripted import Reply, Scripted

API = "/rest-server/api"
FORWARDED = ("Content-Type", "Authorization", "Range")
RETURNED = ("Content-Type", "Content-Range")
SECONDS = 60  # until requests that should be side by side have failed to be


def call(port, method, path, body="", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body.encode(), headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return (
        content,
        answer.status,
        [(name, answer.getheader(name)) for name in RETURNED if answer.getheader(name)],
    )


class Relay(Scripted):
    """Sends each request to a real server, and returns its response."""

    def __init__(self, port, user):
        super().__init__({})
        self._real, self.user = port, user

    def respond(self, request):
        query = f"?{urllib.parse.urlencode(request.query)}" if request.query else ""
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        content, status, kept = call(self._real, request.method, request.path + query, request.body, headers)
        return Reply(content, status, tuple(kept))


class RoundTrips(Relay):
    """A distant server: holds the answers of a round until all of its requests have come.

    Its storage is that of the embedded cluster, as a share which is mounted here.
    """

    grants = True

    def expect(self, *rounds):
        """Expect rounds of so many requests side by side; what comes after them is answered at once."""
        self.seen.clear()
        self._barriers = [barrier for count in rounds for barrier in [threading.Barrier(count)] * count]

    def respond(self, request):
        number = next(at for at, one in enumerate(self.seen) if one is request)
        answer = super().respond(request) if self.grants else self.refuse(request)
        if request.path == f"{API}/v2/storages/home":
            answer = Reply({"name": "home", "type": "nfs", "data": {"server": "nas", "path": "/home"}})
        if number < len(self._barriers):
            self._barriers[number].wait(SECONDS)  # raises, and so gives no answer, if they come in a row
        return answer

    def refuse(self, request):
        """Answer as a server that grants no storage any longer."""
        if request.path == f"{API}/v2/storages":
            return Reply({"storages": []})
        if "storages:" in request.body:
            return Reply({"code": "NoStorageError", "message": "Storage is not found: home"}, 404)
        return super().respond(request)

    def names(self):
        return [f"{one.method} {one.path.removeprefix(API)}" for one in self.seen]


@pytest.fixture
def relay(cluster):
    """A relay that the shell knows as the cluster `lab`."""
    home = cluster.home / "local"
    port = json.loads((home / "server.json").read_text())["port"]
    login = json.loads((home / "credentials.json").read_text())
    body = json.dumps({"username": login["user"], "password": login["password"]})
    path = "/api/v1/authn/basic/login"
    token = json.loads(call(port, "POST", path, body, {"Content-Type": "application/json"})[0])["token"]
    relay = RoundTrips(port, login["user"])
    relay.expect()
    record = {"cluster_alias": "lab", "pai_uri": relay.uri, "user": login["user"], "generation": "1.8"}
    (cluster.home / "clusters.yaml").write_text(yaml.safe_dump([record]))
    mounts = f"lab/home={home}/storage/home"
    cluster.environment |= {"OPENPAI_TOKEN": token, "INVOKE_OPENPAI_STORAGE_MOUNTS": mounts}
    yield relay
    relay.close()


def test_commands_have_few_requests_in_a_row(cluster, relay):
    def requests(rounds, *command):
        """Return the sorted requests of a command, which must come in these rounds."""
        relay.expect(*rounds)
        cluster.ok(*command, "-a", "lab")
        assert len(relay.seen) == sum(rounds), relay.names()
        return sorted(relay.names())

    job = f"/v2/jobs/{relay.user}~one"
    described, events, document = f"GET {job}", f"GET {job}/events", f"GET {job}/config"
    logs = f"GET {job}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
    log = "GET /log-manager/127.0.0.1:9103/api/v1/logs/all"
    storages, storage = "GET /v2/storages", "GET /v2/storages/home"

    sent = requests((1, 1, 1, 1, 1), "job.sub", "echo hello; exit 3", "--job-name", "one")
    assert sent == sorted([storages, storage, described, "POST /v2/jobs", described])
    assert cluster.inv("job.wait", "one", "-a", "lab").code == 3
    assert len(requests((1, 1), "job.sub", "true")) == 2  # the storages are known, and its name is new
    assert requests((1,), "job.list") == ["GET /v2/jobs"]
    assert requests((3,), "job.status", "one") == ["GET /v2/jobs", described, events]
    assert requests((2, 1), "job.logs", "one") == sorted([described, logs, log])
    assert requests((2, 1), "job.logs", "one", "--lines", "1") == sorted([described, logs, log])
    assert requests((4, 1), "job.why", "one") == sorted([described, events, document, logs, log])
    assert requests((2,), "job.outputs", "one") == [described, document]
    assert requests((3, 1), "job.metrics", "one") == sorted([described, document, logs, log])
    cluster.ok("job.sub", "true", "-j", "good", "--follow", "-a", "lab")
    assert requests((4, 1), "job.why", "good")[-1] == f"GET {job.replace('~one', '~good')}/events"
    for path in (cluster.home / "cache" / "facts").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        path.unlink()
    assert requests((2, 1), "job.outputs", "one") == sorted([described, document, storage])


def test_where_the_output_of_a_job_is_gets_known(cluster, relay):
    """The first look at a job whose role is not called main takes one round more."""
    document = yaml.safe_load(cluster.ok("job.sub", "echo hello", "-j", "other", "--preview").out)
    document["taskRoles"] = {"worker": {**document["taskRoles"]["main"], "instances": 2}}
    (cluster.project / "other.yaml").write_text(yaml.safe_dump(document))
    cluster.ok("job.submit", "other.yaml", "--follow", "-a", "local")
    relay.expect(2, 2, 1, 1)  # of two tasks, also
    assert cluster.ok("job.logs", "other", "-a", "lab").out.count("hello") == 2
    relay.expect(2, 1, 1, 1)
    assert cluster.ok("job.logs", "other", "-a", "lab").out.count("hello") == 2
    assert len(relay.seen) == 5


def test_storage_that_is_granted_no_longer_is_not_used_again(cluster, relay):
    """The storages are kept for minutes; the refusal of the cluster is newer."""
    cluster.ok("job.sub", "true", "-a", "lab")
    relay.grants = False
    relay.expect()
    cluster.ok("job.sub", "true", "-a", "lab")
    sent = [request.body for request in relay.seen if request.method == "POST"]
    assert ["name: home" in body for body in sent] == [True, False]
    relay.expect(1, 1)
    cluster.ok("job.sub", "true", "-a", "lab")
    assert len(relay.seen) == 2


def test_listing_clusters_sends_no_request(cluster, relay):
    assert "lab" in cluster.ok("cluster.list").out
    assert relay.seen == []
