"""Who may use the portal, and from where."""

import re

import pytest
import requests

from tests.portal.conftest import Visitor

STRICT = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
}


def test_a_link_signs_in_once(link):
    address = link()
    first = requests.get(address, timeout=60, allow_redirects=False)
    cookie = first.headers["set-cookie"]
    assert first.status_code == 303 and first.headers["location"] == "/c/local/jobs"
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
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
        answer = requests.get(address, params={"next": elsewhere}, timeout=60, allow_redirects=False)
        assert answer.headers["location"] == "/"


def test_users_of_the_cluster_sign_in_with_their_password(cluster, visitor):
    login = cluster.ok("cluster.credentials", "-o", "json").json()
    web = requests.Session()
    web.headers["accept"] = "text/html"
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
