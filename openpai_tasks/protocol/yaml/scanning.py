"""Split YAML into events.

PyYAML rejects tabs between words, treats three rare characters as line breaks, and drops spaces at the end of
quoted lines; the real server's reader does none of that. libyaml is fast but stricter, so text that it
refuses is read a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

_BREAKS = {0x85: 0xFDD0, 0x2028: 0xFDD1, 0x2029: 0xFDD2}
_BACK = {stand_in: char for char, stand_in in _BREAKS.items()}
_SLOW = re.compile(r"\t| \r?\n|![^\s,\[\]{}!]*[,\[\]{}]")  # text that libyaml reads differently


def readers(text: str) -> list[Any]:
    """Return the loaders to try, the fastest first; the result of the last one is final."""
    fast = getattr(yaml, "CSafeLoader", None)
    return [fast, _TabLoader] if fast and not _SLOW.search(text) else [_TabLoader]


def events(text: str, reader: Any) -> Iterator[Any]:
    """Return the events of ``text``; read their strings through ``content``."""
    return iter(yaml.parse(text.translate(_BREAKS), Loader=reader))


def content(value: str) -> str:
    """Return a string of an event as it was in the document, with surrogate pairs joined."""
    if value.isascii():
        return value
    value = value.translate(_BACK)
    if any("\ud800" <= char <= "\udfff" for char in value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


class _TabLoader(yaml.SafeLoader):
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
