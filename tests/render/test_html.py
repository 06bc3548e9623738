"""Tables and jobs as HTML: complete, and escaped."""

import pytest

from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.render import html as render_html
from openpai_tasks.render import text
from openpai_tasks.render.charts import Chart, Series
from openpai_tasks.render.views import Page, TextTable

PAGES = ("#ffffff", "#f5f5f5", "#111111", "#212121")  # of Jupyter's themes, and every second row of a table


def test_a_row_has_a_cell_for_each_column():
    html = render_html.table([{"name": "a", "size": 2048}, {"name": "b", "size": None}], ("name", "size"))
    assert html.count("<tr>") == 3 and html.count("<td") == 4
    assert ">2.0 KiB<" in html and ">-<" in html


def test_names_and_values_are_escaped():
    html = render_html.table([{"a<b": "<script>x</script>", "state": '"><b>'}], ("a<b", "state"))
    assert "<script>" not in html and "<b>" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html and "a&lt;b" in html


def test_a_state_has_its_colour():
    html = render_html.table([{"state": "FAILED"}, {"state": "new"}], ("state",))
    assert html.count("<strong") == 1 and render_html.COLOURS["FAILED"] in html


def brightness(colour):
    """The relative luminance, as the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("state", render_html.COLOURS)
def test_a_state_can_be_read_in_light_and_dark_themes(state, page):
    dark, light = sorted((brightness(render_html.COLOURS[state]), brightness(page)))
    assert (light + 0.05) / (dark + 0.05) > 3.8  # no colour has 4 on all of them


def test_terminal_escapes_are_removed():
    assert "\x1b" not in render_html.table([{"name": "a\x1b[31mb"}], ("name",))


def test_a_sweep_is_a_table_of_its_points():
    rows = [{"name": "x", "point": {"rate": 0.1}}, {"name": "y", "point": {"rate": 0.2}, "loss": 3}]
    html = render_html.picture(rows, text.flat_table)
    assert html.count("<th ") == 3 and ">0.2<" in html
    assert render_html.values(rows, text.flat_table)[0] == {"name": "x", "rate": 0.1}


def test_several_jobs_are_tables_below_each_other():
    unknown = dict.fromkeys(("submitted", "launched", "completed", "exit_code", "platform_exit_code"))
    more = {**unknown, "retries": 0, "attempt": 0, "gpus": None, "task_count": 1, "tags": ()}
    jobs = [JobInfo(name, "ann", "WAITING", "default", **more) for name in ("one", "two")]
    html = render_html.picture(jobs, text.status)
    assert html == "".join(map(render_html.status, jobs)) and html.count("<table>") == 2


def test_documents_are_not_rendered_as_html():
    assert render_html.picture({"a": 1}, text.document) is None


def test_charts_and_tables_are_drawn_and_escaped():
    chart = Chart("<b>", [Series("", [(0, 1), (1, 2)])])
    page = Page([chart, TextTable(["JOB", "STATE"], [["<i>\x1b", "FAILED"]])])
    html = render_html.picture([], lambda _: page)
    assert html.startswith("<svg ") and html.endswith("</table>")
    assert "<b>" not in html and "&lt;i&gt;" in html and "\x1b" not in html and "<strong" in html
    assert render_html.picture([], lambda _: Page([chart, "some text"])) is None


def test_single_value_is_one_row():
    assert render_html.values({"a": 1}, ("a",)) == [{"a": 1}]
