"""Notebooks for tests, each created in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PYTHON = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}


def cell(source: str, *tags: str, **more: Any) -> dict[str, Any]:
    metadata = {"tags": list(tags)} if tags else {}
    return {
        "cell_type": "code",
        "id": f"cell-{abs(hash(source)) % 10**8}",
        "metadata": metadata,
        "execution_count": None,
        "outputs": [],
        "source": source,
        **more,
    }


def text(source: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": f"text-{abs(hash(source)) % 10**8}",
        "metadata": {},
        "source": source,
    }


def notebook(*cells: str | dict[str, Any], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a notebook of format 4.5 with these cells; a string is a code cell."""
    made = [cell(one) if isinstance(one, str) else one for one in cells]
    found = PYTHON if metadata is None else metadata
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": found, "cells": made}


def write(path: Path, *cells: str | dict[str, Any], metadata: dict[str, Any] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook(*cells, metadata=metadata)), encoding="utf-8")
    return path


def too_deep(folder: Path, room: int = len("/n.ipynb")) -> Path:
    """Create a folder so deep that only ``room`` more bytes fit: a path may have 4095 bytes."""
    while left := 4095 - room - len(str(folder)):
        folder = folder / ("d" * (200 if left > 255 else left - 1))
    folder.mkdir(parents=True)
    return folder


def outputs(path: Path) -> list[str]:
    """Return the text output of each code cell; an image is given as its type."""
    found = []
    for one in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if one["cell_type"] == "code":
            found.append("".join(_shown(output) for output in one["outputs"]))
    return found


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return "".join(output["text"])
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    return "".join(output["data"].get("text/plain", sorted(output["data"])))
