"""A plot of ratios as SVG: one row for each peer, on a logarithmic scale, with spread and goal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from benchmarks.side_by_side import ResultRow
from openpai_tasks.render import svg

LEFT, WIDTH, ROW, TOP = 430, 420, 22, 40
LEAST, MOST = 0.1, 10.0
MARKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MET, MISSED, NO_GOAL = "#2a7", "#c43", "#888"


def plot(results: Iterable[ResultRow]) -> str:
    """Return the picture; left of 1 is faster than the peer."""
    rows = list(results)
    height = TOP + ROW * len(rows) + 10
    lines = [_scale(height), *(_row(number, row) for number, row in enumerate(rows))]
    return svg.page(LEFT + WIDTH + 60, height, lines)


def _place(ratio: float) -> float:
    bounded = min(max(ratio, LEAST), MOST)
    return LEFT + WIDTH * (math.log(bounded) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))


def _scale(height: int) -> str:
    lines = []
    for mark in MARKS:
        x, colour = _place(mark), "#333" if mark == 1 else "#ddd"
        lines.append(f'<line x1="{x:.0f}" y1="{TOP - 8}" x2="{x:.0f}" y2="{height}" stroke="{colour}"/>')
        lines.append(f'<text x="{x:.0f}" y="{TOP - 14}" text-anchor="middle">{mark:g}</text>')
    return "\n".join(lines)


def _row(number: int, row: ResultRow) -> str:
    y = TOP + ROW * number + ROW // 2
    colour = NO_GOAL if row.goal is None else MET if row.is_met else MISSED
    low, middle, high = (_place(value) for value in (row.low, row.ratio, row.high))
    parts = [
        f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(f"{row.what} / {row.peer}")}</text>',
        f'<line x1="{low:.0f}" y1="{y}" x2="{high:.0f}" y2="{y}" stroke="{colour}" stroke-width="3"/>',
        f'<circle cx="{middle:.0f}" cy="{y}" r="5" fill="{colour}"/>',
        f'<text x="{LEFT + WIDTH + 12}" y="{y + 4}">{row.ratio:.2f}</text>',
    ]
    if row.goal is not None:
        x = _place(row.goal)
        parts.append(f'<path d="M{x:.0f} {y - 8} v16" stroke="black" stroke-dasharray="2 2"/>')
    return "\n".join(parts)
