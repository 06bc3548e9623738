"""A notebook as one HTML page without scripts; it is shown in a closed frame only."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from openpai_tasks.portal import html
from openpai_tasks.text.plain import PlainBytes

MOST_CELLS = 2000
OUTPUT_BYTES = 200_000
"""Bytes of text that are shown of one output."""


def is_notebook(data: bytes) -> bool:
    """Whether the file has the form of a notebook."""
    return _parse(data) is not None


def render(data: bytes) -> str:
    """Return the page: text as Markdown, code, and outputs in the richest form that needs no script."""
    found = _parse(data) or {}
    cells = [_cell(cell) for cell in _rows(found.get("cells"))]
    return html.render("notebook.html", cells=cells[:MOST_CELLS], more=max(0, len(cells) - MOST_CELLS))


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("cells"), list) else None


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    kind, source = cell.get("cell_type"), _joined(cell.get("source"))
    count = cell.get("execution_count")
    return {
        "kind": kind if kind in ("markdown", "code") else "raw",
        "source": source,
        "html": _markdown(source) if kind == "markdown" else "",
        "count": count if isinstance(count, int) else None,
        "outputs": [_output(one) for one in _rows(cell.get("outputs"))],
    }


def _output(output: dict[str, Any]) -> dict[str, str]:
    """Return one output as a picture, HTML or text; errors as their traceback."""
    found = output.get("data")
    data = found if isinstance(found, dict) else {}
    for kind in ("image/png", "image/jpeg", "image/gif"):
        if kind in data and (picture := _base64(_joined(data[kind]))):
            return {"kind": "image", "value": f"data:{kind};base64,{picture}"}
    if "image/svg+xml" in data:
        drawn = base64.b64encode(_joined(data["image/svg+xml"]).encode("utf-8", "replace")).decode()
        return {"kind": "image", "value": f"data:image/svg+xml;base64,{drawn}"}
    if "text/html" in data:
        return {"kind": "html", "value": _joined(data["text/html"])}
    if "text/markdown" in data:
        return {"kind": "html", "value": _markdown(_joined(data["text/markdown"]))}
    if output.get("output_type") == "error":
        lines = output.get("traceback")
        text = "\n".join(map(str, lines)) if isinstance(lines, list) else str(output.get("evalue", ""))
        return {"kind": "error", "value": _plain(text)}
    return {"kind": "text", "value": _plain(_joined(output.get("text") or data.get("text/plain")))}


def _markdown(text: str) -> str:
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def _base64(text: str) -> str:
    """Return the text without line breaks if it is base64; empty otherwise."""
    joined = "".join(text.split())
    try:
        base64.b64decode(joined, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return joined


def _plain(text: str) -> str:
    data = text.encode("utf-8", "replace")
    shown = PlainBytes().feed(data[:OUTPUT_BYTES], final=True).decode()
    return f"{shown}\n…" if len(data) > OUTPUT_BYTES else shown


def _joined(value: Any) -> str:
    """Return a text that a notebook may hold as a list of lines."""
    return "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _rows(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
