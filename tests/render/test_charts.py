"""Charts for terminals and pictures: they fit, and nothing in the data can break them."""

import math
import os
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies

from openpai_tasks.render import charts, drawing, svg
from openpai_tasks.render.charts import Chart, Series
from openpai_tasks.render.views import Page, TextTable
from tests.attacks import ALL, forbidden, texts, without_colours
from tests.terminals import columns_of

LINE = Series("", [(step, step) for step in range(100)])


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    for name in ("NO_COLOR", "LINES", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def draw(view):
    return drawing.draw(view, int(os.environ["COLUMNS"]))


def dots(chart):
    """Return the characters of the plot, row by row."""
    return [line.partition("│")[2] for line in str(chart).split("\n") if "│" in line]


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    rows = dots(Chart("loss", [LINE]))
    assert len(rows) == charts.HEIGHT
    starts, ends = [len(row) - len(row.lstrip()) for row in rows], [len(row.rstrip()) for row in rows]
    assert starts == sorted(set(starts), reverse=True) and starts[-1] == 0
    assert ends == sorted(set(ends), reverse=True) and ends[0] == 80 - len("49.5 │")


def test_axes_have_the_range_of_the_values():
    lines = str(Chart("loss", [Series("", [(10, 0.25), (500, 2), (90, 1)])])).split("\n")
    assert lines[0] == "loss" and lines[1].startswith("    2 │") and lines[-3].startswith(" 0.25 │")
    assert lines[-1].split() == ["10", "500"]


@pytest.mark.parametrize("columns", [200, 120, 80, 40, 30])
@pytest.mark.parametrize("colours", ["", "1"])
def test_a_chart_is_never_wider_than_the_terminal(terminal, columns, colours):
    terminal.setenv("COLUMNS", str(columns))
    terminal.setenv("NO_COLOR", colours)
    chart = Chart("漢字" * 60, [Series("漢" * 150, LINE.points), Series("x" * 300, [(0, -1e-300)])])
    for text in (str(chart), without_colours(draw(chart))):
        assert max(map(columns_of, text.split("\n"))) <= columns


def test_series_differ_by_colour_or_else_by_character(terminal):
    chart = Chart("loss", [Series("one", [(0, 0), (1, 1)]), Series("two", [(0, 1), (1, 0)])])
    coloured = draw(chart)
    assert "\x1b[36m" in coloured and "\x1b[33m" in coloured and max(coloured) > "⠀"
    plain = str(chart)
    assert "*  one" in plain and "+  two" in plain and not any("⠀" <= letter <= "⣿" for letter in plain)
    terminal.setenv("NO_COLOR", "1")
    assert draw(chart) == plain


def test_many_series_are_drawn_and_some_of_them_named():
    chart = Chart("loss", [Series(f"job-{number}", [(0, number), (1, number)]) for number in range(50)])
    lines = str(chart).split("\n")
    assert lines[-1] == f"and {50 - charts.LEGEND} more" and len(lines) < 40


VALUES = (math.nan, math.inf, -math.inf, 0.0, 1.0, -1e308, 1e308, 5e-324)


@pytest.mark.parametrize(
    "points", [[], [(0, math.nan)], [(0, 1)], [(0, 1), (0, 1)], [(0, y) for y in VALUES]]
)
def test_odd_values_are_drawn_or_left_out(points):
    chart = Chart("loss", [Series("", points)])
    assert str(chart) and draw(chart)
    ElementTree.fromstring(svg.draw([chart]))


def test_a_value_that_is_no_number_interrupts_the_line():
    whole, broken = ([(x, 0.0) for x in range(100)] for _ in range(2))
    broken[30:70] = [(x, math.nan) for x in range(30, 70)]
    [middle] = [row for row in dots(Chart("", [Series("", whole)])) if row.strip()]
    [gap] = [row for row in dots(Chart("", [Series("", broken)])) if row.strip()]
    assert " " not in middle and " " * 25 in gap


numbers = strategies.one_of(
    strategies.floats(), strategies.integers(-(2**60), 2**60), strategies.sampled_from(VALUES)
)
points = strategies.lists(strategies.tuples(numbers, numbers), max_size=20)


@given(texts, strategies.lists(points, max_size=4))
def test_nothing_in_a_chart_controls_the_terminal_or_breaks_the_picture(text, many):
    chart = Chart(text, [Series(text, one) for one in many])
    assert not forbidden(str(chart)) and not forbidden(without_colours(draw(chart)))
    picture = svg.draw([chart, chart])
    assert not forbidden(picture)
    ElementTree.fromstring(picture)


def test_a_picture_has_few_points_however_many_there_are():
    data = [(step, math.sin(step) / (step + 1)) for step in range(100_000)]
    picture = svg.draw([Chart("loss", [Series(ALL, data)])])
    assert len(picture) < 60_000


def test_charts_and_tables_are_drawn_below_each_other():
    page = Page([Chart("loss", [LINE]), TextTable(["JOB"], [["a"]])])
    for text in (str(page), without_colours(draw(page))):
        assert text.startswith("loss\n") and text.endswith("\n\nJOB\na")
    assert drawing.frame(page, 80, 100)
