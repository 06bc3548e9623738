"""Log records on stdout: lines for people, or JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from openpai_tasks import render
from openpai_tasks.errors import ConfigError, PaiError

if TYPE_CHECKING:
    from openpai_tasks.sdk.logs.structured import StructuredLine

TOGETHER = 1 << 16
"""Bytes of records that are written together."""


def check_flags(structured: bool, output: str | None, **flags: str | None) -> None:
    """Raise for flags that need --structured, and for formats that records do not have."""
    for name, value in {**flags, "output": output}.items():
        if value is not None and not structured:
            raise ConfigError(f"--{name} needs --structured: other output has no records")
    if output not in (None, "table", "json"):
        raise ConfigError(f"log records have no output format {output!r} (known: table, json)")


def encode(records: Iterable[StructuredLine], output: str | None, at_once: bool) -> Iterator[bytes]:
    """Yield the bytes to write: of each record ``at_once``, or of many together, which is much faster."""
    text = render.json_line if output == "json" else render.log_line
    held = bytearray()
    try:
        for record in records:
            held += f"{text(record)}\n".encode("utf-8", "backslashreplace")
            if at_once or len(held) >= TOGETHER:
                yield bytes(held)
                held.clear()
    except PaiError:  # what was read before is shown
        yield bytes(held)
        raise
    yield bytes(held)
