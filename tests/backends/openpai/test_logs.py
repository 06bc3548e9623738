"""A task's output where each generation of server keeps it, over real HTTP."""

import html

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.backends.openpai.endpoints import addresses, on_node, text_of_page
from openpai_tasks.errors import ApiError, ConfigError, Unreachable
from openpai_tasks.sdk.logs.output import MOST_ATTEMPTS, LogChoice, read_output
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.ports import free_port
from tests.scripted import Reply, Scripted

API = "/rest-server/api"
PAGE = "/yarn/10.0.0.1:8042/node/containerlogs/container_1/alice/"
MANAGER = "/log-manager/10.0.0.1:9103/tail/alice/md5/main/uid/"
FULL = MANAGER.replace("/tail/", "/full/")
ENDPOINT = "/api/v2/jobs/alice~x/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"


class LogServer(Scripted):
    """Jobs with one task whose logs are byte strings; ``job`` answers as each generation does."""

    def __init__(self, generation):
        super().__init__({})
        self.generation, self.logs, self.state, self.log = generation, {}, "RUNNING", None
        version = "v1" if generation == "0.14" else "v2"
        self.answers[f"GET {API}/{version}/jobs/alice~x"] = self.job

    def job(self, asked):
        task = {"taskIndex": 0, "taskState": self.state, "containerLog": self.log}
        role = {"taskRoleStatus": {"name": "main"}, "taskStatuses": [task]}
        status = {"username": "alice", "state": self.state, "appExitCode": 0}
        return {"name": "x", "jobStatus": status, "taskRoles": {"main": role}}

    def client(self):
        cluster = Cluster("lab", self.uri, "alice", generation=self.generation)
        return Client(cluster, Credentials(token="t0ken"), timeout=30)

    def reader(self, stream="all"):
        client = self.client()
        job = client.job("alice~x")
        return client.open_log(job, job.tasks[0], stream)

    def read(self, stream="all"):
        return b"".join(read_output(self.client(), "x", LogChoice(stream=stream)))

    def write(self, path, data):
        self.logs[path] = self.logs.get(path, b"") + data
        self.answers[f"GET {path}"] = lambda asked: part(self.logs[path], asked)

    def write_page(self, path, data):
        self.logs[path] = self.logs.get(path, b"") + data
        self.answers[f"GET {path}"] = lambda asked: page(self.logs[path], asked)


def part(data, asked):
    first, _, last = asked.headers["Range"].removeprefix("bytes=").partition("-")
    if not first:  # the last bytes
        first, last = str(max(0, len(data) - int(last))), ""
    start, stop = int(first), min(int(last) + 1, len(data)) if last else len(data)
    if start >= len(data):
        return Reply("", 416, headers=(("Content-Range", f"bytes */{len(data)}"),))
    headers = (("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}"),)
    return Reply(data[start:stop], 206, headers)


def page(data, asked):
    """A log as YARN's NodeManager shows it in a web page."""
    start = int(asked.query.get("start", -4096))
    shown = html.escape(data[start:].decode("utf-8", "replace"))
    note = f"<p>Showing {len(data) - start} bytes of {len(data)} total.</p>" if start else ""
    return Reply(f"<html><table><td class='content'>{note}\n<pre>{shown}</pre></td></table></html>")


@pytest.fixture
def serve():
    started = []

    def start(generation):
        started.append(LogServer(generation))
        return started[-1]

    yield start
    for server in started:
        server.close()


def log_requests(server):
    return [one for one in server.seen if not one.path.startswith(API)]


@pytest.mark.parametrize(
    "log, expected",
    [
        (f"https://pai{MANAGER}", f"https://pai{FULL}user.pai.stdout"),
        (
            "http://10.0.0.1:9103/log-manager/tail/a/b/tail/d/",
            "http://10.0.0.1:9103/log-manager/full/a/b/tail/d/user.pai.stdout",
        ),
        (f"https://pai{PAGE}", f"https://pai{PAGE}user.pai.stdout/"),
        (
            "http://10.0.0.1:8042/node/containerlogs/c/a",
            "http://10.0.0.1:8042/node/containerlogs/c/a/user.pai.stdout/",
        ),
        (ENDPOINT, None),
        ("", None),
    ],
)
def test_address_of_the_full_log_is_derived_from_the_reported_address(log, expected):
    assert addresses(log).get("stdout") == expected


def test_full_log_is_requested_from_the_log_manager_without_a_token(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    for name in ("stdout", "stderr", "all"):
        server.write(f"{FULL}user.pai.{name}", name.encode())
    assert [server.read(name) for name in ("stdout", "stderr", "all")] == [b"stdout", b"stderr", b"all"]
    assert [one.token for one in log_requests(server)] == [""] * 3


def test_log_that_is_not_written_yet_is_empty(serve):
    server = serve("0.18")
    assert server.read() == b""
    server.log = server.uri + MANAGER
    assert server.read() == b""


def test_error_of_the_log_manager_is_raised(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    server.answers[f"GET {FULL}user.pai.all"] = Reply("<html>no</html>", 403)
    with pytest.raises(ApiError, match="403"):
        server.read()


def test_log_is_extracted_from_its_web_page(serve):
    server = serve("0.14")
    server.log = server.uri + PAGE
    text = "a <b> & 'c' \"d\" ü\n".encode() * 1000  # more than the 4 KB that a page shows unasked
    server.write_page(f"{PAGE}user.pai.stdout/", text)
    server.write_page(f"{PAGE}user.pai.stderr/", b"oops\n")
    assert [server.read("stdout"), server.read("stderr"), server.read()] == [
        text,
        b"oops\n",
        text + b"oops\n",
    ]
    assert {one.token for one in server.seen} == {""}


def test_web_page_log_is_resumed_even_inside_a_multibyte_character(serve):
    server = serve("0.14")
    server.log = server.uri + PAGE
    file = f"{PAGE}user.pai.stdout/"
    server.write_page(file, "grün".encode()[:3])
    reader = server.reader("stdout")
    assert b"".join(reader.read()) == b"gr"
    server.write_page(file, "grün\n".encode()[3:])
    assert b"".join(reader.read()) == "ün\n".encode()
    assert list(reader.read()) == []
    assert [one.query["start"] for one in log_requests(server)] == ["0", "2", "6"]


def test_web_page_without_a_log_is_empty():
    assert text_of_page("<html><h1>Cannot find this log on the local disk.</h1></html>") == b""
    assert text_of_page("<pre></pre>") == b""


@pytest.mark.parametrize("generation, log", [("0.14", PAGE), ("0.18", MANAGER)])
def test_following_a_log_ends_with_the_job(serve, generation, log):
    server = serve(generation)
    folder = PAGE if generation == "0.14" else FULL
    file = f"{folder}user.pai.stdout" + ("/" if generation == "0.14" else "")
    write = server.write_page if generation == "0.14" else server.write
    chunks = read_output(server.client(), "x", LogChoice(stream="stdout"), follow=True)
    server.log = server.uri + log
    write(file, b"one\n")
    assert next(chunks) == b"one\n"
    write(file, b"two\n")
    assert next(chunks) == b"two\n"
    server.state = "SUCCEEDED"
    assert list(chunks) == []


def test_log_of_a_retry_follows_the_log_of_the_previous_attempt(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    server.write(f"{FULL}user.pai.all", b"first\n")
    chunks = read_output(server.client(), "x", LogChoice(), follow=True, lines=1)
    assert next(chunks) == b"first\n"
    server.log = server.log.replace("/uid/", "/uid2/")
    server.write(FULL.replace("/uid/", "/uid2/") + "user.pai.all", b"second\nthird\n")
    server.state = "SUCCEEDED"
    assert list(chunks) == [b"second\nthird\n"]


def serve_18(serve):
    """A 1.8 server whose addresses end with the ticket that was handed out last."""
    server = serve("1.8")
    server.log, server.tickets = ENDPOINT, 0

    def locations(asked):
        server.tickets += 1
        uris = {
            name: f"/log-manager/10.0.0.1:9103/api/v1/logs/{name}?token={server.tickets}"
            for name in server.logs
        }
        return {"locations": [{"name": name, "uri": uri} for name, uri in uris.items()]}

    def log(asked):
        if asked.query["token"] != str(server.tickets):
            return Reply({"code": "UnauthorizedUserError", "message": "expired"}, 401)
        return part(server.logs[asked.path.rpartition("/")[2]], asked)

    server.answers[f"GET /rest-server{ENDPOINT}"] = locations
    for name in ("all", "all.1", "stdout"):
        server.answers[f"GET /log-manager/10.0.0.1:9103/api/v1/logs/{name}"] = log
    return server


def test_expired_log_address_is_requested_again(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    reader = server.reader()
    assert list(reader.read()) == [b"one\n"]
    server.tickets += 1
    server.logs["all"] += b"two\n"
    assert list(reader.read()) == [b"two\n"]
    assert {one.token for one in log_requests(server)} == {""}


def test_rotated_log_is_read_first_and_only_once(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    reader = server.reader()
    assert list(reader.read()) == [b"one\n"]
    server.logs |= {"all.1": b"one\ntwo\n", "all": b"three\n"}
    server.tickets += 1
    assert list(reader.read()) == [b"two\n", b"three\n"]
    assert server.read() == b"one\ntwo\nthree\n"


def test_servers_1_1_to_1_3_serve_logs_like_older_servers(serve):
    server = serve("1.8")
    server.log = server.uri + MANAGER
    server.write(f"{FULL}user.pai.all", b"hello\n")
    assert server.read() == b"hello\n"


def test_role_is_also_found_by_its_name_in_the_document(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    client = server.client()
    assert b"".join(read_output(client, "x", LogChoice(role="Ma_in"))) == b"one\n"
    with pytest.raises(ConfigError, match="no role 'ps'"):
        list(read_output(client, "x", LogChoice(role="ps")))


# At the node itself, behind a REST server without the reverse proxy

TICKET = "eyJhbGciOiJIUzI1NiJ9.secret"
ON_NODE = "/api/v1/logs/all"


def without_proxy(serve, node):
    """A 1.8 server on its own port, which has no /log-manager/ route."""
    server = serve("1.8")
    server.log, path = ENDPOINT, "/api/v2/jobs/alice~x"
    server.answers = {
        f"GET {path}": server.job,
        f"GET {ENDPOINT}": {
            "locations": [
                {"name": "all", "uri": f"/log-manager/{node}{ON_NODE}?username=alice&token={TICKET}"}
            ]
        },
    }
    return server


def client_of(server, **options):
    cluster = Cluster("lab", server.uri, "alice", generation="1.8", prefix="")
    return Client(cluster, Credentials(token="t0ken"), timeout=30, **options)


def test_without_a_reverse_proxy_the_log_is_read_from_its_node_with_its_log_token(serve):
    node = serve("1.8")
    node.write(ON_NODE, b"hello\n")
    server = without_proxy(serve, f"127.0.0.1:{node.port}")
    assert b"".join(read_output(client_of(server), "x", LogChoice())) == b"hello\n"
    [asked] = node.seen
    assert (asked.path, asked.query["token"], asked.token) == (ON_NODE, TICKET, "")
    assert not [one for one in server.seen if "log-manager" in one.path]


def test_unreachable_node_gives_a_warning_without_the_log_token(serve):
    server = without_proxy(serve, f"127.0.0.1:{free_port()}")
    messages = []
    chunks = read_output(
        client_of(server, say=messages.append),
        "x",
        LogChoice(),
        follow=True,
        on_job=lambda job: finish(server),
    )
    assert list(chunks) == []
    assert len(messages) == 2 and messages[0].startswith("warning: cannot read the output of main-0: ")
    assert TICKET not in "".join(messages)
    with pytest.raises(Unreachable) as caught:
        list(read_output(client_of(server), "x", LogChoice()))
    assert TICKET not in str(caught.value)


def finish(server):
    """Report the job as finished from now on."""
    server.state = "SUCCEEDED"


@pytest.mark.parametrize(
    "uri, expected",
    [
        ("/log-manager/10.0.0.1:9103/api?token=a", "http://10.0.0.1:9103/api?token=a"),
        ("/log-manager/[fd00::1]:9103/api", "http://[fd00::1]:9103/api"),
        ("/log-manager/me@10.0.0.1:9103/api", ""),
        ("/log-manager/10.0.0.1/api", ""),
        ("https://blobs/log-manager/10.0.0.1:9103/api", ""),
    ],
)
def test_only_log_manager_paths_with_host_and_port_become_node_urls(uri, expected):
    assert on_node(uri) == expected


def test_logs_of_an_https_cluster_are_never_read_over_plain_http(serve):
    client = Client(Cluster("lab", "https://127.0.0.1:9", "alice", prefix=""), Credentials(token="t0ken"))
    assert client._log_url("/log-manager/10.0.0.1:9103/a").startswith("https://127.0.0.1:9/log-manager/")


@pytest.mark.parametrize("uri", [f"http://[odd/?token={TICKET}", f"http://h:99999999/?token={TICKET}"])
def test_invalid_log_address_is_refused_without_showing_its_token(serve, uri):
    client = client_of(serve("1.8"))
    with pytest.raises((ApiError, Unreachable)) as caught:
        list(client.read_log(uri))
    assert TICKET not in str(caught.value)


# Attempts


def test_following_requests_a_limited_number_of_attempts(serve):
    server = serve("1.8")
    job, many = f"{API}/v2/jobs/alice~x", 10**9
    status = {"username": "alice", "state": "SUCCEEDED", "attemptId": many}
    server.answers[f"GET {job}"] = {"jobStatus": status, "taskRoles": {}}
    for attempt in range(many - 60, many):
        server.answers[f"GET {job}/attempts/{attempt}"] = {"jobStatus": status, "taskRoles": {}}
    messages = []
    cluster = Cluster("lab", server.uri, "alice", generation="1.8")
    client = Client(cluster, Credentials(token="t0ken"), say=messages.append)
    assert list(read_output(client, "x", LogChoice(), follow=True)) == []
    assert len(server.seen) == 1 + MOST_ATTEMPTS
    [line] = messages
    count = many - MOST_ATTEMPTS
    assert line == f"skipping the output of {count} attempts; see the first with `pai job.logs x --attempt 0`"


def test_last_lines_are_right_after_a_failed_read(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\ntwo\nthree\n"
    good, failing = server.answers["GET /log-manager/10.0.0.1:9103/api/v1/logs/all"], [Reply("", 502)]
    server.answers["GET /log-manager/10.0.0.1:9103/api/v1/logs/all"] = lambda asked: (
        failing.pop() if failing else good(asked)
    )
    chunks = read_output(
        server.client(), "x", LogChoice(), follow=True, lines=1, on_job=lambda job: finish(server)
    )
    assert list(chunks) == [b"three\n"]
