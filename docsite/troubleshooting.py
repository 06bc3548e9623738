"""The page "Troubleshooting", from the table of causes.

``python -m docsite.troubleshooting`` writes docs/troubleshooting.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.causes import SECTIONS, Cause

FILE = Path(__file__).parent.parent / "docs" / "troubleshooting.md"
HEAD = """\
# Troubleshooting

This page lists error messages in the output of jobs, what they mean, and what to do. `pai job.why NAME`
recognises all of them: its first line is the cause, followed by the advice below. Search this page for words
from your message.

The flags are those of `pai job.sub`; [jobs](jobs.md) explains them. `job.why` also explains why a job is
waiting: see [after a job](afterwards.md#find-out-why-a-job-waits-or-failed).
"""


def page() -> str:
    return "".join([HEAD, *(part for title, rows in SECTIONS.items() for part in _section(title, rows))])


def _section(title: str, rows: tuple[Cause, ...]) -> Iterator[str]:
    yield f"\n## {title}\n"
    for row in rows:
        yield f"\n### {row.title}\n\n"
        if row.examples:
            yield "".join(["```text\n", *(f"{line.strip()}\n" for line in row.examples), "```\n\n"])
        if codes := [f"`{code}`" for code in row.codes]:
            yield f"Exit code {' or '.join(codes)}. "
        groups = (row.search(row.examples[0]) if row.examples else None) or ("",)
        advice = row.advise(groups)
        yield f"{advice[0].upper()}{advice[1:]}.\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
