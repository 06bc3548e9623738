"""Results of notebooks in a real browser: outputs, pictures, errors, and tables of jobs."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from openpai_tasks.protocol.models import EventInfo, JobInfo, TaskInfo
from openpai_tasks.render import html as render_html
from tests.browser import WHY_NOT, Page, browser
from tests.needs import needs

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), needs("matplotlib")]

PLOT = "import matplotlib.pyplot as plot\nplot.figure(figsize=(3, 2))\nplot.plot([1, 4, 9, 16])"
EVIL = "<script>window.harmed = true; alert('harm')</script><img src=x onerror=\"window.harmed = true\">"


def job(**changes):
    """Return a job with a script in each of its text fields."""
    task = TaskInfo(EVIL, 0, EVIL, 0, EVIL, {EVIL: EVIL}, 1, 255, None, None, EVIL)
    event = EventInfo(EVIL, EVIL, EVIL, 1, "")
    fields = {
        **{
            "name": EVIL,
            "user": EVIL,
            "state": "FAILED",
            "virtual_cluster": EVIL,
            "submitted": 1_700_000_000_000,
        },
        **{
            "launched": None,
            "completed": None,
            "platform_exit_code": 255,
            "exit_code": 3,
            "retries": 0,
            "attempt": 0,
        },
        **{
            "gpus": 0,
            "task_count": 1,
            "tags": (EVIL,),
            "message": EVIL,
            "tasks": (task,),
            "events": (event,),
        },
    }
    return JobInfo(**{**fields, **changes})


@pytest.fixture(scope="module")
def chromium():
    with browser() as chromium:
        yield chromium


def open_page(chromium, path):
    page = Page(chromium.new_page(viewport={"width": 1000, "height": 1400}))
    page.page.goto(path.as_uri(), wait_until="load")
    return page


@pytest.fixture(scope="module")
def result(cluster, chromium):
    """The opened page that `notebook.run` downloads for a notebook with a cell that fails."""
    table = f"from IPython.display import HTML\nHTML({render_html.status(job())!r})"
    cells = [
        new_markdown_cell("# Looked at"),
        new_code_cell("print('ünï & <b>text</b>')"),
        new_code_cell("6 * 7"),
        new_code_cell(PLOT),
        new_code_cell(table),
        new_code_cell("def deep():\n    raise ValueError('<i>no</i> good')\n\ndeep()"),
        new_code_cell("print('never')"),
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": spec}), cluster.project / "looked at.ipynb"
    )
    ran = cluster.inv("notebook.run", "looked at.ipynb", "--job-name", "looked", "--no-browser", timeout=110)
    assert ran.code == 1, ran
    return open_page(chromium, cluster.project / "looked at.looked.html")


def test_outputs_are_shown_as_they_were_printed(result):
    page = result.page
    assert page.locator("h1").first.inner_text().startswith("Looked at")
    assert page.get_by_text("ünï & <b>text</b>", exact=False).last.is_visible()
    assert page.locator(".jp-OutputArea-output").get_by_text("42", exact=True).is_visible()
    assert page.locator("b", has_text="text").count() == 0
    assert page.locator(".jp-OutputArea-output").get_by_text("never", exact=True).count() == 0


def test_matplotlib_picture_is_embedded_in_the_page(result):
    page = result.page
    picture = page.locator(".jp-OutputArea img[src^='data:image/png']").first
    width, height = picture.evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert width > 100 and height > 100
    assert picture.is_visible()
    colours = picture.evaluate(
        """image => {
            const canvas = document.createElement('canvas');
            canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    assert colours > 10  # a curve, its axes and their labels: not an empty picture


def test_the_error_of_a_cell_is_shown_with_its_traceback(result):
    page = result.page
    error = page.locator("[data-mime-type='application/vnd.jupyter.stderr']", has_text="ValueError").last
    text = error.inner_text()
    assert error.is_visible()
    assert "Traceback (most recent call last)" in text and "deep()" in text
    assert "ValueError: <i>no</i> good" in text and "\x1b[" not in text


def test_scripts_in_a_table_of_jobs_do_not_run(result):
    assert result.page.locator("strong", has_text="FAILED").is_visible()
    assert result.page.locator("td", has_text="window.harmed").count() >= 8
    assert result.page.evaluate("window.harmed") is None
    assert result.alerts == []


def test_tables_of_jobs_have_readable_headers_and_coloured_states(chromium, tmp_path):
    states = ("WAITING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED")
    rows = [job(name=f"job-{state.lower()}", state=state, virtual_cluster="default") for state in states]
    columns = ("name", "state", "virtual_cluster", "submitted", "exit_code")
    path = tmp_path / "table.html"
    path.write_text(f"<meta charset='utf-8'><body>{render_html.table(rows, columns)}</body>")
    page = open_page(chromium, path).page
    assert page.locator("th").all_inner_texts() == [
        "name",
        "state",
        "virtual cluster",
        "submitted",
        "exit code",
    ]
    assert [text.split("-")[0] for text in page.locator("tbody td:first-child").all_inner_texts()] == [
        "job"
    ] * 5
    shades = {
        page.locator("strong", has_text=state).evaluate("e => getComputedStyle(e).color") for state in states
    }
    assert len(shades) == 5


def test_harmful_page_is_detected(chromium, tmp_path):
    path = tmp_path / "harmful.html"
    path.write_text(f"<body>{EVIL}</body>")
    page = open_page(chromium, path)
    assert page.page.evaluate("window.harmed") is True and page.alerts == ["harm"]


def test_long_table_is_truncated(tmp_path):
    rows = [{"name": f"n{number}"} for number in range(render_html.ROWS + 7)]
    html = render_html.table(rows, ("name",))
    assert html.count("<tr>") == render_html.ROWS + 2 and "and 7 more" in html
