"""A notebook of format 4 as its schema wants it: mended where it is plain what is meant, else refused.

What is wrong with it would be found in the job only, by what makes a page of it when all cells have run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.payloads.notebook_runner import minor_of, source_of

IDS_SINCE = 5  # the minor version of format 4 in which cells have ids

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def mended(notebook: dict[str, Any], complaint: str) -> dict[str, Any]:
    """The notebook with cells and metadata in order; what cannot be is refused with this complaint."""
    minor = minor_of(notebook)
    cells = [_cell(one, f"{complaint}: its cell {number}") for number, one in enumerate(notebook["cells"], 1)]
    identified = list(_with_ids(cells)) if minor >= IDS_SINCE else list(map(_without_id, cells))
    metadata = _metadata(notebook["metadata"])
    return {**notebook, "nbformat_minor": minor, "metadata": metadata, "cells": identified}


def _cell(cell: dict[str, Any], where: str) -> dict[str, Any]:
    source, metadata = cell.get("source"), cell.get("metadata", {})
    if cell.get("cell_type") not in ("code", "markdown", "raw", "heading"):
        raise PathError(f"{where} has no type that is known")
    if not isinstance(source, str) and not _is_texts(source):
        raise PathError(f"{where} has no source")
    if not isinstance(metadata, dict):
        raise PathError(f"{where} has metadata that is none")
    if "tags" in metadata:
        metadata = {**metadata, "tags": _tags(metadata["tags"], where)}
    cell = {**cell, "metadata": metadata}
    return _heading(cell) if cell["cell_type"] == "heading" else cell


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _tags(tags: Any, where: str) -> list[str]:
    """A list; text is what somebody has written by hand who has one tag, or some with commas between."""
    if not isinstance(tags, str) and not _is_texts(tags):
        raise PathError(f"{where} has tags that are no list of texts")
    words = [word.strip() for text in ([tags] if isinstance(tags, str) else tags) for word in text.split(",")]
    return list(dict.fromkeys(filter(None, words)))


def _heading(cell: dict[str, Any]) -> dict[str, Any]:
    """What it is since format 4: text with so many signs in front of it."""
    rest = {name: value for name, value in cell.items() if name != "level"}
    level = cell.get("level")
    signs = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1)
    return {**rest, "cell_type": "markdown", "source": f"{signs} {' '.join(source_of(cell).split())}"}


def _with_ids(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """An id of its own for each; a new one is made of what it says, so that a notebook is sent as before."""
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


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """A kernel or a language without a name is none; what a kernel is shown as may be its name."""
    found = dict(metadata)
    for key in ("kernelspec", "language_info"):
        told = found.pop(key, None)
        if isinstance(told, dict) and isinstance(told.get("name"), str):
            found[key] = {"display_name": told["name"], **told} if key == "kernelspec" else told
    return found
