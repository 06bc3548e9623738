"""Notebooks as markdown: text as it is, code in blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def markdown(path: Path) -> str:
    """Return a notebook as a page; outputs are left out, as the tutorials have none."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(_cell(cell) for cell in cells) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```ipython\n{text}\n```"
