"""Bring a notebook of format 4 in line with its schema, or refuse it.

Otherwise mistakes would only show in the job, when nbconvert runs after all cells have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.payloads.notebook_runner import minor_of, source_of

IDS_SINCE = 5  # minor version of format 4 that introduced cell ids

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def normalise_notebook(notebook: dict[str, Any], complaint: str) -> dict[str, Any]:
    """Return the notebook with valid cells and metadata; errors begin with ``complaint``."""
    minor = minor_of(notebook)
    cells = [
        _normalise_cell(one, f"{complaint}: its cell {number}")
        for number, one in enumerate(notebook["cells"], 1)
    ]
    identified = list(_with_ids(cells)) if minor >= IDS_SINCE else list(map(_without_id, cells))
    metadata = _normalise_metadata(notebook["metadata"])
    return {**notebook, "nbformat_minor": minor, "metadata": metadata, "cells": identified}


def _normalise_cell(cell: dict[str, Any], where: str) -> dict[str, Any]:
    source, metadata = cell.get("source"), cell.get("metadata", {})
    if cell.get("cell_type") not in ("code", "markdown", "raw", "heading"):
        raise PathError(f"{where} has an unknown cell_type")
    if not isinstance(source, str) and not _is_string_list(source):
        raise PathError(f"{where} has no source")
    if not isinstance(metadata, dict):
        raise PathError(f"{where} has metadata that is not a mapping")
    if "tags" in metadata:
        metadata = {**metadata, "tags": _normalise_tags(metadata["tags"], where)}
    cell = {**cell, "metadata": metadata}
    return _heading_to_markdown(cell) if cell["cell_type"] == "heading" else cell


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _normalise_tags(tags: Any, where: str) -> list[str]:
    """Return tags as a list; hand-written notebooks may have one string with commas."""
    if not isinstance(tags, str) and not _is_string_list(tags):
        raise PathError(f"{where} has tags that are not a list of strings")
    words = [word.strip() for text in ([tags] if isinstance(tags, str) else tags) for word in text.split(",")]
    return list(dict.fromkeys(filter(None, words)))


def _heading_to_markdown(cell: dict[str, Any]) -> dict[str, Any]:
    """Turn a heading cell, which format 4 dropped, into markdown."""
    rest = {name: value for name, value in cell.items() if name != "level"}
    level = cell.get("level")
    signs = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1)
    return {**rest, "cell_type": "markdown", "source": f"{signs} {' '.join(source_of(cell).split())}"}


def _with_ids(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give each cell a unique id; new ids are hashes of the source, so the same notebook stays the same."""
    seen = set()
    for number, cell in enumerate(cells):
        name = cell.get("id")
        if not isinstance(name, str) or not _ID.fullmatch(name) or name in seen:
            text = f"{number} {source_of(cell)}".encode("utf-8", "surrogatepass")
            name = hashlib.sha256(text).hexdigest()[:16]
        seen.add(name)
        yield {**cell, "id": name}


def _without_id(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cell.items() if name != "id"}


def _normalise_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Drop a kernel or language without a name, and default a kernel's display name to its name."""
    found = dict(metadata)
    for key in ("kernelspec", "language_info"):
        entry = found.pop(key, None)
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            found[key] = {"display_name": entry["name"], **entry} if key == "kernelspec" else entry
    return found
