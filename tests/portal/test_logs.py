"""A job's output in the browser: drawn as a terminal would, followed, continued, searched, filtered."""

import contextlib
import json
import shlex
import socket
import threading
from datetime import datetime
from urllib.parse import urlsplit

import pytest

from openpai_tasks.errors import Unreachable
from openpai_tasks.portal.live import KEPT_CHARACTERS, Event, Feed
from openpai_tasks.portal.pages.logs import LogTexts
from openpai_tasks.sdk.logs.output import Chunk, LogStart
from openpai_tasks.sdk.logs.times import Written
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
    return "".join(text for _, name, value in found if name == "log" for _, text, *_ in value)


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
    error = tab.locator(".log-line.error")
    assert error.all_text_contents() == ["to stderr"]
    tab.check("[data-log-times]")
    assert error.locator("a").get_attribute("data-time")
    assert tab.locator("[data-log-notice]").is_hidden()
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
    assert "main-1task 1 line 299" in lines and "main-1half" in lines
    tab.fill("[data-log-search]", "line 299")
    tab.wait_for_selector("[data-log-found]:has-text('1 of 2 lines')")
    first = tab.locator(".log-line.current").text_content()
    tab.click("[data-log-next]")
    tab.wait_for_selector("[data-log-found]:has-text('2 of 2 lines')")
    assert tab.locator(".log-line.current").text_content() != first
    tab.press("[data-log-search]", "Shift+Enter")
    tab.wait_for_selector("[data-log-found]:has-text('1 of 2 lines')")
    assert not tab.locator("[data-log-follow]").is_checked()
    tab.check("[data-log-follow]")
    tab.select_option("[data-log-view]", "columns")
    tab.wait_for_selector("[data-log-status]:has-text('602 lines, complete')")
    assert sorted(tab.locator(".log-head").all_text_contents()) == ["main-0", "main-1"]
    lines = tab.locator(".log-line").all_text_contents()
    assert lines.count("half") == 2 and "task 0 line 299" in lines and "task 1 line 299" in lines
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
    """A relay to the portal that can drop all its connections, and make new ones wait."""

    def __init__(self, port):
        self._port, self._open = port, []
        self.is_up = threading.Event()
        self.is_up.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self.is_up.wait()
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
        self.is_up.clear()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self):
        self._listener.close()
        self.cut()
        self.is_up.set()


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
        relay.is_up.set()
        first.touch()
        page.wait_for_selector("[data-log-status]:has-text('101 lines')")
        relay.cut()
        relay.is_up.set()
        second.touch()
        page.wait_for_selector("[data-log-status]:has-text('101 lines, complete')")
        shown = page.locator(".log-line").all_text_contents()
        assert shown == [*(str(number) for number in range(1, 101)), "torn green"]
        assert page.locator(".fg-2").text_content() == "green"
        page.wait_for_selector(".heading .state-succeeded")  # the follower knows it without another request
    finally:
        page.context.close()
        relay.close()


def test_a_log_of_200_mb_is_searched_and_read_by_line_with_few_nodes(cluster, tab):
    submit(cluster, "long", "print()")
    cluster.ok("job.wait", "long")
    [log] = (cluster.home / "local" / "jobs").glob("*~long/0/main-0-0/logs/all")
    more = "lr 0.001 images/s 345.6 ".ljust(780, ".")
    with log.open("w") as file:  # as if it had printed all this
        for n in range(1, 250_001):
            file.write(f"step {n} loss {1 / n:.9f} {more}\n")
            if n % 100_000 == 0:
                file.write(f"Needle at {n}\n")
    assert log.stat().st_size > 200_000_000
    tab.goto(f"{tab.root}/c/local/jobs/long/logs")
    tab.wait_for_selector("[data-log-status]:has-text('250,002 lines, complete')")
    tab.wait_for_selector("[data-log-notice]:has-text('The last 10,000 of 250,002 lines')")
    assert tab.locator(".log-number").last.get_attribute("data-number") == "250002"
    # search the whole log, and go to a match
    tab.locator("#log").focus()
    tab.keyboard.press("/")
    tab.keyboard.insert_text("needle")  # at once, as a part of it would have the same lines
    tab.wait_for_selector("[data-log-found]:text-is('1 of 2 lines')")
    assert tab.locator("[data-log-hits] a").all_text_contents() == ["Needle at 100000", "Needle at 200000"]
    tab.wait_for_selector(".log-line.current:has([data-number='100001'])")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".log-line.current:has([data-number='200002'])")
    tab.fill("[data-log-search]", "images/s")
    tab.wait_for_selector("[data-log-found]:text-is('1 of 1,000+ lines')")
    tab.click("[data-log-more]")
    tab.wait_for_selector("[data-log-found]:text-is('1 of 2,000+ lines')")
    tab.fill("[data-log-search]", "")
    tab.wait_for_selector(".log-line.hit", state="detached")
    # a link to a line; before all lines were drawn without marks, the click may be lost
    tab.click(".log-number[data-number='5']")
    tab.wait_for_url("**/logs#L5")
    tab.goto(f"{tab.root}/c/local/jobs")
    tab.goto(f"{tab.root}/c/local/jobs/long/logs#L123456")
    line = tab.locator(".log-line.current")
    line.wait_for()
    assert line.text_content().startswith("step 123455 ")
    # scroll to both ends
    tab.evaluate("() => { document.getElementById('log').scrollTop = 0; }")
    tab.wait_for_selector(".log-number[data-number='1']")
    tab.wait_for_function(  # lines are wrapped, so that the end moves when it is drawn
        """() => {
            document.getElementById("log").scrollTop = 1e9;
            return document.querySelector(".log-number[data-number='250002']");
        }""",
        polling=1000,  # a jump ends the one before, also if its lines are still being loaded
    )
    nodes = tab.evaluate(
        """() => {
            const walker = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
            let count = 0;
            while (walker.nextNode()) count += 1;
            return count;
        }"""
    )
    assert nodes < 5000
    tab.goto(f"{tab.root}/c/local/jobs/long/logs#L300000")
    tab.wait_for_selector("[data-log-status]:has-text('There is no line 300,000')")


def test_a_jump_to_lines_that_load_slowly_is_not_undone_by_new_output(cluster, tab, tmp_path):
    gate = tmp_path / "go"
    more = f"until test -e {gate}; do sleep 0.1; done; seq -f '%g more' 500; sleep 600"
    cluster.ok("job.sub", f"seq -f '%g {'word ' * 48}' 25000; {more}", "-j", "slow")
    tab.goto(f"{tab.root}/c/local/jobs/slow/logs#L14000")
    tab.wait_for_selector("[data-log-status]:has-text('25,000 lines')")
    tab.wait_for_selector(".log-line.current:has([data-number='14000'])")
    tab.set_viewport_size({"width": 600, "height": 900})  # lines get higher, and the space for others, too
    tab.evaluate(
        """() => new Promise((done) => {
            document.getElementById("log").scrollTop += 1;
            requestAnimationFrame(() => requestAnimationFrame(done));
        })"""
    )
    held, is_slow = [], True
    tab.route("**/logs.lines?*", lambda route: held.append(route) if is_slow else route.continue_())
    with tab.expect_request("**/logs.lines?*"):
        tab.evaluate("() => { document.getElementById('log').scrollTop = 0; }")
    gate.touch()
    tab.wait_for_selector("[data-log-status]:has-text('25,500 lines')")
    is_slow, (first, *others) = False, held
    first.abort()  # as all requests when the network changes; it is sent again
    for route in others:
        route.continue_()
    tab.wait_for_selector(".log-number[data-number='1']")
    assert tab.problems == ["Failed to load resource: net::ERR_FAILED"]
    tab.problems.clear()
    cluster.ok("job.stop", "slow")


def test_a_page_of_100_000_lines_has_few_nodes_and_keeps_its_place(cluster, chromium, link, tmp_path):
    gate = tmp_path / "go"
    cluster.ok("job.sub", f"seq 1 5; until test -e {gate}; do sleep 0.1; done; seq 6 100000", "-j", "grows")
    page = chromium.new_context().new_page()
    page.goto(f"{open_link(page, link())}/c/local/jobs/grows/logs")
    page.wait_for_selector(".log-line:text-is('5')")
    page.uncheck("[data-log-follow]")
    gate.touch()
    page.wait_for_selector("[data-log-status]:has-text('100,000 lines, complete')")
    assert page.locator(".log-line").first.text_content() == "1"  # it is not moved
    assert page.locator(".log *").count() < 4000
    page.check("[data-log-follow]")
    page.wait_for_selector(".log-number[data-number='100000']")
    assert page.locator(".log *").count() < 4000
    page.context.close()


def test_lines_of_the_log_are_refused_with_a_sentence(cluster, visitor):
    cluster.ok("job.sub", "seq 1 5", "-j", "five")
    cluster.ok("job.wait", "five")
    page = "/c/local/jobs/five/logs"
    found = visitor.get(f"{page}.lines?first=3&count=9").json()["lines"]
    assert [(text, is_error) for text, _, is_error in found] == [("4", False), ("5", False)]
    assert all(time > 1.7e12 for _, time, _ in found)
    assert visitor.get(f"{page}.count?offset=4").json() == {"line": 2}
    for wrong in ("lines", "lines?first=x&count=2", "lines?first=-1&count=2", "count"):
        assert visitor.get(f"{page}.{wrong}").status_code == 400
    assert visitor.get(f"{page}.lines?first=0&count=2&index=7").status_code == 400
    assert [name for _, name, _ in events(visitor, f"{page}.find.live?q=")] == ["problem"]


def test_the_command_shows_times_if_they_were_recorded(cluster):
    cluster.ok("job.sub", "echo one; echo two >&2", "-j", "timed")
    cluster.ok("job.wait", "timed")
    shown = cluster.ok("job.logs", "timed", "--timestamps").out.splitlines()
    assert sorted(line.partition(" ")[2] for line in shown) == ["one", "two"]
    assert all(datetime.fromisoformat(line.partition(" ")[0]).tzinfo for line in shown)
    assert cluster.ok("job.logs", "timed", "--timestamps", "--follow", "--stderr").out.endswith(" two\n")
    refused = cluster.inv("job.logs", "timed", "--timestamps", "--structured")
    assert refused.code != 0 and "--timestamps cannot be combined with --structured" in refused.err
    [times] = (cluster.home / "local" / "jobs").glob("*~timed/0/main-0-0/logs/times")
    times.unlink()
    without = cluster.ok("job.logs", "timed", "--timestamps", "--stdout")
    assert without.out == "one\n" and "no times were recorded" in without.err


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


def test_a_page_that_reconnects_during_a_step_for_its_lost_connection_continues():
    has_begun, may_end = threading.Event(), threading.Event()

    def steps():
        yield Event("log", "a")
        has_begun.set()
        may_end.wait()
        yield Event("log", "b")

    feed = Feed(steps())
    lost = feed.read(0)
    next(lost)
    reader = threading.Thread(target=next, args=(lost,))
    reader.start()
    has_begun.wait()
    threading.Timer(0.1, may_end.set).start()
    assert feed.has_after(1)
    reader.join()


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
    sent, start = LogTexts(), LogStart(0, 0)
    pieces = [
        *(Chunk("a", b"\xe2\x82", start=start), Chunk("b", b"x\n", start=start)),
        *(Chunk("a", b"\xac\xff\n"), Chunk("a", b"z", written=Written(5, True))),
    ]
    held = [event for piece in pieces for event in sent.feed(piece)]
    (*begun, event) = [*held, *sent.flush()]
    assert [one.event for one in begun] == ["start", "start"]
    assert event.value == [
        ("b", "x\n", None, False),
        ("a", "\u20ac\ufffd\n", None, False),
        ("a", "z", 5, True),
    ]


def test_a_page_learns_that_there_is_no_output_yet():
    sent = LogTexts()
    held = [event for _ in range(2) for event in sent.feed(Chunk("a", b"", pause=1.0))]
    assert [(event.event, event.value) for event in held] == [("log", [])]


def test_following_in_the_browser_costs_few_more_requests_than_the_command(cluster, visitor, tmp_path):
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
        # the page finds the last lines from the end, and asks for their times
        assert 0 < len(by_page) <= len(asked()) + 6
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
