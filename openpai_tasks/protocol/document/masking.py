"""Mask the secrets of a document, so that it can be stored and shown."""

from __future__ import annotations

import re
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.yaml.dumping import QuotedString, dump
from openpai_tasks.protocol.yaml.reader import Source, read

STARS = "******"

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_KEY = re.compile(r"""secrets\s*:|"secrets"|'secrets'""")


def mask(source: Source) -> str:
    """Replace the ``secrets`` in the text by stars; rewrite the whole document if they cannot be cut out."""
    if "secrets" not in source.value:
        return source.text
    hidden = {**source.value, "secrets": QuotedString(STARS)}
    cut = _cut(source)
    return cut if cut is not None and _reads_as(cut, hidden) else dump(hidden)


def _cut(source: Source) -> str | None:
    """Replace the lines from the key ``secrets`` to the next key, if the document has one key per line."""
    lines = _LINE.findall(source.text)
    places = source.lines(source.value)
    first = places.get("secrets")
    if first is None or not _KEY.match(lines[first - 1]):
        return None
    following = (line for line in sorted(places.values()) if line > first)
    end = next(following, len(lines) + 1)
    return "".join([*lines[: first - 1], f'secrets: "{STARS}"\n', *lines[end - 1 :]])


def _reads_as(text: str, value: dict[str, Any]) -> bool:
    """Whether nothing else was lost, such as brackets or an anchor that is used later."""
    try:
        return bool(read(text).value == value)
    except ProtocolError:
        return False
