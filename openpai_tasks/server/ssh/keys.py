"""Names of a job's keys, and the public keys of users."""

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
    """Yield the public keys in a text, one per line; other lines are skipped."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and _type(match["key"]) == match["type"]:
            yield f"{match['type']} {match['key']}"


def listed_keys(items: Any) -> Iterator[str]:
    """Yield the public keys in a list of items, each with its key as ``value``."""
    for item in items if isinstance(items, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, str):
            yield from public_keys(value)


def _type(key: str) -> str:
    """Return the type in the key's data."""
    try:
        data = base64.b64decode(key, validate=True)
    except binascii.Error:
        return ""
    length = int.from_bytes(data[:4], "big")
    return data[4 : 4 + length].decode("ascii", "replace")
