"""Read YAML by the rules of the real server's reader.

PyYAML splits the text into events, which are interpreted here, as the two differ: ``yes`` is a string,
duplicate keys are an error, keys are strings, numbers are JavaScript's, and few tags are known.

PyYAML also rejects tabs between words, treats three rare characters as line breaks, and drops spaces at the
end of quoted lines. libyaml is fast but stricter, so text that it refuses is read a second time.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import field
from typing import Any, NoReturn

import yaml

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.problems import Problem, refusal
from openpai_tasks.protocol.yaml import values
from openpai_tasks.protocol.yaml.limited import DEPTH, TOO_DEEP, LimitedFlow

Path = tuple["str | int", ...]

ALIASED, ALIASED_TEXT = 20_000, 1_000_000
"""How many values and characters the aliases of a document may add."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_BREAKS = {0x85: 0xFDD0, 0x2028: 0xFDD1, 0x2029: 0xFDD2}
_BACK = {stand_in: char for char, stand_in in _BREAKS.items()}
_SLOW = re.compile(r"\t| \r?\n|![^\s,\[\]{}!]*[,\[\]{}]")  # text that libyaml reads differently
_Event = Any  # PyYAML has no types


@dataclass(frozen=True)
class Source:
    """A document that has been read: its text, its value, and the line of each part."""

    text: str = field(repr=False)
    value: Any = field(repr=False)
    places: dict[int, tuple[Any, dict[str | int, int]]] = field(repr=False)  # kept by identity

    def lines(self, part: Any) -> dict[str | int, int]:
        """Return the lines on which the items of a list or mapping in the document begin."""
        return self.places.get(id(part), (None, {}))[1]

    def line(self, path: Path) -> int | None:
        """Return the line of the deepest part of ``path`` that exists in the document."""
        value, found = self.value, None
        for part in path:
            place = self.lines(value).get(part)
            if place is None:
                return found
            found, value = place, value[part]
        return found


def read(text: str) -> Source:
    """Read the single YAML document in ``text`` (``None`` for an empty one)."""
    bad = _UNPRINTABLE.search(text)
    if bad:
        _fail(f"the character {bad[0]!r} is not allowed", text.count("\n", 0, bad.start()) + 1)
    fast = getattr(yaml, "CSafeLoader", None)
    if fast and not _SLOW.search(text):
        with contextlib.suppress(yaml.YAMLError):
            return _read(text, fast)
    try:
        return _read(text, _TabLoader)
    except yaml.MarkedYAMLError as err:
        _fail(f"invalid YAML: {err.problem or err.context}", _line(err.problem_mark or err.context_mark))
    except yaml.YAMLError as err:
        _fail(f"invalid YAML: {' '.join(str(err).split())}", 1)


def _read(text: str, loader: Any) -> Source:
    builder = _Builder(text, loader)
    return Source(text, builder.document(), builder.places)


def _fail(rule: str, line: int) -> NoReturn:
    raise refusal([Problem("", rule, line)])


def _line(mark: Any) -> int:
    return int(mark.line) + 1 if mark else 1


class _Builder:
    """Builds the value of one document from its events."""

    def __init__(self, text: str, loader: Any) -> None:
        self._events = iter(yaml.parse(text.translate(_BREAKS), Loader=loader))
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # with its values and characters
        self._size = self._length = 0
        self._aliased = self._aliased_text = 0
        self._depth = 0
        self.places: dict[int, tuple[Any, dict[str | int, int]]] = {}

    def document(self) -> Any:
        value = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self._size:
                    _fail("more than one YAML document", _line(event.start_mark))
                value = self._node(next(self._events))
        return value

    def _node(self, event: _Event) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        size, length = self._size, self._length
        self._size += 1
        value = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else self._collection(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._size - size, self._length - length)
        return value

    def _alias(self, event: _Event) -> Any:
        if event.anchor not in self._anchors:
            _fail(f"unknown alias *{event.anchor}", _line(event.start_mark))
        value, size, length = self._anchors[event.anchor]
        self._size, self._length = self._size + size, self._length + length
        self._aliased, self._aliased_text = self._aliased + size, self._aliased_text + length
        if self._aliased > ALIASED or self._aliased_text > ALIASED_TEXT:
            rule = f"aliases add more than {ALIASED} values or {ALIASED_TEXT} characters to the document"
            _fail(rule, _line(event.start_mark))
        return value

    def _scalar(self, event: _Event) -> Any:
        text, is_plain = _content(event.value), not event.style
        self._length += len(text)
        if event.tag is None:
            return values.plain(text) if is_plain else text
        try:
            return values.tagged_scalar(event.tag, text, is_plain)
        except values.InvalidTag as err:
            _fail(str(err), _line(event.start_mark))

    def _collection(self, event: _Event) -> Any:
        self._depth += 1
        if self._depth > DEPTH:
            _fail(TOO_DEEP, _line(event.start_mark))
        value = self._sequence() if isinstance(event, yaml.SequenceStartEvent) else self._mapping()
        self._depth -= 1
        try:
            return value if event.tag is None else values.tagged_collection(event.tag, value)
        except values.InvalidTag as err:
            _fail(str(err), _line(event.start_mark))

    def _sequence(self) -> list[Any]:
        items: list[Any] = []
        lines = self._lines(items)
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            lines[len(items)] = _line(event.start_mark)
            items.append(self._node(event))
        return items

    def _mapping(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: set[str] = set()
        lines = self._lines(result)
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line = _line(event.start_mark)
            merge = _is_merge(event)
            key = self._key(event, line)
            value = self._node(next(self._events))
            if merge:
                _merge(result, merged, value, line)
            elif key in result and key not in merged:
                _fail(f"duplicate key {key!r}", line)
            else:
                merged.discard(key)
                result[key] = value
            lines.setdefault(key, line)
        return result

    def _lines(self, part: Any) -> dict[str | int, int]:
        lines: dict[str | int, int] = {}
        self.places[id(part)] = (part, lines)
        return lines

    def _key(self, event: _Event, line: int) -> str:
        key = self._node(event)
        if isinstance(key, list) and any(isinstance(item, list) for item in key):
            _fail("a list cannot be a key", line)
        return values.text_of(key)


def _is_merge(event: _Event) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    return event.tag == values.TAG + "merge" or (event.tag is None and not event.style)


def _merge(result: dict[str, Any], merged: set[str], value: Any, line: int) -> None:
    """Add missing keys from one mapping, or from each mapping in a list."""
    for source in value if isinstance(value, list) else [value]:
        if isinstance(source, list):
            source = {str(index): item for index, item in enumerate(source)}
        if not isinstance(source, dict):
            _fail("only a mapping can be merged", line)
        merged.update(source.keys() - result.keys())
        result.update({key: item for key, item in source.items() if key not in result})


def _content(value: str) -> str:
    """Return a string of an event as it was in the document, with surrogate pairs joined."""
    if value.isascii():
        return value
    value = value.translate(_BACK)
    if any("\ud800" <= char <= "\udfff" for char in value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


class _TabLoader(LimitedFlow, yaml.SafeLoader):
    """Loader that allows tabs except in indentation, and keeps spaces at line ends in quoted strings."""

    def scan_to_next_token(self) -> None:
        if self.index == 0 and self.peek() == "\ufeff":
            self.forward()
        while True:
            self._blanks()
            if self.peek() == "#":
                while self.peek() not in "\0\r\n":
                    self.forward()
            if not self._line_break():
                return
            self.allow_simple_key = self.allow_simple_key or not self.flow_level

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> list[str]:
        blanks, breaks = self._blanks(), 0
        while self.peek() in "\r\n":
            self._line_break()
            self.allow_simple_key = True
            if self.prefix(3) in ("---", "...") and self.peek(3) in "\0 \t\r\n":
                return []
            breaks += 1
            self._blanks()
        if breaks:
            return [" " if breaks == 1 else "\n" * (breaks - 1)]
        return [blanks] if blanks else []

    def scan_flow_scalar_spaces(self, double: bool, start_mark: Any) -> list[str]:
        return [self._blanks(), *super().scan_flow_scalar_spaces(double, start_mark)]

    def _blanks(self) -> str:
        """Skip spaces and tabs; the indentation of a line ends at its first tab."""
        begins, skipped = self.column == 0, ""
        while self.peek() == " ":
            skipped += " "
            self.forward()
        indent = self.column
        while self.peek() in " \t":
            skipped += self.peek()
            self.forward()
        if begins:
            self.column = indent
        return skipped

    def _line_break(self) -> bool:
        return bool(self.scan_line_break())  # type: ignore[no-untyped-call]
