"""Parse JSON from a server or a job so that it can safely be traversed, shown and written."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

DEPTH = 64
"""Maximum nesting: real answers have fewer than ten levels, and Python's recursion ends at a thousand."""

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def parse(text: str | bytes, constant: Callable[[str], Any] = lambda name: None) -> Any:
    """Parse a text; ValueError if it is not JSON, or nested too deeply.

    NaN and Infinity, which are not in JSON, become null unless ``constant`` converts them; lone surrogates
    become U+FFFD.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "replace")
    try:
        value = _decoder(constant).decode(text)
    except RecursionError as err:
        raise ValueError("it is nested too deeply") from err
    _check_depth(value)
    return _clean(value) if _ESCAPED.search(text) else value


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for any other line, which is quick to check."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    try:
        value = parse(line.decode("utf-8", "replace"), float)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@functools.lru_cache(maxsize=8)
def _decoder(constant: Callable[[str], Any]) -> json.JSONDecoder:
    """Make a decoder once: ``json.loads`` makes one for each text, which takes longer than a short text."""
    return json.JSONDecoder(parse_constant=constant)


def whole_characters(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH + 1):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEPTH} levels")


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {whole_characters(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return whole_characters(value) if isinstance(value, str) else value
