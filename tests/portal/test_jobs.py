"""The list of jobs in the portal."""

import re

import pytest

from tests.server.workshop import until

HOSTILE = "</td><script>alert(1)</script>"


@pytest.fixture(scope="module")
def names(cluster):
    """Three jobs: one that succeeded, one that failed, one that runs until it is stopped."""
    for name, command in {"good": "echo fine", "bad": "lost-command || exit 3", "long": "sleep 600"}.items():
        cluster.ok("job.sub", command, "--job-name", f"list-{name}", "--tag", f"tag-{name}")
    cluster.inv("job.wait", "list-good"), cluster.inv("job.wait", "list-bad")
    until(lambda: cluster.ok("job.status", "list-long", "-o", "json").json()["state"] == "RUNNING")
    return ["list-good", "list-bad", "list-long"]


def rows(page):
    """Return the names and states that a page lists."""
    return dict(re.findall(r'<th scope="row"[^>]*><a [^>]*>([^<]+)</a>.*?state-(\w+)', page.text, re.DOTALL))


def test_the_list_shows_states_tags_and_links(visitor, names):
    page = visitor.get("/c/local/jobs")
    assert {name: rows(page)[name] for name in names} == {
        "list-good": "succeeded",
        "list-bad": "failed",
        "list-long": "running",
    }
    cause = "lost-command: command not found"
    assert f'title="{cause}">{cause}</td>' in page.text and page.text.count(cause) == 2
    assert "tag-good" in page.text and "/c/local/jobs/" in page.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=FAILED&q=list-", {"list-bad"}),
        ("q=list-go", {"list-good"}),
        ("tag=tag-long", {"list-long"}),
        ("q=list-&sort=name&dir=asc&limit=1", {"list-bad"}),
        ("q=list-&sort=name&dir=asc&limit=1&offset=1", {"list-good"}),
        ("q=list-&sort=name&dir=desc&limit=1", {"list-long"}),
        ("vc=default&q=list-", {"list-good", "list-bad", "list-long"}),
        ("user=nobody", set()),
        ("q=list-&offset=-1&limit=x&sort=y", {"list-good", "list-bad", "list-long"}),
    ],
)
def test_filters_order_and_pages(visitor, names, query, found):
    assert set(rows(visitor.get(f"/c/local/jobs?{query}"))) == found


def test_an_unknown_state_is_refused_with_the_known_ones(visitor):
    page = visitor.get("/c/local/jobs?state=DONE")
    assert page.status_code == 400 and "SUCCEEDED" in page.text


def test_text_from_the_address_is_escaped(visitor):
    for field in ("q", "user", "tag", "vc"):
        page = visitor.get("/c/local/jobs", params={field: HOSTILE})
        assert page.status_code == 200 and "<script>alert" not in page.text


def test_openpais_addresses_lead_to_the_pages(visitor, cluster, names):
    user = cluster.ok("cluster.credentials", "-o", "json").json()["user"]
    assert visitor.get("/job-list.html").url.endswith("/c/local/jobs")
    job = visitor.get(f"/job-detail.html?username={user}&jobName=list-good")
    assert job.url.endswith(f"/c/local/jobs/{user}~list-good") and "list-good" in job.text
    assert visitor.get("/job-detail.html").status_code == 400


def test_unknown_pages_jobs_and_clusters_are_explained(visitor):
    assert visitor.get("/c/local/nothing").status_code == 404
    missing = visitor.get("/c/local/jobs/no-such-job")
    assert missing.status_code == 404 and "no-such-job" in missing.text
    assert "<code>pai job.list</code>" in missing.text
    assert "nowhere" in visitor.get("/c/nowhere/jobs").text


def test_the_list_is_live_keeps_ticks_and_stops_jobs(tab, cluster, names):
    """A new job appears and a stopped one changes without a new page, and ticked boxes stay ticked."""
    tab.goto(f"{tab.root}/c/local/jobs?q=list-")
    tab.evaluate("window.isSamePage = true")
    box = tab.get_by_label("Select list-long")
    box.check()
    cluster.ok("job.sub", "sleep 600", "--job-name", "list-new")
    tab.wait_for_selector("tr[data-key$='~list-new']")
    assert box.is_checked() and tab.evaluate("window.isSamePage")
    assert tab.locator("tbody tr").count() == 4
    tab.get_by_label("Select list-new").check()
    tab.get_by_text("2 selected").wait_for()
    tab.on("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Stop").click()
    for name in ("list-long", "list-new"):
        tab.wait_for_selector(f"tr[data-key$='~{name}'] .state-stopped")
    assert cluster.inv("job.wait", "list-long").code == 143


def test_the_theme_stays_chosen_and_keys_reach_the_search(tab, names):
    tab.goto(f"{tab.root}/c/local/jobs")
    before = tab.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    tab.get_by_label("Switch between light and dark").click()
    tab.reload()
    assert tab.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") != before
    tab.keyboard.press("/")
    tab.keyboard.type("list-go")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**q=list-go**")
    assert tab.locator("tbody tr").count() == 1
