"""What the keys of a job are called, and the public ones that people hand in."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

HOST_KEY, JOB_KEY = "host", "job"
_LINE = re.compile(
    r"(?P<type>[a-z][a-z0-9@.-]{2,60})[ \t]+(?P<key>[A-Za-z0-9+/]{20,16000}={0,2})([ \t].*)?", re.ASCII
)


def public_keys(text: str) -> Iterator[str]:
    """The public keys in a text of one or more lines; what is none is passed over."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and _type(match["key"]) == match["type"]:
            yield f"{match['type']} {match['key']}"


def listed_keys(items: Any) -> Iterator[str]:
    """Those in a list of items, each with its key as ``value``."""
    for item in items if isinstance(items, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, str):
            yield from public_keys(value)


def _type(key: str) -> str:
    """The type that the key itself says it is."""
    try:
        data = base64.b64decode(key, validate=True)
    except binascii.Error:
        return ""
    length = int.from_bytes(data[:4], "big")
    return data[4 : 4 + length].decode("ascii", "replace")
