"""Change values in YAML text and keep everything else, comments and anchors included."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from openpai_tasks import protocol
from openpai_tasks.errors import ProtocolError
from openpai_tasks.lazy_dataclass import dataclass

Path = tuple[str, ...]

_BESIDE = re.compile(r"[ \t]*(#[^\n]*)?(?=\n|\Z)")


@dataclass(frozen=True)
class ValuePosition:
    """A value's position in the text, its anchor, and the comment beside it or above its key."""

    start: int
    end: int
    anchor: str
    indent: int
    is_inline: bool  # inside { } or [ ]
    beside: str
    above: str

    @property
    def remark(self) -> str:
        lines = (self.beside or self.above).splitlines()
        return " ".join(line.strip().lstrip("#").strip() for line in lines).strip()


def replace_values(text: str, changes: Mapping[Path, Any]) -> str:
    """Replace the values at these key paths, which must exist."""
    found = find_values(text)
    changed = text
    for path, value in sorted(changes.items(), key=lambda item: -found[item[0]].start):
        place = found[path]
        changed = changed[: place.start] + _format_value(value, place) + changed[place.end :]
    _check(changed, changes)
    return changed


def _check(text: str, changes: Mapping[Path, Any]) -> None:
    """Raise if the text does not have the new values, as may happen with unusual YAML."""
    for path, wanted in changes.items():
        value = protocol.read(text).value
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value != wanted:
            name = ".".join(path)
            raise ProtocolError(f"cannot change {name}: write it as `{path[-1]}: value` on a separate line")


def _format_value(value: Any, place: ValuePosition) -> str:
    """Format the value as YAML, with the anchor before it and the comment after its first line."""
    if isinstance(value, (list, dict)) or (isinstance(value, str) and place.is_inline):
        first, rest = json.dumps(value, ensure_ascii=False), ""
    else:
        first, _, rest = protocol.dump({"x": value}).removeprefix("x: ").rstrip("\n").partition("\n")
    anchor = f"&{place.anchor} " if place.anchor else ""
    lines = "".join(f"\n{' ' * place.indent}{line}" if line else "\n" for line in rest.split("\n") if rest)
    return f"{anchor}{first}{place.beside}{lines}"


def find_values(text: str) -> dict[Path, ValuePosition]:
    """Return the position of each value in the document's mappings, by key path."""
    found: dict[Path, ValuePosition] = {}
    frame = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    events = (one for one in yaml.parse(text, Loader=yaml.SafeLoader) if not isinstance(one, frame))
    for event in events:
        _walk(text, events, event, (), found, None)
    return found


def _walk(text: str, events: Any, event: Any, path: Path, found: dict[Path, ValuePosition], key: Any) -> None:
    """Consume the events of one value and record its position."""
    last = event
    if isinstance(event, yaml.MappingStartEvent):
        for last in events:
            if isinstance(last, yaml.MappingEndEvent):
                break
            name = last.value if isinstance(last, yaml.ScalarEvent) else ""
            if not name:
                _walk(text, events, last, (*path, ""), found, None)
            _walk(text, events, next(events), (*path, name), found, last)
    elif isinstance(event, yaml.SequenceStartEvent):
        for number, last in enumerate(events):
            if isinstance(last, yaml.SequenceEndEvent):
                break
            _walk(text, events, last, (*path, str(number)), found, None)
    if key is not None:
        found[path] = _position(text, event, last.end_mark.index, key)


def _position(text: str, event: Any, end: int, key: Any) -> ValuePosition:
    start = event.start_mark.index
    end = start + len(text[start:end].rstrip())
    line = key.start_mark.index - key.start_mark.column
    is_inline = bool(text[line : key.start_mark.index].strip())
    beside = ""
    if getattr(event, "style", None) in ("|", ">"):
        beside = _comment_beside(text[start:].partition("\n")[0])
    elif not is_inline:
        match = _BESIDE.match(text, end)
        if match and match[1]:
            beside, end = match[0], match.end()
    anchor = getattr(event, "anchor", None) if not isinstance(event, yaml.AliasEvent) else None
    above = _comments_above(text, line)
    return ValuePosition(start, end, anchor or "", key.start_mark.column, is_inline, beside, above)


def _comment_beside(header: str) -> str:
    """Return the comment in the first line of a block, with the spaces before it."""
    before, mark, comment = header.partition("#")
    spaces = before[len(before.rstrip(" \t")) :]
    return f"{spaces}{mark}{comment}" if mark and spaces else ""


def _comments_above(text: str, line: int) -> str:
    """Return the lines of comments directly above the line that begins there."""
    start = line
    while start:
        previous = text.rfind("\n", 0, start - 1) + 1
        if not text[previous:start].lstrip(" \t").startswith("#"):
            break
        start = previous
    return text[start:line]
