"""Read a notebook file; bring one of format 4 in line with its schema, or refuse it.

Otherwise mistakes would only show in the job, when nbconvert runs after all cells have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.payloads.notebook_runner import (
    clear_outputs,
    language_of,
    metadata_of,
    minor_of,
    source_of,
)

SUFFIX = ".ipynb"
IDS_SINCE = 5  # minor version of format 4 that introduced cell ids

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True)
class Notebook:
    """A local notebook and its relative name in the job's working folder."""

    path: Path
    name: str
    content: dict[str, Any] = field(repr=False)

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def version(self) -> int:
        return int(self.content["nbformat"])

    @property
    def kernel(self) -> str:
        """The kernel in its metadata; empty if there is none."""
        return str(metadata_of(self.content, "kernelspec").get("name") or "")

    @property
    def language(self) -> str:
        """The language in its metadata; Python by default."""
        return language_of(self.content)

    @property
    def cells(self) -> list[dict[str, Any]]:
        return list(self.content.get("cells", ()))

    def as_sent(self) -> bytes:
        """Return its text without outputs, which may be large and would change the hash."""
        sent = clear_outputs(self.content) if self.version == 4 else self.content
        return json.dumps(sent, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def read_notebook(file: str, here: Path) -> Notebook:
    """Read and check a notebook file."""
    path = Path(os.path.normpath(here / Path(file).expanduser()))
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise PathError(f"{file!r} is {what}; expected a notebook ({SUFFIX})")
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogatepass")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read notebook {file!r}: {reason}") from err
    name = os.path.relpath(path, here)
    name = path.name if name.startswith(os.pardir) else name
    return Notebook(path, name, _parse_content(text, file))


def _parse_content(text: str, file: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as err:
        where = f", line {err.lineno}" if isinstance(err, json.JSONDecodeError) else ""
        raise PathError(f"{file!r} is not a notebook: invalid JSON{where}") from err
    version = found.get("nbformat") if isinstance(found, dict) else None
    if not isinstance(version, int) or not isinstance(found.get("metadata", {}), dict):
        raise PathError(f"{file!r} is not a notebook: it has no valid nbformat")
    if version not in (3, 4):
        hint = "open it in Jupyter and save it" if version < 3 else "the newest supported format is 4"
        raise PathError(f"{file!r} has notebook format {version}: {hint}")
    found.setdefault("metadata", {})
    cells = found.get("cells" if version == 4 else "worksheets")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise PathError(f"{file!r} is not a notebook: it has no cells")
    return normalise_notebook(found, f"{file!r} is not a notebook") if version == 4 else dict(found)


def normalise_notebook(notebook: dict[str, Any], complaint: str) -> dict[str, Any]:
    """Return the notebook with valid cells and metadata; errors begin with ``complaint``."""
    minor = minor_of(notebook)
    cells = [
        _normalise_cell(one, f"{complaint}: its cell {number}")
        for number, one in enumerate(notebook["cells"], 1)
    ]
    if minor >= IDS_SINCE:
        cells = list(_with_ids(cells))
    else:
        cells = [{name: value for name, value in cell.items() if name != "id"} for cell in cells]
    metadata = _normalise_metadata(notebook["metadata"])
    return {**notebook, "nbformat_minor": minor, "metadata": metadata, "cells": cells}


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


def _normalise_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Drop a kernel or language without a name, and default a kernel's display name to its name."""
    found = dict(metadata)
    for key in ("kernelspec", "language_info"):
        entry = found.pop(key, None)
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            found[key] = {"display_name": entry["name"], **entry} if key == "kernelspec" else entry
    return found
