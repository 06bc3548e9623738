"""The few kinds of rules a document is held to, and the report they write into.

They mirror how the real server's JSON-Schema checker sees values: 2.0 is an integer, a boolean is
not, and a rule about keys says nothing about a value that is no mapping.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openpai_tasks.protocol.problems import Problem, closest
from openpai_tasks.protocol.reader import Path, Source
from openpai_tasks.protocol.values import is_whole

Rule = Callable[[Any, Path, "Report"], None]


@dataclass
class Report:
    """The problems found so far."""

    source: Source
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: Path, rule: str) -> None:
        self.problems.append(Problem(_written(path), rule, self.source.line(path)))


def anything(value: Any, path: Path, report: Report) -> None:
    """No rule at all."""


def never(value: Any, path: Path, report: Report) -> None:
    report.add(path, "is not allowed")


def text(pattern: str = "", longest: int = 0) -> Rule:
    """A string, of a pattern and a length where given; the value is not shown, it may be a secret."""

    def check(value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, str):
            report.add(path, f"must be a string, got {kind(value)}")
            return
        if pattern and not re.fullmatch(pattern, value):
            report.add(path, f"must match {pattern}, got {_short(value)}")
        if longest and len(value) > longest:
            report.add(path, f"must not be longer than {longest} characters, got {len(value)}")

    return check


def whole(least: int | None = None, null: bool = False) -> Rule:
    """An integer, not below ``least``, or null where that is allowed."""

    def check(value: Any, path: Path, report: Report) -> None:
        if null and value is None:
            return
        if not is_whole(value):
            report.add(path, f"must be an integer{' or null' if null else ''}, got {_short(value)}")
        elif least is not None and value < least:
            report.add(path, f"must be >= {least}, got {_short(value)}")

    return check


def number_or_text(value: Any, path: Path, report: Report) -> None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        report.add(path, f"must be a string or a number, got {kind(value)}")


def one_of(*allowed: str | int) -> Rule:
    """One of the values listed."""

    def check(value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value not in allowed:
            report.add(path, f"must be {' or '.join(map(repr, allowed))}, got {_short(value)}")

    return check


def items(rule: Rule, least: int = 0) -> Rule:
    """A list of at least so many items, each of the one kind."""

    def check(value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, list):
            report.add(path, f"must be a list, got {kind(value)}")
            return
        if len(value) < least:
            report.add(path, f"must have at least {least} item{'s' * (least != 1)}")
        for index, item in enumerate(value):
            rule(item, (*path, index), report)

    return check


def fields(known: Mapping[str, Rule], required: Iterable[str] = (), others: bool = False) -> Rule:
    """A mapping with known keys, some of them required, others allowed or not."""
    needed = tuple(required)

    def check(value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            report.add(path, f"must be a mapping, got {kind(value)}")
            return
        for key in value if not others else ():
            if key not in known:
                missing = [name for name in known if name not in value]
                report.add((*path, key), f"unknown key{closest(key, missing)}")
        for key in needed:
            if key not in value:
                report.add((*path, key), "is required but missing")
        for key, rule in known.items():
            if key in value:
                rule(value[key], (*path, key), report)

    return check


def named(pattern: str, rule: Rule) -> Rule:
    """At least one entry, named by the user; what is no mapping is none of this rule's business."""

    def check(value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, dict):
            return
        if not value:
            report.add(path, "must have at least 1 entry")
        for key, item in value.items():
            if re.fullmatch(pattern, key):
                rule(item, (*path, key), report)
            else:
                report.add((*path, key), f"the name must match {pattern}")

    return check


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


def _written(path: Path) -> str:
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
