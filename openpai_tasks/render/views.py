"""What people read: tables, facts and pages of both, each cell plain text on one line.

``str()`` of a view is its text for pipes and files; `drawing` draws the same view with rich.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TypeAlias

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.render.charts import Chart
from openpai_tasks.text.plain import width

GAP = "  "


class Moment(str):
    """A cell with a time, whose text is the date; ``age`` is how long ago it was."""

    age: str

    def __new__(cls, text: str, age: str) -> Moment:
        made = super().__new__(cls, text)
        made.age = age
        return made


@dataclass(frozen=True)
class TextTable:
    """A header and rows; ``states`` is the number of the column that holds states, if there is one.

    ``omitted`` are the columns that are left out on a terminal, as they say nothing.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    states: int | None = None
    omitted: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return _aligned([self.header, *self.rows])

    @property
    def width(self) -> int:
        """The columns of a terminal that the table takes."""
        return max(map(width, str(self).splitlines()))

    def brief(self, ages: bool) -> TextTable:
        """Return the table as terminals show it; ``ages`` replace dates."""
        kept = [number for number in range(len(self.header)) if number not in self.omitted]
        rows = [
            [cell.age if ages and isinstance(cell, Moment) else cell for cell in (row[at] for at in kept)]
            for row in self.rows
        ]
        states = kept.index(self.states) if self.states in kept else None
        return TextTable([self.header[at] for at in kept], rows, states)


@dataclass(frozen=True)
class Facts:
    """One value, a line for each of its fields."""

    rows: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        return _aligned(self.rows)


@dataclass(frozen=True)
class Page:
    """Views below each other."""

    parts: Sequence[TextTable | Facts | Chart | str]
    spaced: bool = True

    def __str__(self) -> str:
        return ("\n\n" if self.spaced else "\n").join(map(str, self.parts))


@dataclass(frozen=True)
class Bar:
    """How much is done, from 0 to 1, and a line about it."""

    done: float
    line: str

    def __str__(self) -> str:
        return self.line


View: TypeAlias = TextTable | Facts | Chart | Page | Bar | str


def has_colours() -> bool:
    """Whether the user and the kind of terminal allow colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def drawn_width(text: str) -> int:
    """Return how many columns of a terminal a line with colours takes."""
    return width(re.sub(r"\x1b\[[0-9;]*m", "", text))


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; nothing is cut."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = (
        GAP.join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
