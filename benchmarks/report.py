"""The results of benchmarks as a table, for the terminal and for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.side_by_side import OURS, Outcome, Ratio

HEADER = ("what", "ours", "peer", "its value", "ratio", "spread", "goal", "")


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a Markdown table: one line for each peer."""
    rows = [HEADER, tuple("-" * len(name) for name in HEADER), *_rows(outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in rows
    )


def _rows(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        for ratio in outcome.ratios():
            values = outcome.value(OURS), ratio.peer, outcome.value(ratio.peer)
            numbers = f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}"
            yield (outcome.what, *values, *numbers, *_goal(ratio))


def _goal(ratio: Ratio) -> tuple[str, str]:
    if ratio.goal is None:
        return "", ""
    return f"≤ {ratio.goal:.2f}", "met" if ratio.is_met else "missed"
