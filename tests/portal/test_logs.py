"""A job's output in the browser: drawn as a terminal would, followed, continued, searched, filtered."""

import contextlib
import json
import shlex
import socket
import threading
from urllib.parse import urlsplit

import pytest

from openpai_tasks.errors import Unreachable
from openpai_tasks.portal.live import KEPT_CHARACTERS, Event, Feed
from openpai_tasks.portal.pages.logs import LogTexts
from openpai_tasks.sdk.logs.output import Chunk
from tests.e2e.test_request_counts import Relay
from tests.portal.conftest import open_link
from tests.storage.relay import received

LOOKS = r"""
import sys
put = sys.stdout.write
put("\x1b[31mred\x1b[0m \x1b[1;38;5;208morange\x1b[0m ")
put("\x1b[38;2;1;2;3mexact\x1b[m \x1b[97;44mboth\x1b[0m plain\n")
put("  0%|    | 0/9\r 50%|##  | 5/9\r100%|####| 9/9\n")
put("loading........\rdone\x1b[K\n")
put("abcdef\rXY\n")
put("one\x1b[1A\x1b[2Jline\x1b]0;title\x07 still\n")
put("<img src=x onerror=alert(1)><script>alert(2)</script>\n")
put("x" * 30000 + "\n")
sys.stderr.write("to stderr\n")
"""


def submit(cluster, name, program, *flags):
    (cluster.project / f"{name}.py").write_text(program)
    cluster.ok("job.sub", f"python3 {name}.py", "--sources", f"{name}.py", "-j", name, *flags)


def events(visitor, path, most=None):
    """Yield the id, name and value of each event that a page would get."""
    with visitor.get(path, stream=True) as answer:
        fields = {}
        for line in answer.iter_lines():
            name, _, value = line.decode().partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
                fields = {}


def texts(found):
    return "".join(text for _, name, value in found if name == "log" for _, text in value)


@pytest.fixture(scope="module")
def looks(cluster):
    submit(cluster, "looks", LOOKS)
    cluster.ok("job.wait", "looks")


def test_output_is_drawn_as_a_terminal_shows_it(looks, tab):
    tab.goto(f"{tab.root}/c/local/jobs/looks/logs")
    tab.wait_for_selector("[data-log-status]:has-text('complete')")
    lines = tab.locator(".log-line").all_text_contents()
    assert lines[:6] == [
        "red orange exact both plain",
        "100%|####| 9/9",
        "done",
        "XYcdef",
        "oneline still",
        "<img src=x onerror=alert(1)><script>alert(2)</script>",
    ]
    assert len(lines[6]) < 21000 and "the download has all of it" in lines[6] and "to stderr" in lines
    colours = tab.evaluate(
        """() => [...document.querySelector(".log-line").querySelectorAll("span")].map(
            (span) => [span.className, getComputedStyle(span).color, span.textContent])"""
    )
    assert colours == [
        ["fg-1", "rgb(255, 143, 132)", "red"],
        ["bold", "rgb(255, 135, 0)", "orange"],
        ["", "rgb(1, 2, 3)", "exact"],
        ["fg-15 bg-4", "rgb(255, 255, 255)", "both"],
    ]
    tab.select_option("[data-log-stream]", "stderr")
    tab.wait_for_selector("[data-log-status]:has-text('1 line, complete')")
    assert tab.locator(".log-line").all_text_contents() == ["to stderr"]


def test_tasks_are_merged_with_labels_or_side_by_side_and_searched(cluster, tab):
    document = {
        "protocolVersion": 2,
        "name": "pair",
        "type": "job",
        "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "python:3"}],
        "taskRoles": {
            "main": {
                "instances": 2,
                "dockerImage": "image",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
                "commands": [
                    "python3 -c \"import os; i = os.environ['PAI_TASK_INDEX']; "
                    "[print(f'task {i} line {n}') for n in range(300)]; print('half', end='')\""
                ],
            }
        },
    }
    (cluster.project / "pair.json").write_text(json.dumps(document))
    cluster.ok("job.submit", "pair.json")
    cluster.ok("job.wait", "pair")
    tab.goto(f"{tab.root}/c/local/jobs/pair/logs")
    tab.wait_for_selector("[data-log-status]:has-text('602 lines, complete')")
    lines = tab.locator(".log-line").all_text_contents()
    assert "main-0task 0 line 299" in lines and "main-1half" in lines and "main-0half" in lines
    tab.fill("[data-log-search]", "LINE 299")
    tab.wait_for_selector("[data-log-found]:has-text('1 of 2 lines')")
    first = tab.locator(".current").text_content()
    tab.click("[data-log-next]")
    tab.wait_for_selector("[data-log-found]:has-text('2 of 2 lines')")
    assert tab.locator(".current").text_content() != first
    tab.press("[data-log-search]", "Shift+Enter")
    tab.wait_for_selector("[data-log-found]:has-text('1 of 2 lines')")
    assert not tab.locator("[data-log-follow]").is_checked()
    tab.select_option("[data-log-view]", "columns")
    tab.wait_for_selector("[data-log-status]:has-text('602 lines, complete')")
    assert sorted(tab.locator(".log-head").all_text_contents()) == ["main-0", "main-1"]
    tab.uncheck("[data-log-wrap]")
    assert tab.locator("#log.nowrap").count() == 1
    tab.select_option("[data-log-task]", label="main-1")
    tab.wait_for_selector("[data-log-status]:has-text('301 lines, complete')")
    with tab.expect_download() as saving:
        tab.click("[data-log-download]")
    assert saving.value.suggested_filename == "pair-main-1.log"
    assert saving.value.path().read_text().splitlines()[0] == "task 1 line 0"


def test_a_page_that_reconnects_gets_what_it_missed_and_nothing_twice(cluster, visitor, tmp_path):
    gate = tmp_path / "go"
    command = f"echo before; until test -e {shlex.quote(str(gate))}; do sleep 0.1; done; echo after"
    cluster.ok("job.sub", command, "-j", "gated")
    path = "/c/local/jobs/gated/logs.live"
    stream = events(visitor, path)
    seen = [next(stream)]
    while "before" not in texts(seen):
        seen.append(next(stream))
    stream.close()  # as when the connection is lost
    gate.touch()
    cluster.ok("job.wait", "gated")
    rest = list(events(visitor, f"{path}?after={seen[-1][0]}"))
    assert texts(rest) == "after\n" and rest[-1][1] == "end" and "begin" not in [name for _, name, _ in rest]
    replayed = list(events(visitor, f"{path}?after={seen[-1][0].partition('.')[0]}.0"))
    assert texts(replayed) == "before\nafter\n"  # what was sent, but did not arrive, is sent again
    for unknown in ("", "x.1", "x", seen[-1][0].replace(".", ".999")):
        fresh = list(events(visitor, f"{path}?after={unknown}"))
        assert fresh[0][1] == "begin" and texts(fresh) == "before\nafter\n"


class Cuttable:
    """A relay to the portal that can drop all its connections."""

    def __init__(self, port):
        self._port, self._open = port, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                self._open += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source, target):
        with contextlib.suppress(OSError):
            for piece in received(source):
                target.sendall(piece)
            target.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self):
        self._listener.close()
        self.cut()


def test_the_browser_continues_after_a_lost_connection(cluster, chromium, link, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    wait = "until test -e {}; do sleep 0.1; done"
    halves = r"printf 'torn \033[3'", r"printf '2mgreen\033[0m\n'"
    command = f"seq 1 50; {wait.format(first)}; seq 51 100; {halves[0]}; {wait.format(second)}; {halves[1]}"
    cluster.ok("job.sub", command, "-j", "counts")
    address = link()
    relay = Cuttable(urlsplit(address).port)
    page = chromium.new_context().new_page()
    try:
        root = open_link(page, address.replace(f":{urlsplit(address).port}/", f":{relay.port}/"))
        page.goto(f"{root}/c/local/jobs/counts/logs")
        page.wait_for_selector("[data-log-status]:has-text('50 lines')")
        relay.cut()
        page.wait_for_selector("[data-log-status]:has-text('connection was lost')")
        first.touch()
        page.wait_for_selector("[data-log-status]:has-text('101 lines')")
        relay.cut()
        second.touch()
        page.wait_for_selector("[data-log-status]:has-text('101 lines, complete')")
        shown = page.locator(".log-line").all_text_contents()
        assert shown == [*(str(number) for number in range(1, 101)), "torn green"]
        assert page.locator(".fg-2").text_content() == "green"
        page.wait_for_selector(".heading .state-succeeded")  # the follower knows it without another request
    finally:
        page.context.close()
        relay.close()


def test_long_output_is_cut_with_a_notice_and_downloaded_whole(cluster, visitor, tab):
    cluster.ok("job.sub", "seq 1 12000", "-j", "long")
    cluster.ok("job.wait", "long")
    tab.goto(f"{tab.root}/c/local/jobs/long/logs")
    tab.wait_for_selector("[data-log-status]:has-text('10,000 lines, complete')")
    tab.wait_for_selector("[data-log-notice]:has-text('last 10,000 lines of each task')")
    tab.click("[data-log-notice] button")
    tab.wait_for_selector("[data-log-status]:has-text('12,000 lines, complete')")
    assert visitor.get("/c/local/jobs/long/logs.txt").text.count("\n") == 12000


def test_a_job_is_followed_through_a_restart_of_the_cluster(cluster, chromium, link, tmp_path):
    gate = tmp_path / "go"
    cluster.ok("job.sub", f"echo one; until test -e {gate}; do sleep 0.1; done; echo two", "-j", "outlives")
    page = chromium.new_context().new_page()
    page.goto(f"{open_link(page, link())}/c/local/jobs/outlives/logs")
    page.wait_for_selector(".log-line:text('one')")
    page.wait_for_selector("[data-log-task] option:text('main-0')", state="attached")
    cluster.ok("cluster.stop", "--keep-jobs")
    page.wait_for_selector("[data-log-status]:not(:has-text('lines'))")
    cluster.ok("cluster.start")
    gate.touch()
    page.wait_for_selector("[data-log-status]:has-text('2 lines, complete')")
    assert page.locator(".log-line").all_text_contents() == ["one", "two"]
    page.context.close()


def test_earlier_attempts_have_their_own_output(cluster, visitor):
    cluster.ok(
        "job.sub", "echo attempt $FC_FRAMEWORK_ATTEMPT_ID; exit 1", "-j", "tries", "-u", "jobRetryCount=1"
    )
    assert cluster.inv("job.wait", "tries").code == 1
    for attempt in (0, 1):
        found = events(visitor, f"/c/local/jobs/tries/logs.live?attempt={attempt}")
        assert texts(found) == f"attempt {attempt}\n"
    assert "<option>0</option>" in visitor.get("/c/local/jobs/tries/logs").text


def test_a_page_starts_again_if_what_it_missed_is_no_longer_kept():
    half = KEPT_CHARACTERS // 2 + 1
    feed = Feed(Event("log", letter * half) for letter in "abc")
    reader = feed.read(0)
    assert [next(reader).value[0] for _ in range(3)] == ["a", "b", "c"]
    assert not feed.has_after(1) and feed.has_after(2) and feed.has_after(3) and not feed.has_after(4)
    assert [event.value[0] for event in feed.read(2)] == ["c"]


def test_output_that_failed_is_not_continued():
    def steps():
        yield Event("log", "a")
        raise Unreachable("gone")

    feed = Feed(steps())
    reader = feed.read(0)
    next(reader)
    with pytest.raises(Unreachable):
        next(reader)
    assert not feed.has_after(1)  # else the page would take it for complete


def test_a_character_in_two_pieces_is_one_character():
    sent = LogTexts(10)
    pieces = [Chunk("a", b"\xe2\x82"), Chunk("b", b"x\n"), Chunk("a", b"\xac\xff\n")]
    held = [event for piece in pieces for event in sent.feed(piece)]
    (event,) = [*held, *sent.flush()]
    assert event.value == [("b", "x\n"), ("a", "\u20ac\ufffd\n")]


def test_a_page_learns_that_there_is_no_output_yet():
    sent = LogTexts(10)
    held = [event for _ in range(2) for event in sent.feed(Chunk("a", b"", pause=1.0))]
    assert [(event.event, event.value) for event in held] == [("log", [])]


def test_following_in_the_browser_costs_no_more_requests_than_the_command(cluster, visitor, tmp_path):
    home = cluster.home / "local"
    port = json.loads((home / "server.json").read_text())["port"]
    login = json.loads((home / "credentials.json").read_text())
    (tmp_path / "password").write_text(login["password"])
    relay = Relay(port, login["user"])
    known = ("-a", "lab", "--pai-uri", relay.uri, "--user", login["user"])
    cluster.ok("cluster.add", *known, "--password-file", str(tmp_path / "password"))
    cluster.ok("job.sub", "seq 1 20000", "-j", "counted")
    cluster.ok("job.wait", "counted")

    def asked():
        found = [f"{request.method} {request.path}" for request in relay.seen]
        relay.seen.clear()
        return found

    try:
        visitor.get("/c/lab/jobs/counted/logs")
        asked()
        assert texts(events(visitor, "/c/lab/jobs/counted/logs.live")).endswith("20000\n")
        by_page = asked()
        cluster.ok("job.logs", "counted", "--follow", "-a", "lab")
        assert 0 < len(by_page) <= len(asked())
    finally:
        relay.close()
        cluster.ok("cluster.delete", "lab")


def test_log_records_are_filtered_by_level(cluster, visitor):
    record = {"time": 1.5, "logger": "<i>train</i>", "message": "<b>hello</b>", "exception": "Trace\nback"}
    lines = [{**record, "level": "INFO"}, {**record, "level": "ERROR", "message": "very bad"}]
    submit(
        cluster, "speaks", "".join(f"print({json.dumps(line)!r})\n" for line in lines) + "print('other')\n"
    )
    cluster.ok("job.wait", "speaks")
    page = visitor.get("/c/local/jobs/speaks/records").text
    assert "&lt;b&gt;hello&lt;/b&gt;" in page and "very bad" in page and "<b>hello" not in page
    page = visitor.get("/c/local/jobs/speaks/records?level=ERROR").text
    assert "hello" not in page and "very bad" in page
    wrong = visitor.get("/c/local/jobs/speaks/records?q=(").text
    assert "is not a regular expression" in wrong
