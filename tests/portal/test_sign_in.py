"""Signing in with a user's password, as a user would."""

import json
import os
import re
import time

import pytest
import requests

from openpai_tasks.errors import TooManyRequests
from openpai_tasks.loopback.guesses import Guesses
from openpai_tasks.portal import app
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.portal.sessions import SESSION_SECONDS, Session, Sessions
from openpai_tasks.portal.starting import link_file
from tests.portal.conftest import Visitor, Web
from tests.ports import free_port

WRONG = "correct horse battery"


@pytest.fixture
def guest(visitor):
    """A browser that is not signed in."""
    web = Web()
    web.address = f"{visitor.root}/sign-in"
    return web


@pytest.fixture
def account(cluster):
    return json.loads((cluster.home / "local" / "credentials.json").read_text())


def sign_in(web, cluster, user, password, **options):
    form = {"cluster": cluster, "user": user, "password": password}
    return web.post(web.address, data=form, timeout=60, **options)


def test_password_managers_understand_the_form(guest):
    page = guest.get(guest.address, timeout=60).text
    assert re.search(r'<input name="user"[^>]* autocomplete="username"', page)
    assert re.search(r'<input name="password" type="password" autocomplete="current-password"', page)
    assert "autofocus" in page and "csrf" not in page


def test_visitors_learn_no_addresses_of_clusters(cluster, guest):
    cluster.ok("cluster.add", "hidden-address", f"http://127.0.0.1:{free_port()}", "--no-check")
    page = guest.get(guest.address, timeout=60).text
    assert "hidden-address" in page and "http://127.0.0.1" not in page
    cluster.ok("cluster.delete", "hidden-address")


@pytest.mark.parametrize(
    ("user", "password"),
    [("", ""), ("", "x"), ("nobody-here", WRONG), (None, WRONG), ("../x", WRONG), ("a\0b", WRONG)],
)
def test_wrong_names_and_passwords_are_refused(cluster, guest, account, user, password):
    name = account["user"] if user is None else user
    answer = sign_in(guest, "local", name, password)
    assert answer.status_code in (400, 403) and 'role="alert"' in answer.text
    assert not guest.cookies and WRONG not in answer.text
    assert guest.get(guest.address.replace("sign-in", "c/local/jobs"), timeout=60).url.startswith(
        guest.address
    )


def test_a_cluster_that_is_down_or_unknown_is_reported(cluster, guest):
    cluster.ok("cluster.add", "down", f"http://127.0.0.1:{free_port()}", "--no-check")
    down = sign_in(guest, "down", "alice", WRONG)
    assert down.status_code == 502 and "down" in down.text and WRONG not in down.text
    cluster.ok("cluster.delete", "down")
    assert sign_in(guest, "nowhere", "alice", WRONG).status_code in (400, 403)


def test_signing_in_and_out(cluster, visitor, guest, account):
    page = sign_in(guest, "local", account["user"], account["password"])
    assert page.url.endswith("/c/local/jobs")
    (cookie,) = guest.cookies
    token = re.search(r'name="csrf" content="([^"]+)"', page.text)[1]
    jobs = f"{visitor.root}/c/local/jobs"
    refused = guest.post(f"{visitor.root}/sign-out", data={"csrf": "x"}, timeout=60)
    assert refused.status_code == 403 and guest.get(jobs, timeout=60).url == jobs
    out = guest.post(f"{visitor.root}/sign-out", data={"csrf": token}, timeout=60)
    assert out.url == guest.address and not guest.cookies
    stolen = requests.get(
        jobs,
        cookies={cookie.name: cookie.value},
        timeout=60,
        headers={"accept": "text/html", "host": guest.headers["host"]},
    )
    assert stolen.url.startswith(guest.address)


def test_each_sign_in_makes_a_new_session_and_ends_the_one_before(cluster, visitor, guest, account):
    sign_in(guest, "local", account["user"], account["password"])
    (before,) = guest.cookies
    sign_in(guest, "local", account["user"], account["password"])
    (after,) = guest.cookies
    assert before.value != after.value
    bare = requests.get(
        f"{visitor.root}/c/local/jobs",
        cookies={before.name: before.value},
        timeout=60,
        headers={"accept": "text/html", "host": guest.headers["host"]},
    )
    assert bare.url.startswith(guest.address)


def test_other_sites_cannot_sign_a_browser_in(guest, account):
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        refused = sign_in(guest, "local", account["user"], account["password"], headers=headers)
        assert refused.status_code == 403 and not guest.cookies


def test_sessions_expire_when_they_are_not_used(tmp_path):
    sessions = Sessions(tmp_path)
    session = sessions.open(Session(lambda alias: None, host="host", caller="uid 1"))
    for host, caller in (("other", "uid 1"), ("host", "uid 2"), ("host", "nobody")):
        assert sessions.find(session.id, host, caller) is None
    assert sessions.find(session.id, "host", "uid 1") is session
    session.used -= SESSION_SECONDS + 1
    assert sessions.find(session.id, "host", "uid 1") is None
    session.used = time.monotonic()
    assert sessions.find(session.id, "host", "uid 1") is None


def test_links_expire(tmp_path):
    sessions = Sessions(tmp_path)
    for age, is_valid in ((0, True), (3600, False), (-3600, False)):
        file = link_file(tmp_path, "token")
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, (time.time() - age, time.time() - age))
        assert sessions.redeem("token") is is_valid and not sessions.redeem("token")


def test_guesses_at_the_same_time_count_for_an_account_and_in_all():
    now = 1000.0
    limit = Guesses(lambda: now, app.SIGN_INS, app.ALL_SIGN_INS)
    for _ in range(app.SIGN_INS.count):
        limit.begin("", "lab alice")
    with pytest.raises(TooManyRequests, match=r"too many wrong passwords: wait 30 s and try again"):
        limit.begin("", "lab alice")
    limit.begin("", "lab bob")
    limit.note_right("", "lab alice")
    limit.begin("", "lab alice")
    with pytest.raises(TooManyRequests):
        for number in range(app.ALL_SIGN_INS.count):
            limit.begin("", f"lab user-{number}")
    assert number == app.ALL_SIGN_INS.count - app.SIGN_INS.count - 1  # one was right
    now += app.ALL_SIGN_INS.seconds + 1
    limit.begin("", "lab alice")


def test_a_right_password_never_counts_as_a_guess():
    limit = Guesses(lambda: 1000.0, app.SIGN_INS, app.ALL_SIGN_INS)
    for _ in range(2 * app.ALL_SIGN_INS.count):
        limit.begin("", "lab alice")
        limit.note_right("", "lab alice")


@pytest.mark.parametrize(
    "request_options",
    [
        {"files": {"user": ("x", b"x" * 100)}},
        {"data": b"x" * 100, "headers": {"content-type": "multipart/form-data"}},
        {"data": b"--x\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"data": b"\xff\xfe=%ff", "headers": {"content-type": "application/x-www-form-urlencoded"}},
    ],
)
def test_malformed_forms_are_refused(guest, request_options):
    answer = guest.post(guest.address, timeout=60, **request_options)
    assert answer.status_code in (400, 403) and "internal error" not in answer.text


def test_guesses_are_stopped_and_links_still_work(cluster, visitor, guest, account, link):
    codes = []
    while not codes or codes[-1] == 403:  # one more is allowed after each 30 s
        codes.append(sign_in(guest, "local", "mallory", WRONG).status_code)
    assert len(codes) > app.SIGN_INS.count and codes[-1] == 429
    assert Visitor(link()).get("/c/local/jobs").status_code == 200


def test_passwords_are_in_no_log(cluster, guest, account):
    assert sign_in(guest, "local", account["user"], account["password"]).status_code == 200
    logs = [path.read_text() for path in cluster.home.glob("portal/*/*.log")]
    assert logs and not any(WRONG in text or account["password"] in text for text in logs)


def test_a_guess_does_not_start_a_stopped_cluster(cluster, visitor, guest, account):
    cluster.ok("cluster.stop")
    answer = sign_in(guest, "local", account["user"], account["password"])
    assert answer.status_code == 502 and "stopped" in answer.text
    assert not cluster.ok("cluster.status", "-o", "json").json()["running"]
    cluster.ok("cluster.start")


def test_shares_that_the_owner_has_mounted_are_not_for_users_with_a_password(monkeypatch, tmp_path):
    monkeypatch.setenv("INVOKE_OPENPAI_STORAGE_MOUNTS", f"lab/data={tmp_path}")
    owner, guest = (PortalRequest(Session(str, only), tmp_path, "/", {}, {}).mounts for only in ("", "lab"))
    assert owner == (("lab/data", str(tmp_path)),) and guest == ()
