"""Compare the runs of a sweep: in the terminal, and from the list of jobs to the page of the comparison."""

import json
import re

import pytest

from tests.portal.conftest import FRAMES
from tests.portal.test_look import FOR_NARROW, FOR_WIDE, SERIOUS_FAULTS

RUN = r"""
for step in 0 1 2; do
  echo "{\"time\": 1.5, \"name\": \"loss\", \"value\": $((lr * 10 - step)), \"step\": $step}"
done
echo "{\"score\": $((lr * depth))}"
"""
TABLE = """\
JOB                DURATION  LR  LOSS.LAST  LOSS.BEST  SCORE
runs-lr-1-depth-1      0.1s   1  8 *        8 *        1
runs-lr-2-depth-1      0.1s   2  18         18         2 *
* best of all
"""
BEST_LOSS = ["runs-lr-1-depth-3", "and", "2", "more"]


@pytest.fixture(scope="module")
def runs(cluster):
    """A sweep of 12 jobs; the lowest loss and the highest score are those of different jobs."""
    points = ("--sweep", "lr=1,2,3,4", "--sweep", "depth=1,2,3", "--tag", "study")
    cluster.ok("job.sub", RUN, "-j", "runs", *points)
    cluster.ok("job.sub", "exit 3", "-j", "other", "--env", "KIND=b")
    cluster.inv("job.wait", "other")


def test_the_terminal_shows_what_differs_and_marks_the_best(cluster, runs):
    two = cluster.ok("job.compare", "runs-lr-1-depth-1", "runs-lr-2-depth-1", COLUMNS="200").out
    assert re.sub(r" +\d\S*s  ", "      0.1s  ", two) == TABLE
    whole = cluster.ok("job.compare", "runs", "other", "--all", COLUMNS="200").out
    assert "IMAGE" in whole and "MEMORYMB" in whole and "KIND" in whole and "exit 3" in whole
    narrow = cluster.ok("job.compare", "runs-lr-1-depth-1", "other", COLUMNS="80").out.splitlines()
    assert narrow[0].split() == ["runs-lr-1-depth-1", "other"] and narrow[1].split()[0] == "STATE"
    rows = cluster.ok("job.compare", "runs", "-o", "json").json()
    assert len(rows) == 12 and rows[0]["metrics"] == {"loss.last": 8.0, "loss.best": 8.0}
    assert rows[0]["parameters"] == {"lr": 1, "depth": 1} and rows[0]["result"] == {"score": 1}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["other"], "name 2 to 50 jobs to compare, not 1"),
        (["other", "nothing"], "no job or sweep named 'nothing'"),
        (["many"], "name 2 to 50 jobs to compare, not 51"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(cluster, runs, names, problem):
    record = cluster.project / ".openpai" / "sweeps" / "local" / "many.jsonl"
    record.write_text("".join(json.dumps({"job": f"many-{at}", "point": {}}) + "\n" for at in range(51)))
    ran = cluster.inv("job.compare", *names)
    record.unlink()
    assert ran.code != 0 and problem in ran.err and ran.err.count("\n") == 1


def test_runs_are_selected_in_the_list_and_the_best_is_read_off_the_comparison(tab, runs):
    from axe_playwright_python.base import AXE_SCRIPT

    tab.add_init_script(AXE_SCRIPT)
    tab.goto(f"{tab.root}/c/local/jobs")
    tab.evaluate("window.isSamePage = true")
    sweep = tab.locator("tr.sweep")
    assert "12 jobs" in sweep.inner_text() and "12 succeeded" in sweep.inner_text()
    assert (
        tab.get_by_role("link", name="All 13").count()
        == tab.get_by_role("link", name="Failed 1").count()
        == 1
    )
    tab.get_by_text("Columns").first.click()
    tab.get_by_label("Metrics and results").fill("loss")
    tab.wait_for_url("**metrics=loss")
    tab.get_by_label("Jobs of sweep runs", exact=True).press("Space")
    tab.wait_for_url("**open=runs")
    assert "8 best" in sweep.inner_text() and tab.locator("tr.member").count() == 12
    tab.get_by_role("searchbox").press_sequentially("depth-")
    tab.wait_for_url("**q=depth-**")  # on a slow machine, a filter acts before all is typed
    tab.wait_for_selector("tr:has-text('other')", state="detached")
    tab.get_by_label("Select all jobs of this page").check()
    tab.get_by_text("12 selected").wait_for()
    assert tab.evaluate("window.isSamePage") and "q=depth-" in tab.url
    tab.get_by_role("button", name="Compare").click()
    tab.wait_for_url("**/c/local/compare?job=runs-lr-4-depth-3&**")
    assert tab.title().startswith("Compare 12 jobs")
    assert tab.locator("dl.best").inner_text().split() == ["Best", "loss", "8", "lowest", *BEST_LOSS]
    assert tab.locator("figure").count() == 1
    assert "runs-lr-4-depth-3" in tab.locator("tr:has(td.best:has-text('12'))").inner_text()
    assert "image" not in tab.locator(".compared thead").inner_text()
    for width, rules in ((1280, FOR_WIDE), (390, FOR_NARROW)):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(FRAMES)
        assert not tab.evaluate(SERIOUS_FAULTS, rules)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_line_alone_in_a_chart_has_the_name_of_its_job(tab, runs):
    from playwright.sync_api import expect

    tab.goto(f"{tab.root}/c/local/compare?job=other&job=runs-lr-1-depth-1")
    expect(tab.locator(".legend")).to_have_text("runs-lr-1-depth-1")
    expect(tab.locator("figcaption")).to_contain_text("lowest 8 at step 2, runs-lr-1-depth-1")
    tab.get_by_label("X axis").select_option("time")
    expect(tab.locator("figure svg[role=group]")).to_have_attribute("aria-label", re.compile("loss by time"))
    expect(tab.locator(".legend")).to_have_text("runs-lr-1-depth-1")


def test_the_page_finds_jobs_by_name_tag_and_sweep(visitor, runs):
    page = visitor.get("/c/local/compare?q=stud").text
    assert "Choose 2 to 50 jobs" in page and "job=runs" not in page  # a part of a tag is no tag
    assert "?job=runs-lr-1-depth-1&amp;q=study" in visitor.get("/c/local/compare?q=study").text
    assert "?job=runs&amp;q=run" in visitor.get("/c/local/compare?q=run").text
    two = visitor.get("/c/local/compare?job=other&job=runs-lr-1-depth-1&all=1").text
    assert '<span class="added">' in two and ">image<" in two and "exit 3" in two
    assert "/c/local/compare?job=runs-lr-1-depth-1&amp;all=1" in two  # without the other one
    assert "<title>Compare other ·" in visitor.get("/c/local/compare?job=other").text
    assert visitor.get("/c/local/compare?job=nothing").status_code == 404
    numbers = visitor.get("/c/local/compare.json?job=runs&metric=loss&x=time").json()
    assert len(numbers["series"]) == 12 and numbers["x"] == "time"
    hostile = visitor.get("/c/local/compare", params={"q": "<script>alert(1)</script>"})
    assert hostile.status_code == 200 and "<script>alert" not in hostile.text


def test_selected_jobs_are_tagged_and_submitted_again(cluster, visitor, runs):
    listed = visitor.get("/c/local/jobs?q=lr-1&flat=1").text
    keys = re.findall(r'name="job" value="([^"]+)"', listed)
    assert len(keys) == 3
    visitor.post("/c/local/jobs.tag?q=lr-1", {"sweep": "runs", "name": "kept"})
    tagged = visitor.get("/c/local/jobs?tag=kept&flat=1&col=tags&col=exit").text
    assert set(re.findall(r'name="job" value="([^"]+)"', tagged)) == set(keys) and "Exit code" in tagged
    assert "State" not in tagged.partition("<thead>")[2].partition("</thead>")[0]
    assert visitor.post("/c/local/jobs.tag", {"job": keys, "name": "a,b"}).status_code == 400
    assert visitor.post("/c/local/jobs.compare").status_code == 400
    visitor.post("/c/local/jobs.resubmit", {"job": keys[:2]})
    names = [job["name"] for job in cluster.ok("job.list", "-o", "json", "--limit", "2").json()]
    assert {name.rpartition("-")[0] for name in names} == {key.partition("~")[2] for key in keys[:2]}
