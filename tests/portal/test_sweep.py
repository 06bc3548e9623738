"""Sweeps and metrics: tables and plots of what jobs have measured."""

import json
import re
from xml.etree import ElementTree

import pytest

from benchmarks.portal import multiply_job, record_sweep
from openpai_tasks.portal.pages import sweeps
from openpai_tasks.portal.static_files import address
from openpai_tasks.render import charts
from openpai_tasks.sdk.sweeps.results import JobResult
from tests.portal.conftest import FRAMES

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
LONG = """
import json, math, os
folder = os.path.join(os.environ["PAI_OUTPUT_DIR"], ".pai", "metrics")
os.makedirs(folder)
with open(os.path.join(folder, "main-0-0.jsonl"), "w") as file:
    def point(name, value):
        fields = dict(time=9.0 + step * 2.5, name=name, value=value, step=step, index=index)
        file.write(json.dumps(fields) + chr(10))
    for step in range(1500):
        for index in range(3):
            point("loss", None if step == 750 else index + 10 * math.cos(step / 9))
        index = 0
        point("epoch", step // 100)
"""
KINDS = ((False, False), (True, False), (False, True))
TICKS = """async ([address, kinds]) => {
    const { Scale, ticks } = await import(address);
    return kinds.map(([low, high, isLog, ...kind]) =>
        ticks(new Scale(low, high, isLog, 0, 1), 6, ...kind).map(([, text]) => text));
}"""
HAS_INK = (
    """canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"""
)
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
    scatter, parallel = (
        ElementTree.fromstring(one) for one in re.findall(r"<svg viewBox=.*?</svg>", page, re.S)[1::2]
    )
    dots = scatter.findall(".//circle")
    assert len(dots) == 6
    places = {(int(dot.get("cx", 0)), int(dot.get("cy", 0))) for dot in dots}
    assert len(places) == 3 and min(places)[1] < max(places)[1]  # a higher rate, a lower accuracy
    assert [text.text for text in scatter.findall(".//text[@class='middle name']")] == ["lr", "accuracy"]
    lines = parallel.findall(".//a")
    assert {line.get("href") for line in lines} == {f"/c/local/jobs/{name}" for name in order(page)}
    axes = [text.text for text in parallel.findall(".//text[@class='middle name']")]
    assert axes == ["lr", "kind", "steps", "accuracy"]


def test_the_best_jobs_of_a_sweep_are_marked_and_parameters_ranked(visitor, sweep):
    def best(page):
        return re.findall(r'<tr data-key="([^"]+)" class="best"', page)

    page = visitor.get("/c/local/sweeps/grid?y=accuracy").text
    assert best(page) == ["grid-lr-0_1-kind-a", "grid-lr-0_1-kind-b"]
    assert page.count('<a class="best"') == 4  # in both plots
    assert re.findall(r'class="number">([-+]\d\.\d\d)<', page) == [
        "-1.00"
    ]  # of lr alone: a kind is no number
    lowest = visitor.get("/c/local/sweeps/grid?y=accuracy&best=min").text
    assert best(lowest) == ["grid-lr-0_4-kind-a", "grid-lr-0_4-kind-b"] and "best=min" in lowest
    assert not best(visitor.get("/c/local/sweeps/grid?y=lr").text)


def test_last_metrics_are_results_and_a_parameter_alone_is_not_plotted(cluster, visitor):
    (cluster.project / "record.py").write_text(
        "import sys\nfrom openpai_tasks import runtime\n"
        "for loss in (9.0, float(sys.argv[1])):\n    runtime.log_metric('loss', loss)\n"
    )
    values = ("--sources", "record.py", "--sweep", "lr=0.25,0.5")
    cluster.ok("job.sub", "python3 record.py {lr}", "-j", "recorded", *values)
    rows = cluster.ok("job.results", "recorded", "-o", "json").json()
    assert [row["result"] for row in rows] == [{"loss": 0.25}, {"loss": 0.5}]
    page = visitor.get("/c/local/sweeps/recorded").text
    assert page.count("<figure") == 2 and 'data-key="recorded-lr-0_25" class="best"' in page  # a loss
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
    assert tab.locator("tbody tr[data-key] td:nth-child(5)").count() == count
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
    plot = tab.locator("figure[data-key=loss]")
    picture, tip = plot.locator("svg[tabindex]"), plot.locator(".plot-tip")
    assert axis(picture) == ["1.0", "1.5", "2.0", "2.5", "3.0", "0", "1", "2", "step", "loss"]
    box = picture.bounding_box()

    def at(part):
        return box["x"] + box["width"] * part, box["y"] + box["height"] / 2

    tab.mouse.move(*at(0.12))
    assert tip.inner_text().split() == ["step", "0", "3"]
    picture.focus()
    picture.press("End")
    assert tip.inner_text().split() == ["step", "2", "1"]
    tab.mouse.move(*at(0.3))
    tab.mouse.down()
    tab.mouse.move(*at(0.7), steps=3)
    tab.mouse.up()
    zoomed = axis(picture)
    assert "0.6" not in zoomed and "0" not in zoomed and plot.get_by_text("Reset zoom").is_visible()
    gate.touch()
    tab.wait_for_selector("tr:has-text('loss') td:text-is('0.25')")
    tab.wait_for_selector(".heading .state-succeeded")
    assert axis(picture) == zoomed
    picture.dblclick()
    assert axis(picture)[-7:] == ["0", "1", "2", "3", "4", "step", "loss"]
    assert plot.locator("figcaption").inner_text().endswith("lowest 0.25 at step 4")
    plot.get_by_label("Log y").check()
    plot.get_by_label("X axis").select_option("time")
    plot.locator("text:text-is('time')").wait_for()
    tab.reload()  # the settings stay
    plot.locator("text:text-is('time')").wait_for()
    assert plot.get_by_label("Log y").is_checked() and axis(picture)[:3] == ["0.5", "1", "2"]
    shared = tab.url  # shows the same to someone with other settings
    tab.evaluate("""localStorage.setItem("plots", '{"x": "step", "smooth": 0.5, "logX": ["loss"]}')""")
    tab.goto(shared)
    plot.locator("text:text-is('time')").wait_for()
    assert plot.get_by_label("Log y").is_checked() and not plot.get_by_label("Log x").is_checked()
    assert plot.get_by_label("Smooth").input_value() == "0"
    tab.goto(f"{tab.root}/c/local/jobs/measures/metrics")
    plot.locator("text:text-is('step')").wait_for()
    assert "plot-smooth=0.5" in tab.url and "plot-log-x=loss" in tab.url and "plot-log-y" not in tab.url
    only = visitor.get("/c/local/jobs/measures/metrics?metric=lo*").text
    assert only.count("<figure") == 1 and "NaN" not in only
    assert "with such names" in visitor.get("/c/local/jobs/measures/metrics?metric=none").text


def axis(picture):
    """Return the labels and titles of a plot, once it is drawn."""
    picture.locator("text").first.wait_for()  # drawn only once Chromium knows that the plot is visible
    picture.evaluate(FRAMES)
    return picture.locator("text").all_text_contents()


@pytest.fixture(scope="module")
def long_job(cluster):
    """A job with many points of three tasks, and their epochs."""
    (cluster.project / "long.py").write_text(LONG)
    cluster.ok("job.sub", "python3 long.py", "--sources", "long.py", "-j", "long")
    cluster.ok("job.wait", "long")


def test_the_numbers_of_a_plot_come_thinned_by_range_and_axis(visitor, long_job):
    def numbers(**query):
        answer = visitor.get("/c/local/jobs/long/metrics.json", params={"metric": "loss", **query})
        assert answer.status_code == 200
        return answer.json()

    whole = numbers()
    assert [one["name"] for one in whole["series"]] == ["main-0", "main-1", "main-2"]
    assert whole["thin"] and all(1000 < len(one["x"]) < 1300 for one in whole["series"])
    assert whole["series"][0]["y"][600] is not None and None in whole["series"][0]["y"]
    part = numbers(**{"from": "100.5", "to": "110"})["series"][0]
    assert part["x"] == list(range(100, 112))
    assert len(numbers(columns="all")["series"][2]["x"]) == 1500
    times = numbers(x="time")["series"][1]["x"]
    assert times[0] == 0 and times[-1] == 1499 * 2.5
    assert numbers(x="epoch", columns="all")["series"][0]["x"][-1] == 14
    for query, status in (("metric=x", 404), ("metric=loss&x=y", 400), ("metric=loss&from=y", 400)):
        assert visitor.get(f"/c/local/jobs/long/metrics.json?{query}").status_code == status


def test_a_plot_is_smoothed_filtered_and_saved(tab, long_job):
    tab.goto(f"{tab.root}/c/local/jobs/long/metrics?metric=loss")
    plot = tab.locator("figure[data-key=loss]")
    plot.get_by_label("Smooth").fill("0.9")
    plot.get_by_role("button", name="main-1").click()
    assert plot.get_by_role("button", name="main-1").get_attribute("aria-pressed") == "false"
    assert {"loss", "step"} <= set(axis(plot.locator("svg[tabindex]")))
    assert plot.locator("canvas").evaluate(HAS_INK)
    plot.locator("svg[tabindex]").press("Home")
    assert plot.locator(".plot-tip li").all_inner_texts() == ["main-2\n12", "main-0\n10"]
    with tab.expect_download() as saved:
        plot.get_by_role("button", name="CSV").click()
    rows = saved.value.path().read_text().split("\n")
    assert rows[0].strip() == 'series,step,"loss"' and len(rows) == 3 * 1500 + 2
    with tab.expect_download() as saved:
        plot.get_by_role("button", name="SVG").click()
    drawn = ElementTree.fromstring(saved.value.path().read_text())
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "main-0" in texts and "main-1" not in texts and "step" in texts
    faint = [one for one in drawn.iter("{http://www.w3.org/2000/svg}path") if one.get("opacity") == "0.25"]
    assert len(faint) == 2 and all(len(one.get("d", "")) > 5000 for one in faint)  # behind the smooth lines


def test_values_of_a_plot_are_shown_by_a_tap_until_the_next_one_elsewhere(chromium, signed_in, long_job):
    from playwright.sync_api import expect

    root, state = signed_in
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
    page = chromium.new_context(storage_state=state, **phone).new_page()
    page.goto(f"{root}/c/local/jobs/long/metrics?metric=loss")
    plot = page.locator("figure[data-key=loss]")
    plot.locator("svg[tabindex] text").first.wait_for()
    plot.locator("svg[tabindex]").tap()
    expect(plot.locator(".plot-tip li")).to_have_count(3)
    expect(plot.locator(".plot-tip")).to_be_visible()
    page.get_by_role("heading", name="long").tap()
    expect(plot.locator(".plot-tip")).to_be_hidden()
    page.context.close()


def test_the_script_of_plots_chooses_the_same_ticks(tab):
    """As pictures and terminals have."""
    tab.goto(f"{tab.root}/c/local/jobs")
    ranges = [(0, 199), (0.013, 0.98), (-0.7, 1.2), (0, 3), (0, 4.2e7), (1e-9, 3e-8), (0.001, 0.1)]
    ranges += [(11, 17), (0, 9000), (3, 86400), (1e-12, 1e12), (1e6, 1e6 + 3)]
    kinds = [
        (low, high, is_log, *kind) for low, high in ranges for is_log in (False, low > 0) for kind in KINDS
    ]
    found = tab.evaluate(TICKS, [address("plots.js"), kinds])
    wanted = [
        [text for _, text in charts.ticks(charts.Scale(low, high, is_log), 6, is_whole, is_time)]
        for low, high, is_log, is_whole, is_time in kinds
    ]
    assert found == wanted


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


def test_a_large_sweep_shows_its_best_rows_first(monkeypatch):
    monkeypatch.setattr(sweeps, "MOST_ROWS", 2)
    results = [JobResult(f"job-{rate}", "SUCCEEDED", {"rate": rate}, {"loss": rate}) for rate in (3, 1, 2)]

    ranked = sweeps._ranked(results, "loss", True)

    def shown(**given):
        return [row.name for row in sweeps._rows(results, ranked, given)]

    assert shown() == ["job-1", "job-2"]
    assert shown(sort="rate") == ["job-3", "job-2"]
    assert shown(rows="all") == ["job-1", "job-2", "job-3"]
