"""The life of the portal's process: started once, ended when idle, found again, and private."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from openpai_tasks.portal.starting import PROGRAM
from openpai_tasks.settings.home import write_private
from tests.conftest import Shell, make_shell
from tests.portal.conftest import Visitor
from tests.ports import free_port
from tests.processes import kill


def until(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)
    return found


def facts(shell):
    """Return what each running portal has written about itself."""
    return [json.loads(one.read_text()) for one in shell.home.glob("portal/*/server.json")]


def link(shell, *flags):
    ran = shell.pai("cluster.portal", "--no-browser", *flags)
    assert ran.code == 0, ran
    return ran.out.strip()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def own(shell):
    """A shell whose portals are ended after the test."""
    yield shell
    for one in facts(shell):
        os.kill(one["pid"], signal.SIGTERM)
        until(lambda pid=one["pid"]: not is_alive(pid))


def start_with_limit(shell, seconds):
    """Start the project's portal as the command does; SIGUSR1 sets another time until it counts as idle."""
    link(shell)
    (folder,) = shell.home.glob("portal/*")
    shell.pai("cluster.portal", "--stop")
    code = (
        "import signal; from openpai_tasks.portal import __main__ as it; original = it.end_when_idle\n"
        "def end_when_idle(activity, home, _):\n"
        f"    signal.signal(signal.SIGUSR1, lambda *_: original(activity, home, {seconds}))\n"
        "it.end_when_idle = end_when_idle; it.main()"
    )
    argv = [sys.executable, "-c", code, "--home", str(folder), "--project", str(shell.project)]
    started = subprocess.Popen(argv, env=shell.environment, cwd=folder)
    until(lambda: facts(shell))
    return started


def test_it_ends_when_idle_but_not_while_a_page_is_followed(own):
    started = start_with_limit(own, 2)
    following = events(Visitor(link(own)), "/c/local/cluster.live")
    assert next(following) == "html"
    started.send_signal(signal.SIGUSR1)
    own.ok("job.sub", "sleep 600")
    assert next(following) == "html"  # the page is sent again after a pause that is longer
    assert started.poll() is None
    following.close()
    assert started.wait(60) == 0
    assert not facts(own)


def test_commands_at_once_start_one_portal(own):
    racing = [own.start("pai", "cluster.portal", "--no-browser") for _ in range(4)]
    ends = [process.communicate(timeout=90) for process in racing]
    assert [process.returncode for process in racing] == [0] * 4, ends
    roots = {out.partition("/open/")[0] for out, _ in ends}
    assert len(roots) == 1 and len(facts(own)) == 1
    assert len({out for out, _ in ends}) == 4  # each has a link of its own
    for out, _ in ends:
        Visitor(out.strip())


def test_a_killed_portal_is_started_again_at_its_place(own):
    before = link(own, "--port", str(free_port())).partition("/open/")[0]
    (killed,) = facts(own)
    kill(killed["pid"])
    after = link(own)
    (now,) = facts(own)
    assert after.startswith(before) and now["pid"] != killed["pid"]
    assert Visitor(after).get("/c/local/jobs").status_code == 200


def test_another_port_is_used_if_the_last_one_is_taken(own):
    link(own, "--port", str(free_port()))
    (before,) = facts(own)
    own.pai("cluster.portal", "--stop")
    with socket.create_server(("127.0.0.1", before["port"])):
        link(own)
        (after,) = facts(own)
        assert after["port"] != before["port"]
        own.pai("cluster.portal", "--stop")
        refused = own.pai("cluster.portal", "--no-browser", "--port", str(before["port"]))
        assert refused.code != 0 and "cannot listen" in refused.err and "Traceback" not in refused.err
        assert refused.err.count("\n") == 1 and not facts(own)
    wanted = free_port()
    assert f":{wanted}/open/" in link(own, "--port", str(wanted))
    assert f":{wanted}/open/" in link(own, "--port", str(wanted))
    refused = own.pai("cluster.portal", "--no-browser", "--port", str(wanted + 1))
    assert refused.code == 120 and f"already runs at http://127.0.0.1:{wanted}" in refused.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--port", "99999"), "a port is a number from 0 to 65535, got 99999"),
        (("--port", "-1"), "a port is a number from 0 to 65535, got -1"),
        (("nowhere",), "no cluster named 'nowhere'"),
    ],
)
def test_wrong_words_start_no_portal(own, words, expected):
    refused = own.pai("cluster.portal", "--no-browser", *words)
    assert refused.code == 120 and expected in refused.err and refused.err.count("\n") == 1
    assert not facts(own)


def test_two_projects_have_two_portals(own, tmp_path):
    (tmp_path / "other").mkdir()
    other = make_shell(tmp_path / "other")
    other.home, other.environment["OPENPAI_HOME"] = own.home, str(own.home)
    one, two = Visitor(link(own)), Visitor(link(other))
    assert one.root != two.root
    assert {found["project"] for found in facts(own)} == {str(own.project), str(other.project)}
    crossed = one.web.get(two.root + "/c/local/jobs", timeout=60)
    assert "/sign-in" in crossed.url  # a session is for one portal
    assert other.pai("cluster.portal", "--stop").code == 0
    assert one.get("/c/local/jobs").status_code == 200 and len(facts(own)) == 1


def test_its_files_are_private(own):
    link(own)
    folder = own.home / "portal"
    found = [folder, *folder.rglob("*")]
    assert len(found) > 5
    for path in found:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    links = list(folder.glob("*/links/*"))
    assert len(links) == 1 and links[0].read_text() == ""


def test_modules_of_a_project_are_not_loaded(own):
    for name in ("jinja2", "starlette", "yaml", "openpai_tasks", "sitecustomize"):
        (own.project / f"{name}.py").write_text("open('loaded', 'w').close()\n")
    visitor = Visitor(link(own))
    assert visitor.get("/c/local/storage").status_code == 200
    assert not (own.project / "loaded").exists()


def events(visitor, path):
    """Yield the names of a live page's events."""
    with visitor.get(path, stream=True, headers={"accept": "text/event-stream"}) as page:
        assert page.status_code == 200
        for line in page.iter_lines():
            if line.startswith(b"event: "):
                yield line[7:].decode()


def test_open_pages_report_a_stopped_cluster_recover_and_do_not_start_it(own):
    first = free_port()
    write_private(own.home / "local" / "port", f"{first}\n")
    visitor = Visitor(link(own))
    assert visitor.get("/c/local/jobs").status_code == 200
    following = events(visitor, "/c/local/jobs.live?from=start")
    assert next(following) == "html"
    assert json.loads((own.home / "local" / "server.json").read_text())["port"] == first
    own.ok("cluster.stop")
    for path in ("jobs.live?from=start", "cluster.live", "jobs/x/live", "jobs/x/logs.live"):
        assert list(events(visitor, f"/c/local/{path}")) == ["problem"]
    assert list(following) == ["problem"]  # also after others have closed the session's connection
    assert not own.ok("cluster.status", "-o", "json").json()["running"]
    with socket.create_server(("127.0.0.1", first)):  # it must be found at another address
        own.ok("cluster.start")
        assert json.loads((own.home / "local" / "server.json").read_text())["port"] != first
        until(lambda: next(events(visitor, "/c/local/jobs.live?from=start")) == "html")
        assert visitor.get("/c/local/jobs").status_code == 200


def test_a_page_that_is_opened_starts_the_cluster(own):
    visitor = Visitor(link(own))
    own.ok("cluster.stop")
    assert visitor.get("/c/local/jobs").status_code == 200
    assert own.ok("cluster.status", "-o", "json").json()["running"]


def test_it_ends_with_a_message_if_its_folder_is_gone(own):
    gone = own.project / "gone"
    ran = own.run(sys.executable, "-m", PROGRAM, "--home", str(own.home / "x"), "--project", str(gone))
    assert ran.code != 0 and "cannot use the folder" in ran.err and "Traceback" not in ran.err


def test_a_restart_signs_everybody_out_but_unused_links_still_work(own):
    unused = link(own)
    visitor = Visitor(link(own))
    own.pai("cluster.portal", "--stop")
    fresh = link(own)
    assert "/sign-in" in visitor.get("/c/local/jobs").url
    assert requests.get(unused, timeout=60).url.endswith("/c/local/jobs")
    assert requests.get(fresh, timeout=60).url.endswith("/c/local/jobs")


def test_cluster_stop_names_the_portals_that_still_run(own, tmp_path):
    own.ok("job.list")
    link(own)
    (tmp_path / "two words").mkdir()
    [uri] = [one["uri"] for one in facts(own)]
    line = f"the portal at {uri} still runs; `inv cluster.portal --stop` ends it\n"
    assert own.ok("cluster.stop").err.endswith(f"stopped the embedded cluster\n{line}")
    other = Shell(tmp_path / "two words", own.home)
    err = other.pai("cluster.stop").err
    stop = f"(cd {own.project} && pai cluster.portal --stop)"
    assert err == f"the embedded cluster was not running\nthe portal at {uri} still runs; `{stop}` ends it\n"
    assert own.run("sh", "-c", stop).code == 0
    assert own.ok("cluster.stop").err == "the embedded cluster was not running\n"
