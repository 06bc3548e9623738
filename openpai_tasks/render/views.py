"""What people read: tables, facts and pages of both, each cell plain text on one line.

``str()`` of a view is its text for pipes and files; `drawing` draws the same view with rich.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.render.charts import Chart
from openpai_tasks.text.plain import width

GAP = "  "
NOTHING = ("", "-")
"""Cells without a value."""
_UNITS = r"B|[KMGT]iB|%|s|m \d\ds|h \d\dm"
_NUMBER = re.compile(rf"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:/\d+| ?(?:{_UNITS}))?|-?inf|nan", re.ASCII)
"""Numbers, sizes, percentages, durations, and so many of so many."""
_LONG_NUMBER = re.compile(r"-?\d{1,9}\.\d{5,}(?:e[+-]?\d+)?", re.ASCII)
LEAST_OPTIONAL = 20  # columns of a terminal


class Moment(str):
    """A cell with a time, whose text is the date; ``age`` is how long ago it was."""

    age: str

    def __new__(cls, text: str, age: str) -> Moment:
        made = super().__new__(cls, text)
        made.age = age
        return made


class Prose(str):
    """Text that a terminal shows wrapped between words; any other text is shown as it is."""


@dataclass(frozen=True)
class TextTable:
    """A header and rows; ``states`` is the number of the column that holds states, if there is one.

    ``omitted`` are the columns that are left out on a terminal, as they say nothing. ``optional`` is the
    number of a column that a terminal shows in the room that the others leave, in one line.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    states: int | None = None
    omitted: frozenset[int] = frozenset()
    optional: int | None = None

    def __str__(self) -> str:
        return _aligned([self.header, *self.rows], self.numeric)

    @property
    def numeric(self) -> frozenset[int]:
        """The columns of numbers, which are aligned to the right; never the first, which names the row."""
        return frozenset(at for at in range(1, len(self.header)) if _is_numeric(row[at] for row in self.rows))

    @property
    def width(self) -> int:
        """The columns of a terminal that the table takes."""
        return max(map(width, str(self).splitlines()))

    def brief(self, ages: bool) -> TextTable:
        """Return the table as terminals show it: numbers of six digits; ``ages`` replace dates."""
        kept = [number for number in range(len(self.header)) if number not in self.omitted]
        rows = [[_brief_cell(row[at], ages) for at in kept] for row in self.rows]
        states = kept.index(self.states) if self.states in kept else None
        optional = kept.index(self.optional) if self.optional in kept else None
        return TextTable([self.header[at] for at in kept], rows, states, optional=optional)

    def cut_optional(self, room: int) -> TextTable:
        """Return the table with its optional column cut to the room that is left, or without the column."""
        if self.optional is None:
            return self
        number = self.optional
        others = dataclasses.replace(self, omitted=frozenset({number}), optional=None).brief(ages=False)
        left = room - others.width - len(GAP)
        if left < LEAST_OPTIONAL:
            return others
        rows = [[*row[:number], cut(row[number], left), *row[number + 1 :]] for row in self.rows]
        return dataclasses.replace(self, rows=rows, optional=None)


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


def cut(text: str, room: int) -> str:
    """Return a text that takes no more columns than there are, cut between words, with an ellipsis."""
    if width(text) <= room:
        return text
    while width(text) >= room:
        text = text[:-1]
    words = text.rpartition(" ")[0]
    return f"{words} …" if 2 * width(words) > room else f"{text}…"


def has_colours() -> bool:
    """Whether the user and the kind of terminal allow colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def drawn_width(text: str) -> int:
    """Return how many columns of a terminal a line with colours takes."""
    return width(re.sub(r"\x1b\[[0-9;]*m", "", text))


def _brief_cell(cell: str, ages: bool) -> str:
    if isinstance(cell, Moment):
        return cell.age if ages else cell
    return f"{float(cell):.6g}" if _LONG_NUMBER.fullmatch(cell) else cell


def _is_numeric(cells: Iterable[str]) -> bool:
    known = [cell for cell in cells if cell not in NOTHING]
    return bool(known) and all(_NUMBER.fullmatch(cell) for cell in known)


def _aligned(rows: Sequence[Sequence[str]], numeric: Set[int] = frozenset()) -> str:
    """Columns as wide as their widest cell, numbers at the right; nothing is cut."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = (
        GAP.join(
            _pad(cell, wide, at in numeric) for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _pad(cell: str, wide: int, is_number: bool) -> str:
    space = " " * (wide - width(cell))
    return space + cell if is_number else cell + space
