"""Charts for terminals and pictures: they fit, and nothing in the data can break them."""

import math
import os
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies

from openpai_tasks.render import charts, drawing, svg
from openpai_tasks.render.charts import Chart, Scale, Series
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
    return [re.split("[│┤]", line)[1] for line in str(chart).split("\n") if re.search("[│┤]", line)]


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    rows = dots(Chart("loss", [LINE]))
    assert len(rows) == charts.HEIGHT
    starts, ends = [len(row) - len(row.lstrip()) for row in rows], [len(row.rstrip()) for row in rows]
    assert starts == sorted(set(starts), reverse=True) and starts[-1] == 0
    assert ends == sorted(set(ends), reverse=True) and ends[0] == 80 - len("80 ┤")


def test_axes_have_round_numbers_at_their_places():
    lines = str(Chart("loss", [Series("", [(10, 0.25), (500, 2), (90, 1)])])).split("\n")
    assert lines[0] == "loss" and lines[1].startswith("2.0 ┤") and lines[-4].startswith("    │")
    assert [line.split()[0] for line in lines if "┤" in line] == ["2.0", "1.5", "1.0", "0.5"]
    assert lines[-2].split() == ["100", "200", "300", "400", "500"] and lines[-1].strip() == "step"
    places = [match.start() for match in re.finditer("┬", lines[-3])]
    assert [lines[-2].find(text) for text in ("200", "300")] == [place - 1 for place in places[1:3]]


def texts_of(low, high, most=6, log=False, **kind):
    return [text for _, text in charts.ticks(Scale(low, high, log), most, **kind)]


def test_ticks_are_multiples_of_1_2_or_5():
    assert texts_of(0, 199) == ["0", "50", "100", "150"]
    assert texts_of(0.013, 0.98) == ["0.2", "0.4", "0.6", "0.8"]
    assert texts_of(-0.7, 1.2) == ["-0.5", "0.0", "0.5", "1.0"]
    assert texts_of(0, 3) == ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]
    assert texts_of(0, 3, is_whole=True) == ["0", "1", "2", "3"]
    assert texts_of(0, 4.2e7) == ["0", "1e7", "2e7", "3e7", "4e7"]
    assert texts_of(100_000.1, 100_000.3) == ["100000.10", "100000.15", "100000.20", "100000.25", "100000.30"]
    assert texts_of(5, 5) == ["5"]


def test_ticks_of_a_logarithmic_scale_are_powers_of_ten():
    assert texts_of(0.001, 0.1, log=True) == ["0.001", "0.01", "0.1"]
    assert texts_of(0.03, 2, log=True) == ["0.05", "0.1", "0.2", "0.5", "1", "2"]
    assert texts_of(0.0005, 70, log=True) == ["0.001", "0.01", "0.1", "1", "10"]
    assert texts_of(1e-12, 1e12, log=True) == ["1e-12", "1e-8", "0.0001", "1", "1e4", "1e8", "1e12"]
    assert texts_of(11, 17, log=True) == ["11", "12", "13", "14", "15", "16", "17"]


def test_times_are_durations():
    assert texts_of(0, 47, is_time=True) == ["0s", "10s", "20s", "30s", "40s"]
    assert texts_of(0, 400, is_time=True) == ["0s", "2m", "4m", "6m"]
    assert texts_of(0, 9000, is_time=True) == ["0s", "30m", "1h", "1h 30m", "2h", "2h 30m"]
    assert texts_of(0, 9 * 86400, is_time=True) == ["0s", "2d", "4d", "6d", "8d"]
    assert charts.duration(-311) == "-5m 11s"


@given(
    strategies.floats(allow_nan=False, allow_infinity=False),
    strategies.floats(0, 1e308),
    strategies.booleans(),
)
def test_any_scale_has_a_few_ticks_within_it(low, more, is_time):
    high = max(low, min(low + more, 1.7e308))
    for scale in (Scale(low, high), *([Scale(low, high, is_log=True)] if low > 0 else [])):
        found = charts.ticks(scale, 6, is_time=is_time)
        assert len(found) <= 20 and all(0 <= scale.step_of(value, 100) < 100 for value, _ in found)


@pytest.mark.parametrize(
    ("values", "is_log"),
    [
        ([0.001, 0.01, 0.1], True),
        ([16, 32, 64, 128, 256], True),
        ([0.1, 0.2, 0.4], False),
        (range(1, 101), False),
        ([0, 0.01, 0.1], False),
        ([-1, 10, 100], False),
        ([3], False),
    ],
)
def test_a_scale_is_logarithmic_where_its_values_are(values, is_log):
    assert charts.scale_of(list(values)).is_log == is_log


def test_points_are_thinned_to_the_extremes_of_each_column():
    points = [(x, math.sin(x / 7)) for x in range(100_000)]
    points[50_007] = (50_007, 9.0)
    points[70_000] = (70_000, math.nan)

    def thinned(points, *part):
        [line] = charts.thin(Chart("", [Series("", points)]), 500, *part).series
        return line.points

    kept = thinned(points)
    assert len(kept) <= 2 * 500 + 1 and kept == sorted(kept, key=lambda point: point[0])
    assert (50_007, 9.0) in kept and any(math.isnan(y) for _, y in kept)
    assert [x for x, _ in thinned(points, 50_000, 50_010)] == list(range(49_999, 50_012))
    assert len(thinned(points, 10, 90_000, True)) > 500
    assert thinned(points[::-1])[0] == kept[0]


@pytest.mark.parametrize("colour", charts.COLOURS)
def test_a_colour_is_legible_on_white_and_on_dark_pages(colour):
    def luminance(text):
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] + 0.05

    assert luminance("#ffffff") / luminance(colour) >= 3 and luminance(colour) / luminance("#161c25") >= 3


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
    assert "\x1b[38;5;33m" in coloured and "\x1b[38;5;166m" in coloured and max(coloured) > "⠀"
    plain = str(chart)
    assert "*  one" in plain and "+  two" in plain and not any("⠀" <= letter <= "⣿" for letter in plain)
    terminal.setenv("NO_COLOR", "1")
    assert draw(chart) == plain


@pytest.mark.parametrize("kind", ["xterm", "xterm-256color"])
def test_twelve_series_have_twelve_colours(terminal, kind):
    terminal.setenv("TERM", kind)
    chart = Chart("loss", [Series(f"job-{number}", [(0, number), (1, number)]) for number in range(12)])
    assert len(set(re.findall("(\x1b[^m]+m)──", draw(chart)))) == 12


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


@pytest.mark.parametrize(
    ("lines", "whole", "height"), [(6, 0, 3), (10, 1, 3), (24, 2, 4), (40, 3, 5), (99, 3, 12)]
)
@pytest.mark.parametrize("columns", [40, 120])
def test_live_charts_fit_a_low_screen(columns, lines, whole, height):
    drawn = [Chart(f"metric {n}", [Series(job, LINE.points) for job in ("one", "two")]) for n in range(3)]
    page = Page([*drawn, TextTable(["JOB", "LAST"], [["one", "1"], ["two", "2"]])])
    shown = [without_colours(line) for line in drawing.frame(page, columns, lines)]
    assert len(shown) <= lines and max(map(columns_of, shown)) <= columns
    assert sum("──  two" in line for line in shown) == whole
    assert len([line for line in shown[: height + 1] if re.search("[│┤]", line)]) == height
    assert (shown[-1] == "…") == (whole < 3) and (shown[-1].split() == ["two", "2"]) == (whole == 3)
