"""The kinds of rules for documents, as values, and the report of problems that they fill.

They work like the real server's JSON Schema checker: 2.0 is an integer, a boolean is not, and a rule about
keys ignores values that are not mappings. As they are values, json_schema.py can convert them for editors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.problems import Problem, closest
from openpai_tasks.protocol.yaml.reader import Path, Source
from openpai_tasks.protocol.yaml.values import is_whole

HINTS = 20  # problems that get a suggestion, which takes time


@dataclass()
class Report:
    """The problems found so far; ``sound`` while every value has the right type."""

    source: Source
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True

    def add(self, path: Path, rule: str, sound: bool = False) -> None:
        """Add a problem; a ``sound`` one does not affect the structure of the document."""
        self.problems.append(Problem(path_text(path), rule, self.source.line(path)))
        self.sound = self.sound and sound


class Rule(Protocol):
    """A callable that adds the problems of the value at the path to the report."""

    def __call__(self, value: Any, path: Path, report: Report) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Anything:
    """Any value."""

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        pass


@dataclass(frozen=True, eq=False, repr=False)
class Forbidden:
    """A key that is not allowed."""

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        report.add(path, "is not allowed")


@dataclass(frozen=True, eq=False, repr=False)
class Text:
    """A string, optionally with a pattern and a maximum length."""

    pattern: str = ""
    longest: int = 0

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, str):
            report.add(path, f"must be a string, got {type_name(value)}")
            return
        if self.pattern and not re.fullmatch(self.pattern, value):
            report.add(path, f"must match {self.pattern}, got {_short(value)}", sound=True)
        if self.longest and len(value) > self.longest:
            rule = f"must not be longer than {self.longest} characters, got {len(value)}"
            report.add(path, rule, sound=True)


@dataclass(frozen=True, eq=False, repr=False)
class Integer:
    """An integer of at least ``least``, or null if that is allowed."""

    least: int | None = None
    null: bool = False

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if self.null and value is None:
            return
        if not is_whole(value):
            report.add(path, f"must be an integer{' or null' if self.null else ''}, got {_short(value)}")
        elif self.least is not None and value < self.least:
            report.add(path, f"must be >= {self.least}, got {_short(value)}", sound=True)


@dataclass(frozen=True, eq=False, repr=False)
class NumberOrText:
    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            report.add(path, f"must be a string or a number, got {type_name(value)}")


@dataclass(frozen=True, eq=False, repr=False)
class OneOf:
    """One of several values."""

    allowed: tuple[str | int, ...]

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value not in self.allowed:
            report.add(path, f"must be {' or '.join(map(repr, self.allowed))}, got {_short(value)}")


@dataclass(frozen=True, eq=False, repr=False)
class Items:
    """A list of at least ``least`` items that all follow the same rule."""

    rule: Rule
    least: int = 0

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, list):
            report.add(path, f"must be a list, got {type_name(value)}")
            return
        if len(value) < self.least:
            report.add(path, f"must have at least {self.least} item{'s' * (self.least != 1)}", sound=True)
        for index, item in enumerate(value):
            self.rule(item, (*path, index), report)


@dataclass(frozen=True, eq=False, repr=False)
class Fields:
    """A mapping with known keys, some of them required; other keys may be allowed."""

    known: Mapping[str, Rule]
    required: tuple[str, ...] = ()
    others: bool = False

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            report.add(path, f"must be a mapping, got {type_name(value)}")
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


@dataclass(frozen=True, eq=False, repr=False)
class Entries:
    """A mapping with at least one entry, named by the user; values that are not mappings are ignored."""

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


@dataclass(frozen=True, eq=False, repr=False)
class Variants:
    """A mapping in which the value of one key selects the rule for the whole."""

    key: str
    rules: Mapping[str, Fields]

    def __call__(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            report.add(path, f"must be a mapping, got {type_name(value)}")
        elif self.key not in value:
            report.add((*path, self.key), "is required but missing")
        else:
            chosen = value[self.key]
            OneOf(tuple(self.rules))(chosen, (*path, self.key), report)
            if isinstance(chosen, str) and chosen in self.rules:
                self.rules[chosen](value, path, report)


def type_name(value: Any) -> str:
    """Return the type of a value for messages, without showing the value."""
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
    return type_name(value)


def path_text(path: Path) -> str:
    """Write a path as ``taskRoles.worker.commands[0]``, quoting unusual keys."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        elif re.fullmatch(r"[\w-]{1,60}", part):
            out += f".{part}" if out else part
        else:
            out += f"[{_short(part)}]"
    return out
