"""Log records as lines for people, or as JSON lines for programs. Prints nothing."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from openpai_tasks.plain_text import PlainBytes, escape_json, one_line
from openpai_tasks.render.text import finite

WIDTHS = (23, 8)  # of the time and of the level
INDENT = "    "


def log_line(record: Any) -> str:
    """Return a record's time, level, task and message; further lines of the message are indented."""
    when, level = "-", "-"
    if record.time is not None:
        when = datetime.fromtimestamp(record.time).isoformat(" ", "milliseconds")
    if record.level:
        level = one_line(record.level)
    logger = f"{one_line(record.logger)}: " if record.logger not in ("", "root") else ""
    text = f"{record.message}\n{record.exception}" if record.exception else record.message
    begin = f"{when:<{WIDTHS[0]}} {level:<{WIDTHS[1]}} {one_line(record.task)} {logger}"
    return begin + _plain(text).replace("\n", f"\n{INDENT}")


def json_line(record: Any) -> str:
    """Return everything that the program wrote about a record, as valid JSON on one line."""
    return escape_json(json.dumps(finite(record.all_fields), ensure_ascii=False))


def _plain(text: str) -> str:
    """Remove colours and other sequences; escape the rest that a terminal would interpret."""
    text = text.rstrip("\r\n")
    if text.isascii() and text.isprintable():
        return text
    return PlainBytes().feed(text.encode("utf-8", "backslashreplace"), final=True).decode()
