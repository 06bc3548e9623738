"""The few kinds of rules a document is held to, as values, and the report they write into.

They mirror how the real server's JSON-Schema checker sees values: 2.0 is an integer, a boolean is
not, and a rule about keys says nothing about a value that is no mapping. Being values, they can be
read as well as applied: json_schema.py writes them down for editors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from openpai_tasks.protocol.problems import Problem, closest
from openpai_tasks.protocol.yaml.reader import Path, Source
from openpai_tasks.protocol.yaml.values import is_whole

HINTS = 20  # problems with a guess at what was meant, which takes time


@dataclass
class Report:
    """The problems found so far; ``sound`` while every value is of the kind it must be."""

    source: Source
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True

    def add(self, path: Path, rule: str, sound: bool = False) -> None:
        """Note a problem; a ``sound`` one leaves the shape of the document as it has to be."""
        self.problems.append(Problem(written(path), rule, self.source.line(path)))
        self.sound = self.sound and sound


class Rule(Protocol):
    """Notes in the report what is wrong with the value at the path."""

    def __call__(self, value: Any, path: Path, report: Report) -> None: ...


@dataclass(frozen=True)
class Anything:
    """No rule at all."""

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        pass


@dataclass(frozen=True)
class Never:
    """A key that must not be there."""

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        report.add(path, "is not allowed")


@dataclass(frozen=True)
class Text:
    """A string, of a pattern and a length where given; the value is not shown, it may be a secret."""

    pattern: str = ""
    longest: int = 0

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, str):
            report.add(path, f"must be a string, got {kind(value)}")
            return
        if self.pattern and not re.fullmatch(self.pattern, value):
            report.add(path, f"must match {self.pattern}, got {_short(value)}", sound=True)
        if self.longest and len(value) > self.longest:
            rule = f"must not be longer than {self.longest} characters, got {len(value)}"
            report.add(path, rule, sound=True)


@dataclass(frozen=True)
class Whole:
    """An integer, not below ``least``, or null where that is allowed."""

    least: int | None = None
    null: bool = False

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if self.null and value is None:
            return
        if not is_whole(value):
            report.add(path, f"must be an integer{' or null' if self.null else ''}, got {_short(value)}")
        elif self.least is not None and value < self.least:
            report.add(path, f"must be >= {self.least}, got {_short(value)}", sound=True)


@dataclass(frozen=True)
class NumberOrText:
    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            report.add(path, f"must be a string or a number, got {kind(value)}")


@dataclass(frozen=True)
class OneOf:
    """One of the values listed."""

    allowed: tuple[str | int, ...]

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value not in self.allowed:
            report.add(path, f"must be {' or '.join(map(repr, self.allowed))}, got {_short(value)}")


@dataclass(frozen=True)
class Items:
    """A list of at least so many items, each of the one kind."""

    rule: Rule
    least: int = 0

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, list):
            report.add(path, f"must be a list, got {kind(value)}")
            return
        if len(value) < self.least:
            report.add(path, f"must have at least {self.least} item{'s' * (self.least != 1)}", sound=True)
        for index, item in enumerate(value):
            self.rule(item, (*path, index), report)


@dataclass(frozen=True)
class Fields:
    """A mapping with known keys, some of them required, others allowed or not."""

    known: Mapping[str, Rule]
    required: tuple[str, ...] = ()
    others: bool = False

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            report.add(path, f"must be a mapping, got {kind(value)}")
            return
        for key in value if not self.others else ():
            if key not in self.known:
                missing = [name for name in self.known if name not in value]
                hint = closest(key, missing) if len(report.problems) < HINTS else ""
                report.add((*path, key), f"unknown key{hint}", sound=True)
        for key in self.required:
            if key not in value:
                report.add((*path, key), "is required but missing")
        for key, rule in self.known.items():
            if key in value:
                rule(value[key], (*path, key), report)


@dataclass(frozen=True)
class Named:
    """At least one entry, named by the user; what is no mapping is none of this rule's business."""

    pattern: str
    rule: Rule

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            return
        if not value:
            report.add(path, "must have at least 1 entry")
        for key, item in value.items():
            if re.fullmatch(self.pattern, key):
                self.rule(item, (*path, key), report)
            else:
                report.add((*path, key), f"the name must match {self.pattern}")


@dataclass(frozen=True)
class Variants:
    """A mapping of which one key decides by which rule the whole is judged."""

    key: str
    rules: Mapping[str, Fields]

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            report.add(path, f"must be a mapping, got {kind(value)}")
        elif self.key not in value:
            report.add((*path, self.key), "is required but missing")
        else:
            chosen = value[self.key]
            OneOf(tuple(self.rules))(chosen, (*path, self.key), report)
            if isinstance(chosen, str) and chosen in self.rules:
                self.rules[chosen](value, path, report)


def kind(value: Any) -> str:
    """What a value is, without showing it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "a mapping"


def _short(value: Any) -> str:
    if isinstance(value, (bool, int, float)) and not (isinstance(value, float) and math.isnan(value)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    return kind(value)


def written(path: Path) -> str:
    """``taskRoles.worker.commands[0]``; a key that is no plain word is quoted."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        elif re.fullmatch(r"[\w-]{1,60}", part):
            out += f".{part}" if out else part
        else:
            out += f"[{_short(part)}]"
    return out
