"""Tables and jobs as HTML: complete, and escaped."""

from openpai_tasks import render, render_html


def test_a_row_has_a_cell_for_each_column():
    html = render_html.table([{"name": "a", "size": 2048}, {"name": "b", "size": None}], ("name", "size"))
    assert html.count("<tr>") == 3 and html.count("<td") == 4
    assert ">2.0 KiB<" in html and ">-<" in html


def test_everything_is_escaped():
    html = render_html.table([{"a<b": "<script>x</script>", "state": '"><b>'}], ("a<b", "state"))
    assert "<script>" not in html and "<b>" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html and "a&lt;b" in html


def test_a_state_has_its_colour():
    html = render_html.table([{"state": "FAILED"}, {"state": "new"}], ("state",))
    assert html.count("<strong") == 1 and render_html.COLOURS["FAILED"] in html


def test_what_steers_terminals_is_left_out():
    assert "\x1b" not in render_html.table([{"name": "a\x1b[31mb"}], ("name",))


def test_a_sweep_is_a_table_of_its_points():
    rows = [{"name": "x", "point": {"rate": 0.1}}, {"name": "y", "point": {"rate": 0.2}, "loss": 3}]
    html = render_html.picture(rows, render.flat_table)
    assert html.count("<th ") == 3 and ">0.2<" in html
    assert render_html.values(rows, render.flat_table)[0] == {"name": "x", "rate": 0.1}


def test_what_text_says_best_stays_text():
    assert render_html.picture({"a": 1}, render.document) is None


def test_one_value_alone_is_one_row():
    assert render_html.values({"a": 1}, ("a",)) == [{"a": 1}]
