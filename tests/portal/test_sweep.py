"""Sweeps and metrics: tables and plots of what jobs have measured."""

import json
import re
from xml.etree import ElementTree

import pytest

from benchmarks.portal import multiply_job, record_sweep

RUN = """
import json, os
lr, kind = float(os.environ["lr"]), os.environ["kind"]
print(json.dumps({"accuracy": 1 - lr, "<script>": "<b>", "steps": 10}))
"""
METRICS = """
import json, os, sys, time
gate = sys.argv[1]
def point(name, value, step):
    print(json.dumps({"time": time.time(), "name": name, "value": value, "step": step}), flush=True)
for step in range(3):
    point("loss", 3.0 - step, step)
    point("<i>bad</i>", step, step)
point("loss", None, 3)
while not os.path.exists(gate):
    time.sleep(0.1)
point("loss", 0.25, 4)
"""
NAMES = ("--sweep", "lr=0.1,0.2,0.4", "--sweep", "kind=a,b")


@pytest.fixture(scope="module")
def sweep(cluster):
    (cluster.project / "run.py").write_text(RUN)
    cluster.ok("job.sub", "python3 run.py", "--sources", "run.py", "-j", "grid", *NAMES)


def order(page):
    return re.findall(r'<tr data-key="(grid-[^"]+)"', page)


def test_a_sweep_is_a_table_that_can_be_sorted(visitor, sweep):
    page = visitor.get("/c/local/sweeps/grid").text
    assert len(order(page)) == 6 and "6 jobs, 6 succeeded" in page
    assert "<script>" not in page.partition("<main")[2] and "&lt;script&gt;" in page and "&lt;b&gt;" in page
    best = order(visitor.get("/c/local/sweeps/grid?sort=accuracy").text)
    assert best[0].startswith("grid-lr-0_1") and best[-1].startswith("grid-lr-0_4")
    worst = visitor.get("/c/local/sweeps/grid?sort=accuracy&dir=asc").text
    assert order(worst)[0].startswith("grid-lr-0_4") and 'aria-sort="ascending"' in worst
    assert len(order(visitor.get("/c/local/sweeps/grid?sort=nothing&x=%3Cb%3E").text)) == 6


def test_a_sweep_has_a_scatter_plot_and_parallel_coordinates(visitor, sweep):
    page = visitor.get("/c/local/sweeps/grid?x=lr&y=accuracy").text
    scatter, parallel = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    dots = ElementTree.fromstring(scatter).findall(".//circle")
    assert len(dots) == 6
    places = {(int(dot.get("cx", 0)), int(dot.get("cy", 0))) for dot in dots}
    assert len(places) == 3 and min(places)[1] < max(places)[1]  # a higher rate, a lower accuracy
    lines = ElementTree.fromstring(parallel).findall(".//a")
    assert {line.get("href") for line in lines} == {f"/c/local/jobs/{name}" for name in order(page)}
    axes = [text.text for text in ElementTree.fromstring(parallel).findall(".//text[@class='middle name']")]
    assert axes == ["lr", "kind", "steps", "accuracy"]


def test_last_metrics_are_results_and_a_parameter_alone_is_not_plotted(cluster, visitor):
    (cluster.project / "record.py").write_text(
        "import sys\nfrom openpai_tasks import runtime\n"
        "for loss in (9.0, float(sys.argv[1])):\n    runtime.log_metric('loss', loss)\n"
    )
    values = ("--sources", "record.py", "--sweep", "lr=0.25,0.5")
    cluster.ok("job.sub", "python3 record.py {lr}", "-j", "recorded", *values)
    rows = cluster.ok("job.results", "recorded", "-o", "json").json()
    assert [row["result"] for row in rows] == [{"loss": 0.25}, {"loss": 0.5}]
    assert visitor.get("/c/local/sweeps/recorded").text.count("<svg") == 2
    cluster.ok("job.sub", "true {lr}", "-j", "silent", "--sweep", "lr=0.25,0.5")
    page = visitor.get("/c/local/sweeps/silent").text
    assert "<svg" not in page and "No job has results yet" in page


def test_results_that_were_not_read_yet_follow(cluster, visitor, tab):
    count = 60
    cluster.ok("job.sub", "echo '{\"loss\": 0.5}'", "-j", "copied", "--sweep", "rate=0", "--detach")
    cluster.ok("job.wait", "copied-rate-0")
    cluster.ok("cluster.stop")
    record_sweep(
        cluster.project, "many", multiply_job(cluster.home / "local", "many", "copied-rate-0", count)
    )
    cluster.ok("cluster.start")
    tab.goto(f"{tab.root}/c/local/sweeps/many")  # on a slow machine, some results come later
    tab.wait_for_selector("#sweep:not(:has(.notice))")
    assert tab.locator("tbody td:nth-child(4)").count() == count
    (cluster.home / "local" / "jobs").rename(cluster.home / "local" / "gone")
    again = visitor.get("/c/local/sweeps/many").text
    (cluster.home / "local" / "gone").rename(cluster.home / "local" / "jobs")
    assert len(re.findall(r'<tr data-key="many-rate', again)) == count and "0.0166667" in again
    assert "data-live" not in again


def test_sweeps_are_linked_from_the_jobs(visitor, sweep):
    assert 'href="/c/local/sweeps"' in visitor.get("/c/local/jobs").text
    assert 'href="/c/local/sweeps/grid"' in visitor.get("/c/local/sweeps").text
    assert 'href="/c/local/sweeps/grid"' in visitor.get("/c/local/jobs/grid-lr-0_1-kind-a").text
    assert visitor.get("/c/local/sweeps/nothing").status_code == 404
    assert visitor.get("/c/local/sweeps/..%2F..%2Fx").status_code == 404


def test_metrics_are_plotted_while_the_job_runs(cluster, visitor, tab, tmp_path):
    gate = tmp_path / "go"
    (cluster.project / "measure.py").write_text(METRICS)
    cluster.ok("job.sub", f"python3 measure.py {gate}", "--sources", "measure.py", "-j", "measures")
    tab.goto(f"{tab.root}/c/local/jobs/measures/metrics")
    tab.wait_for_selector("tr:has-text('loss') td:text-is('4')")
    assert tab.locator("figure").count() == 2 and tab.locator("figcaption i").count() == 0
    line = tab.locator("figure[data-key=loss]")
    box = line.locator("svg").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.12, box["y"] + box["height"] * 0.1)
    assert line.locator("[data-plot-value]").text_content() == "3 at 0"
    gate.touch()
    tab.wait_for_selector("tr:has-text('loss') td:text-is('0.25')")
    tab.wait_for_selector(".heading .state-succeeded")
    only = visitor.get("/c/local/jobs/measures/metrics?metric=lo*").text
    assert only.count("<figure") == 1 and "NaN" not in only
    assert "with such names" in visitor.get("/c/local/jobs/measures/metrics?metric=none").text


def test_results_of_a_sweep_and_records_come_while_jobs_run(cluster, visitor, tmp_path):
    gate = tmp_path / "go"
    record = json.dumps({"time": 1.5, "level": "INFO", "message": "first"})
    line = f"echo '{record}'; until [ -e {gate} ]; do sleep 0.1; done; echo '{{\"acc\": 7}}'"
    cluster.ok("job.sub", line, "-j", "lives", "--sweep", "x=1", "--detach")
    name = cluster.ok("job.list", "-o", "json", "--fields", "name").json()[0]["name"]
    pages = {"records": f"/c/local/jobs/{name}/records", "sweep": "/c/local/sweeps/lives"}
    assert all("data-live" in visitor.get(page).text for page in pages.values())
    records = live_parts(visitor, f"{pages['records']}.live")
    results = live_parts(visitor, f"{pages['sweep']}/live")
    while "first" not in next(records)["records"]:
        pass
    assert name in next(results)["sweep"]
    gate.touch()
    assert "state-succeeded" in list(records)[-1]["job-heading"]
    assert ">7<" in list(results)[-1]["sweep"]
    assert "data-live" not in visitor.get(pages["sweep"]).text


def live_parts(visitor, path):
    """Yield the parts of a page as they are sent, until it is over."""
    with visitor.get(path, stream=True) as answer:
        for line in answer.iter_lines():
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])
