"""A task's output where each generation of server keeps it, over real HTTP."""

import html

import pytest

from openpai_tasks.client import Client
from openpai_tasks.credentials import Credentials
from openpai_tasks.errors import ApiError, ConfigError
from openpai_tasks.protocol.log_addresses import addresses, text_of_page
from openpai_tasks.registry import Cluster
from openpai_tasks.sdk.logs import Reader, Which, output
from tests.scripted import Said, Scripted

API = "/rest-server/api"
PAGE = "/yarn/10.0.0.1:8042/node/containerlogs/container_1/alice/"
MANAGER = "/log-manager/10.0.0.1:9103/tail/alice/md5/main/uid/"
FULL = MANAGER.replace("/tail/", "/full/")
ENDPOINT = "/api/v2/jobs/alice~x/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"


class LogServer(Scripted):
    """Jobs of one task whose logs are byte strings; ``job`` is told as each generation tells it."""

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
        return Reader(client, job, job.tasks[0], stream)

    def read(self, stream="all"):
        return b"".join(output(self.client(), "x", Which(stream=stream)))

    def write(self, path, data):
        self.logs[path] = self.logs.get(path, b"") + data
        self.answers[f"GET {path}"] = lambda asked: part(self.logs[path], asked)

    def write_page(self, path, data):
        self.logs[path] = self.logs.get(path, b"") + data
        self.answers[f"GET {path}"] = lambda asked: page(self.logs[path], asked)


def part(data, asked):
    start = int(asked.headers["Range"].removeprefix("bytes=").rstrip("-"))
    return Said(data[start:], 206) if start < len(data) else Said("", 416)


def page(data, asked):
    """As YARN's NodeManager shows a log to people."""
    start = int(asked.query.get("start", -4096))
    shown = html.escape(data[start:].decode("utf-8", "replace"))
    note = f"<p>Showing {len(data) - start} bytes of {len(data)} total.</p>" if start else ""
    return Said(f"<html><table><td class='content'>{note}\n<pre>{shown}</pre></td></table></html>")


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
def test_the_whole_log_is_beside_the_address_that_is_told(log, expected):
    assert addresses(log).get("stdout") == expected


def test_a_log_manager_is_asked_for_the_whole_log_without_a_token(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    for name in ("stdout", "stderr", "all"):
        server.write(f"{FULL}user.pai.{name}", name.encode())
    assert [server.read(name) for name in ("stdout", "stderr", "all")] == [b"stdout", b"stderr", b"all"]
    assert [one.token for one in log_requests(server)] == [""] * 3


def test_a_log_that_is_not_written_yet_is_empty(serve):
    server = serve("0.18")
    assert server.read() == b""
    server.log = server.uri + MANAGER
    assert server.read() == b""


def test_a_log_manager_that_fails_is_an_error(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    server.answers[f"GET {FULL}user.pai.all"] = Said("<html>no</html>", 403)
    with pytest.raises(ApiError, match="403"):
        server.read()


def test_a_page_is_read_as_the_log_that_it_shows(serve):
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


def test_a_page_is_read_on_from_where_it_ended_even_inside_a_character(serve):
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


def test_a_page_that_only_says_that_there_is_no_log_is_empty():
    assert text_of_page("<html><h1>Cannot find this log on the local disk.</h1></html>") == b""
    assert text_of_page("<pre></pre>") == b""


@pytest.mark.parametrize("generation, log", [("0.14", PAGE), ("0.18", MANAGER)])
def test_following_goes_on_until_the_job_is_over(serve, generation, log):
    server = serve(generation)
    folder = PAGE if generation == "0.14" else FULL
    file = f"{folder}user.pai.stdout" + ("/" if generation == "0.14" else "")
    write = server.write_page if generation == "0.14" else server.write
    chunks = output(server.client(), "x", Which(stream="stdout"), follow=True)
    server.log = server.uri + log
    write(file, b"one\n")
    assert next(chunks) == b"one\n"
    write(file, b"two\n")
    assert next(chunks) == b"two\n"
    server.state = "SUCCEEDED"
    assert list(chunks) == []


def test_a_retrys_own_log_follows_that_of_the_try_before(serve):
    server = serve("0.18")
    server.log = server.uri + MANAGER
    server.write(f"{FULL}user.pai.all", b"first\n")
    chunks = output(server.client(), "x", Which(), follow=True, lines=1)
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
            return Said({"code": "UnauthorizedUserError", "message": "expired"}, 401)
        return part(server.logs[asked.path.rpartition("/")[2]], asked)

    server.answers[f"GET /rest-server{ENDPOINT}"] = locations
    for name in ("all", "all.1", "stdout"):
        server.answers[f"GET /log-manager/10.0.0.1:9103/api/v1/logs/{name}"] = log
    return server


def test_an_address_that_has_expired_is_asked_for_again(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    reader = server.reader()
    assert list(reader.read()) == [b"one\n"]
    server.tickets += 1
    server.logs["all"] += b"two\n"
    assert list(reader.read()) == [b"two\n"]
    assert {one.token for one in log_requests(server)} == {""}


def test_a_log_that_was_put_away_comes_first_and_once(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    reader = server.reader()
    assert list(reader.read()) == [b"one\n"]
    server.logs |= {"all.1": b"one\ntwo\n", "all": b"three\n"}
    server.tickets += 1
    assert list(reader.read()) == [b"two\n", b"three\n"]
    assert server.read() == b"one\ntwo\nthree\n"


def test_servers_between_1_1_and_1_3_keep_logs_as_the_older_do(serve):
    server = serve("1.8")
    server.log = server.uri + MANAGER
    server.write(f"{FULL}user.pai.all", b"hello\n")
    assert server.read() == b"hello\n"


def test_a_role_goes_by_its_name_in_the_document_too(serve):
    server = serve_18(serve)
    server.logs["all"] = b"one\n"
    client = server.client()
    assert b"".join(output(client, "x", Which(role="Ma_in"))) == b"one\n"
    with pytest.raises(ConfigError, match="no role 'ps'"):
        list(output(client, "x", Which(role="ps")))
