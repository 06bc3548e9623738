"""OpenPAI's web paths on the embedded server lead to the portal."""

import json
import os
import signal

import pytest
import requests

from tests.portal.conftest import Web

BROWSER = {"accept": "text/html,application/xhtml+xml", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def server(cluster):
    """The address of the embedded server; the portal that it has started is ended with the module."""
    yield json.loads((cluster.home / "local" / "server.json").read_text())["uri"]
    for one in portals(cluster):
        os.kill(one["pid"], signal.SIGTERM)


def portals(cluster):
    return [json.loads(one.read_text()) for one in cluster.home.glob("portal/*/server.json")]


def test_browsers_are_led_to_the_portal_which_is_started_if_needed(cluster, server):
    assert not portals(cluster)
    address = f"{server}/job-detail.html?username=me&jobName=x"
    answer = requests.get(address, headers=BROWSER, timeout=60, allow_redirects=False)
    (portal,) = portals(cluster)
    assert answer.status_code == 302 and answer.headers["location"].startswith(
        f"{portal['uri']}/job-detail.html?"
    )
    assert "cluster=local" in answer.headers["location"] and "jobName=x" in answer.headers["location"]
    requests.get(address, headers=BROWSER, timeout=60)
    assert [one["pid"] for one in portals(cluster)] == [portal["pid"]]
    again = cluster.pai("cluster.portal", "--stop")  # that of the project folder, which does not run
    assert "was not running" in again.err


def test_every_page_has_its_place_in_the_portal(cluster, server, visitor):
    pages = {"/": "/c/local/jobs", "/job-list.html": "/c/local/jobs", "/submit.html": "/c/local/submit"}
    pages["/job-detail.html?username=a&jobName=b%2Fc"] = "/c/local/jobs/a~b%2Fc"
    for path, place in pages.items():
        target = requests.get(server + path, headers=BROWSER, timeout=60, allow_redirects=False).headers[
            "location"
        ]
        root, _, rest = target.removeprefix("http://").partition("/")
        assert f"http://{root}" == visitor.root  # the portal that was started last
        answer = visitor.get(f"/{rest}", allow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, place)


@pytest.mark.parametrize(
    "headers", [{"accept": "*/*"}, {"accept": "application/json"}, {**BROWSER, "sec-fetch-dest": "image"}]
)
@pytest.mark.parametrize(
    "path", ["/", "/job-list.html", "/job-detail.html?username=a&jobName=b", "/submit.html"]
)
def test_programs_get_the_answer_of_the_api(server, path, headers):
    answer = requests.get(server + path, headers=headers, timeout=60, allow_redirects=False)
    assert answer.status_code == 404 and answer.json()["code"] == "NoApiError"


@pytest.mark.parametrize(
    "query", ["a=%0d%0aset-cookie:x=y", "next=//evil.example", "cluster=lab", "%ff%00", "=" * 3000]
)
def test_hostile_queries_stay_queries(cluster, server, visitor, query):
    answer = requests.get(
        f"{server}/job-list.html?{query}", headers=BROWSER, timeout=60, allow_redirects=False
    )
    assert answer.status_code == 302 and answer.headers["location"].startswith(
        f"{visitor.root}/job-list.html?"
    )
    assert "set-cookie" not in answer.headers
    final = visitor.get(answer.headers["location"].removeprefix(visitor.root), allow_redirects=False)
    assert final.headers["location"] == "/c/local/jobs"


def test_job_open_links_to_the_job_and_signs_in_once(cluster):
    cluster.ok("job.sub", "true", "--job-name", "shown")
    link = cluster.ok("job.open", "shown", "--no-browser").out.strip()
    page = Web().get(link, timeout=60)
    assert page.url.endswith("~shown") and "<h1>shown</h1>" in page.text
    assert "used already" in requests.get(link, timeout=60).text
