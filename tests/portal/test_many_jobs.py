"""The portal over a cluster with more jobs than its largest page shows."""

import re

import pytest

from benchmarks.jobs import fill
from tests.portal.conftest import Visitor

MANY = 1_100


@pytest.fixture(scope="module")
def crowd(cluster, link):
    """A cluster with this many finished jobs."""
    cluster.ok("job.sub", "true", "--job-name", "copy-1")
    assert cluster.inv("job.wait", "copy-1").code == 0
    cluster.ok("cluster.stop")
    fill(cluster.home / "local", MANY)
    cluster.ok("cluster.start")
    return Visitor(link())


def rows(page):
    return re.findall(r'<tr data-key="[^"]*~([^"]+)"', page.text)


def test_pages_reach_from_the_newest_to_the_oldest_job(crowd):
    first = crowd.get("/c/local/jobs?limit=500")
    assert rows(first)[0] == f"copy-{MANY}" and len(rows(first)) == 500
    seen, page = set(rows(first)), first
    while older := re.search(r'rel="next" href="([^"]+)"', page.text):
        page = crowd.get(older[1].replace("&amp;", "&"))
        seen |= set(rows(page))
    assert seen == {f"copy-{number}" for number in range(1, MANY + 1)}
    assert rows(page)[-1] == "copy-1"


def test_search_and_order_reach_all_of_them(crowd):
    assert rows(crowd.get("/c/local/jobs?q=copy-1099")) == ["copy-1099"]
    assert rows(crowd.get("/c/local/jobs?sort=submitted&dir=asc&limit=2")) == ["copy-1", "copy-2"]
    assert rows(crowd.get("/c/local/jobs?state=FAILED")) == []


def test_a_browser_shows_a_thousand_of_them_and_goes_on(crowd, tab):
    tab.goto(f"{tab.root}/c/local/jobs?limit=1000")
    assert tab.locator("tbody tr").count() == 1000
    tab.get_by_role("link", name="Older").click()
    tab.wait_for_url(re.compile("offset=1000"))  # and until the page is loaded
    assert tab.locator("tbody tr").count() == MANY - 1000
    tab.get_by_role("searchbox").fill("copy-711")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**q=copy-711**")
    assert tab.locator("tbody tr").count() == 1
