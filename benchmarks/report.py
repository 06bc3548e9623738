"""The results of benchmarks as a table, for the terminal and for docs/performance.md."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.side_by_side import OURS, Outcome, Ratio

PAGE = """# Performance

How long the work of this package takes beside other tools, on the same machine and in the same run. Every
contender takes one turn in each round, in shuffled order. A ratio is our time divided by the peer's in a
round; the median of the rounds counts, and the spread shows the smallest and the largest. What arrives is
checked. Goals that are missed are listed, too.

Measure it yourself, all of it or by topic ({topics}); peers that
are not installed are left out:

```bash
inv bench
inv bench --topics startup,copying --rounds 3
```

## Last run

{machine}.

{table}

![Ratios to peers; left of 1 is faster](performance.svg)

{notes}
"""

HEADER = ("what", "ours", "peer", "its value", "ratio", "spread", "goal", "")


def page(outcomes: Sequence[Outcome], topics: Sequence[str], notes: str) -> str:
    """Return docs/performance.md for these results."""
    return (
        PAGE.format(topics=", ".join(topics), machine=_machine(), table=table(outcomes), notes=notes).rstrip()
        + "\n"
    )


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    python = platform.python_version()
    when = time.strftime("%Y-%m-%d")
    processors = f"{os.cpu_count()} processors ({platform.machine()})"
    return f"{when}: {processors}, {memory:.0f} GiB of memory, Python {python}"


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
