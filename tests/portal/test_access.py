"""Who may use the portal, and from where."""

import errno
import http.server
import re
import socket
import subprocess
import sys
import threading

import pytest
import requests

from openpai_tasks.sdk.clusters.portal import write_redirect
from tests.portal.conftest import SESSION, Visitor, Web, open_link

STRICT = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
}


def test_a_link_signs_in_once(link):
    address = link()
    first = Web().get(address, timeout=60)
    (entered,) = first.history
    cookie = entered.headers["set-cookie"]
    assert entered.headers["location"] == "/c/local/jobs" and first.status_code == 200
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Domain" not in cookie
    again = requests.get(address, timeout=60)
    assert "Sign in" in again.text and "used already" in again.text


def test_nothing_is_shown_without_signing_in(visitor):
    for path in ("/", "/c/local/jobs", "/c/local/jobs.live", "/job-list.html", "/c/local/jobs/x/logs.txt"):
        page = requests.get(visitor.root + path, timeout=60, headers={"accept": "text/html"})
        assert "/sign-in" in page.url and "Password" in page.text
        bare = requests.get(visitor.root + path, timeout=60, headers={"accept": "application/json"})
        assert bare.status_code == 401


def test_forms_need_the_token_of_their_session(visitor, link):
    other = Visitor(link())
    for token in ("", "x", other.token):
        refused = visitor.web.post(visitor.root + "/c/local/jobs.stop", data={"csrf": token}, timeout=60)
        assert refused.status_code == 403 and "out of date" in refused.text


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:1"},
        {"host": "127.0.0.1.evil.example:80"},
        {"host": f"{'0' * 32}.evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
    ],
)
def test_other_hosts_and_origins_are_refused(visitor, headers):
    assert visitor.get("/c/local/jobs", headers=headers).status_code == 403


def test_forms_of_other_sites_are_refused(visitor):
    refused = visitor.post("/c/local/jobs.stop", headers={"sec-fetch-site": "cross-site"})
    assert refused.status_code == 403 and "other sites" in refused.text


def test_pages_run_only_our_scripts(visitor):
    page = visitor.get("/c/local/jobs")
    assert set(page.headers["content-security-policy"].split("; ")) >= STRICT
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", page.text)


def test_the_link_leads_only_to_pages_of_the_portal(link):
    for elsewhere in ("http://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        address = link().partition("?")[0]
        answer = Web().get(address, params={"next": elsewhere}, timeout=60)
        assert answer.history[0].headers["location"] == "/"


def test_users_of_the_cluster_sign_in_with_their_password(cluster, visitor):
    login = cluster.ok("cluster.credentials", "-o", "json").json()
    web = Web()
    address = f"{visitor.root}/sign-in?next=/c/local/jobs"
    wrong = web.post(
        address, data={"cluster": "local", "user": login["user"], "password": "wrong"}, timeout=60
    )
    assert wrong.status_code == 403 and "wrong" not in wrong.text.partition("<form")[0]
    password = (
        (cluster.home / "local" / "credentials.json").read_text().split('"password": "')[1].split('"')[0]
    )
    right = web.post(
        address, data={"cluster": "local", "user": login["user"], "password": password}, timeout=60
    )
    assert right.url.endswith("/c/local/jobs") and password not in right.text
    elsewhere = web.get(f"{visitor.root}/c/other/jobs", timeout=60)
    assert elsewhere.status_code == 404 and "signed in to cluster &#39;local&#39; only" in elsewhere.text


def test_secrets_of_the_clusters_reach_no_page(cluster, visitor):
    token = cluster.ok("cluster.credentials", "-o", "json").json()["token"]
    for path in ("/c/local/jobs", "/", "/sign-in", "/c/local/nothing"):
        page = visitor.get(path)
        assert token not in page.text and token not in str(page.headers)


# A session cannot be used by others


def test_a_cookie_is_worth_nothing_at_another_host(visitor):
    """Every server on 127.0.0.1 gets the cookies of 127.0.0.1, whatever its port."""
    (cookie,) = visitor.web.cookies
    for host in (visitor.root.removeprefix("http://"), f"{'0' * 32}.localhost:80"):
        headers = {"cookie": f"{cookie.name}={cookie.value}", "host": host, "accept": "application/json"}
        assert requests.get(f"{visitor.root}/c/local/jobs", headers=headers, timeout=60).status_code == 401


def test_nobody_learns_the_host_of_a_session_without_signing_in(visitor):
    name = visitor.web.headers["host"].partition(".")[0]
    for path in ("/", "/sign-in", "/c/local/jobs", "/open/x", "/enter/x", "/job-list.html"):
        answer = requests.get(visitor.root + path, timeout=60, headers={"accept": "text/html"})
        assert name not in answer.text + str(answer.headers) + answer.url


def test_a_page_that_leads_to_a_session_works_once_and_only_at_its_host(link):
    opening = requests.get(link(), timeout=60).text
    host, path = re.search(r'id="home" href="http://([^/"]+)(/[^"?]+)', opening).groups()
    root = link().partition("/open/")[0]
    for wrong in (f"{'0' * 32}.localhost:80", host):  # the first attempt uses it up
        answer = requests.get(root + path, headers={"host": wrong}, timeout=60, allow_redirects=False)
        assert answer.headers["location"] == "/sign-in?expired=1" and "set-cookie" not in answer.headers


STEAL = """
import os, sys, urllib.error, urllib.request
os.setgid(65534), os.setuid(65534)
address, host, cookie = sys.argv[1:]
headers = {"host": host, "cookie": cookie, "accept": "application/json"}
request = urllib.request.Request(address, headers=headers)
try:
    print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).status)
except urllib.error.HTTPError as err:
    print(err.code)
"""


@pytest.mark.root
def test_another_user_can_use_neither_a_cookie_nor_a_link(visitor, link):
    (cookie,) = visitor.web.cookies
    host = visitor.web.headers["host"]
    unused = link()
    for address, code in ((f"{visitor.root}/c/local/jobs", "401"), (unused, "403")):
        words = (address, host, f"{cookie.name}={cookie.value}")
        ran = subprocess.run(
            [sys.executable, "-c", STEAL, *words], capture_output=True, text=True, timeout=60
        )
        assert ran.stdout == f"{code}\n", ran
    assert visitor.get("/c/local/jobs").status_code == 200
    assert Web().get(unused, timeout=60).url.endswith("/c/local/jobs")  # it was not used up


class Overheard(http.server.BaseHTTPRequestHandler):
    """A server of a job, or of another user, that keeps the headers it gets."""

    def do_GET(self):
        self.server.seen.append(str(self.headers))
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b'<link rel="icon" href="data:,">')  # else Chromium may ask for one, and in vain

    def log_message(self, *_):
        pass


def test_a_browser_sends_a_session_to_no_other_server(tab, link, tmp_path):
    tab.goto(write_redirect(tmp_path / "redirect.html", link()))  # as commands open it
    tab.wait_for_url(SESSION)
    name = tab.root.removeprefix("http://").partition(".")[0]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Overheard) as server:
        server.seen = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        other = f"http://127.0.0.1:{server.server_port}/"
        tab.evaluate("address => { location.href = address }", other)
        tab.wait_for_url(other)
        server.shutdown()
    assert server.seen
    assert not any("pai_portal" in headers or name in headers for headers in server.seen)


def test_a_signed_in_browser_gets_from_the_shared_address_to_its_session(tab, link):
    shared = link().partition("/open/")[0]
    root = open_link(tab, link())
    tab.goto(f"{shared}/job-list.html")
    tab.wait_for_url(f"{root}/c/local/jobs")
    tab.click("text=Sign out")
    tab.wait_for_url(f"{root}/sign-in")
    tab.goto(f"{shared}/c/local/jobs")
    tab.wait_for_url(f"{root}/sign-in?*")


def test_no_other_server_can_listen_on_the_port(visitor):
    """Browsers look up *.localhost as both loopback addresses, and may try IPv6 first."""
    with socket.socket(socket.AF_INET6) as other, pytest.raises(OSError) as refused:
        other.bind(("::1", int(visitor.root.rpartition(":")[2])))
    assert refused.value.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
