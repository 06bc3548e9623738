"""The results of benchmarks as a table, for the terminal and for docs/performance.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.results import TopicResult
from benchmarks.side_by_side import ResultRow

PAGE = """# Performance

How long this package takes compared with other tools, on the same machine and in the same run. Every
contender takes one turn in each round, in shuffled order. A ratio is our time divided by the peer's in a
round; the median of the rounds counts, and the spread shows the smallest and the largest. What arrives is
checked. Goals that are missed are listed, too.

{measure}

```bash
inv bench
inv bench --topics startup,copying
inv bench --rounds 1  # a first impression
```

## Last results

{tables}

![Ratios to peers; left of 1 is faster](performance.svg)

{notes}
"""

MEASURE = "Measure it yourself, all of it or by topic ({topics}); peers that are not installed are left out:"
HEADER = ("what", "ours", "peer", "its value", "ratio", "spread", "rounds", "goal", "")


def page(results: Mapping[str, TopicResult], topics: Sequence[str], notes: str) -> str:
    """Return docs/performance.md for these results."""
    tables = "\n\n".join(_section(topic, result) for topic, result in results.items())
    measure = textwrap.fill(MEASURE.format(topics=", ".join(topics)), 110)
    return PAGE.format(measure=measure, tables=tables, notes=notes).rstrip() + "\n"


def _section(topic: str, result: TopicResult) -> str:
    return f"### {topic}\n\n{result.date}: {result.machine}.\n\n{table(result.rows)}"


def table(rows: Iterable[ResultRow]) -> str:
    """Return a Markdown table: one line for each peer."""
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) or 1 for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def _cells(row: ResultRow) -> tuple[str, ...]:
    ratios = f"{row.ratio:.2f}", f"{row.low:.2f} to {row.high:.2f}", str(row.rounds)
    return row.what, row.ours, row.peer, row.theirs, *ratios, *_goal(row)


def _goal(row: ResultRow) -> tuple[str, str]:
    if row.goal is None:
        return "", ""
    return f"≤ {row.goal:.2f}", "met" if row.is_met else "missed"
