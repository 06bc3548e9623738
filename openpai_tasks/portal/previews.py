"""Files of jobs as pages: text, tables, pictures and notebooks. Nothing in them is trusted."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from dataclasses import dataclass, field
from itertools import islice

from openpai_tasks.errors import ConfigError

TEXT_BYTES = 512 << 10
PICTURE_BYTES = 20 << 20
NOTEBOOK_BYTES = 10 << 20
ROWS, COLUMNS, CELL = 500, 50, 500

PICTURES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
}
TABLES = {"csv": ",", "tsv": "\t"}

FRAME_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""For contents of jobs: no scripts, no requests, no powers of our pages."""


@dataclass(frozen=True)
class Preview:
    """What a page shows of a file; ``kind`` is text, table, picture, frame or nothing."""

    kind: str
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""


def extension(name: str) -> str:
    """Return the ending of a file's name, which decides how it is shown."""
    return name.rpartition("/")[2].rpartition(".")[2].lower()


def bytes_to_read(name: str, size: int) -> int:
    """Return how much of a file its preview needs; 0 for one that the browser fetches by itself."""
    return 0 if extension(name) in PICTURES or is_framed(name, size) else TEXT_BYTES


def is_framed(name: str, size: int) -> bool:
    """Whether the file is shown as a page of its own, in a frame without powers."""
    kind = extension(name)
    has_page = kind in ("html", "htm") or (kind == "ipynb" and has_nbconvert())
    return has_page and size <= NOTEBOOK_BYTES


def has_nbconvert() -> bool:
    """Whether notebooks can be shown as pages."""
    return importlib.util.find_spec("nbconvert") is not None


def make_preview(name: str, size: int, data: bytes) -> Preview:
    """Return the preview of a file, from the beginning of its content."""
    kind = extension(name)
    if kind in PICTURES:
        return (
            Preview("picture")
            if size <= PICTURE_BYTES
            else Preview("nothing", note="Too large to show; download it instead.")
        )
    if is_framed(name, size):
        return Preview("frame")
    text = _text(data)
    if text is None:
        return Preview("nothing", note="Not a text file; download it instead.")
    note = f"Only the first {len(data) >> 10} KiB are shown." if len(data) < size else ""
    if kind in TABLES:
        return Preview("table", rows=_rows(text, TABLES[kind]), note=note)
    if kind == "ipynb" and not has_nbconvert():
        note = "Install openpai-tasks[notebook] to see it as a page."
    return Preview("text", text=_pretty(text) if kind == "json" and not note else text, note=note)


def _text(data: bytes) -> str | None:
    """Return UTF-8 text, which may be cut in the middle of a character; None for other content."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        return data[: err.start].decode("utf-8-sig") if err.start >= len(data) - 3 and err.start else None


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        found = list(islice(csv.reader(io.StringIO(text), delimiter=separator), ROWS + 1))
    except csv.Error:
        found = [line.split(separator) for line in text.splitlines()[: ROWS + 1]]
    width = min(COLUMNS, max(map(len, found), default=0))
    return [[cell[:CELL] for cell in (row + [""] * width)[:width]] for row in found]


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def frame_page(name: str, data: bytes) -> bytes:
    """Return the HTML of a page or notebook; it may be shown only with ``FRAME_POLICY``."""
    if extension(name) != "ipynb":
        return data
    import nbformat
    from nbconvert.exporters import HTMLExporter

    try:
        notebook = nbformat.reads(data.decode("utf-8"), as_version=4)
        exporter = HTMLExporter(embed_images=False, mathjax_url="", require_js_url="")
        page, _ = exporter.from_notebook_node(notebook)
    except Exception as err:  # a job can write anything under this name
        raise ConfigError(f"{name!r} is not a notebook that can be shown: {type(err).__name__}") from err
    return str(page).encode("utf-8", "replace")
