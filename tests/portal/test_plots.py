"""Numbers of plots, and the colours that they share with the style sheet."""

import json
import math
import re
from pathlib import Path

import openpai_tasks.portal
from openpai_tasks.portal.plots import MOST_LINES, line_plot, parallel_plot, scatter_plot
from openpai_tasks.render.charts import COLOURS, DASHES, Chart, Series

STYLES = (Path(openpai_tasks.portal.__file__).parent / "static" / "portal.css").read_text()


def test_the_style_sheet_has_the_colours_and_dashes_of_pictures():
    assert re.findall(r"\.line-\d+ { --c: (#\w+); }", STYLES) == list(COLOURS)
    assert ["", *re.findall(r"\.dash-\d { stroke-dasharray: ([\d ]+); }", STYLES)] == list(DASHES)
    assert len(COLOURS) * len(DASHES) >= MOST_LINES


def test_a_plot_has_few_points_and_the_best_one():
    points = [(step, math.cos(step / 50) + step / 1e5) for step in range(100_000)]
    points[70_123] = (70_123, -3.0)
    series = [Series("a", points), Series("b\x1b", [(0, math.nan), (1, math.inf), (2, 0.1234567890123)])]
    plot = line_plot(Chart("loss", series, best="min"))
    assert plot.best == "lowest -3 at step 70123, a" and len(plot.data) < 40_000
    data = json.loads(plot.data)
    assert data["thin"] and data["whole"] and data["best"] == [0, 70123, -3.0]
    assert data["series"][1]["y"] == [None, None, 0.1234568] and "\x1b" not in data["series"][1]["name"]


def test_a_chart_without_numbers_has_no_plot_and_one_with_too_many_lines_says_so():
    assert line_plot(Chart("loss", [Series("", [(0, math.nan)])])) is None
    assert line_plot(Chart("loss", [])) is None
    many = line_plot(Chart("loss", [Series(str(number), [(0, 1)]) for number in range(60)]))
    assert many.left_out == 10 and len(json.loads(many.data)["series"]) == 50


def test_scales_of_a_sweep_are_logarithmic_where_its_values_are():
    points = [("a", 0.001, 3.0), ("b", 0.01, 1.0), ("c", 0.1, 2.0)]
    plot = scatter_plot("loss", points, {"b"})
    assert [mark.text for mark in plot.across] == ["0.001", "0.01", "0.1"]
    places = [dot.x for dot in sorted(plot.dots, key=lambda dot: dot.name)]
    assert abs((places[0] + places[2]) / 2 - places[1]) <= 1
    assert [dot.name for dot in plot.dots if dot.is_best] == ["b"] and plot.colours.labels == ["1", "2", "3"]
    several = parallel_plot(["lr", "kind", "loss"], [("a", [0.001, "x", 3]), ("b", [0.1, "y", None])])
    assert [mark.text for mark in several.axes[1].marks] == ["x", "y"]
