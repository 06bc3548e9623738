"""What a page shows of a file: text, a table, a picture, a notebook or HTML in a closed frame, or only facts.

Files are not trusted: text is escaped, and everything else is served with a policy that allows no script.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from openpai_tasks.errors import NotFound
from openpai_tasks.portal import notebook_page
from openpai_tasks.storage.location import Location
from openpai_tasks.text.plain import PlainBytes, one_line

TEXT, TABLE, IMAGE, FRAME, FACTS = "text", "table", "image", "frame", "facts"
TEXT_BYTES = 128 << 10
ROWS, COLUMNS, CELL = 200, 40, 200
FRAME_BYTES = 32 << 20
IMAGE_BYTES = 32 << 20
DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
PICTURE_NAMES = ("png", "jpg", "jpeg", "gif", "webp", "bmp", "svg")
CLOSED = {
    "content-security-policy": "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'",
}

Read = Callable[[int], bytes]
"""Returns the first bytes of a file, at most so many."""


@dataclass(frozen=True)
class FilePreview:
    """What to show: ``text``; ``header`` and ``rows``; or a picture or frame, which ``serve`` sends."""

    kind: str
    text: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    is_cut: bool = False
    """Whether there is more in the file than is shown."""


def preview(name: str, size: int, read: Read) -> FilePreview:
    """Decide by the name, the size and the first bytes what to show of a file."""
    ending = _ending(name)
    if ending in PICTURE_NAMES and size <= IMAGE_BYTES and _picture_type(name, read):
        return FilePreview(IMAGE)
    if ending in ("html", "htm") and size <= FRAME_BYTES:
        return FilePreview(FRAME)
    if ending == "ipynb" and size <= FRAME_BYTES and notebook_page.is_notebook(read(size)):
        return FilePreview(FRAME)
    data = read(TEXT_BYTES)
    text = _text(data)
    if text is None:
        return FilePreview(FACTS)
    is_cut = size > len(data)
    table = _table(text, DELIMITERS[ending], is_cut) if ending in DELIMITERS else None
    return table or FilePreview(TEXT, text, is_cut=is_cut)


def show(place: Location, name: str, size: int, view: str | None) -> FilePreview | Response:
    """Return what a page shows of a file; or what its frame shows, or the file to be saved."""

    def read(limit: int) -> bytes:
        return b"".join(place.store.read(place.path, 0, limit))

    if view == "raw":
        return serve(name, size, read)
    if view == "download":
        return download(name, size, place.store.read(place.path, 0, size))
    return preview(name, size, read)


def serve(name: str, size: int, read: Read) -> Response:
    """Send a picture, or the content of a frame, so that nothing in it can run or reach the portal."""
    kind = preview(name, size, read).kind
    if kind == IMAGE:
        return Response(read(size), headers={"content-type": _picture_type(name, read), **CLOSED})
    if kind != FRAME:
        raise NotFound("this file has no preview", 404)
    content = notebook_page.render(read(size)) if _ending(name) == "ipynb" else read(size)
    return Response(content, headers={"content-type": "text/html; charset=utf-8", **CLOSED})


def download(name: str, size: int, pieces: Iterable[bytes]) -> Response:
    """Send a file to be saved; errors before its first bytes become a page."""
    begun = iter(pieces)
    first = next(begun, b"")
    headers = {
        "content-disposition": _attachment(name),
        "content-length": str(size),
        "content-security-policy": "sandbox",
    }
    content = itertools.chain([first], begun)
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)


def _attachment(name: str) -> str:
    """Return the header with the file's name, which browsers save it under."""
    safe = "".join("_" if letter in '/\\"' else letter for letter in one_line(name)) or "file"
    plain = safe.encode("ascii", "replace").decode().replace("?", "_").replace("%", "_")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _picture_type(name: str, read: Read) -> str:
    """Return the type of a picture by its first bytes; empty if browsers cannot show it."""
    head = read(512)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if _ending(name) == "svg" and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return "image/svg+xml"
    return next((kind for magic, kind in PICTURES.items() if head.startswith(magic)), "")


def _text(data: bytes) -> str | None:
    """Return the text with control characters escaped; None for other data."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    if b"\0" in data or data.decode("utf-8", "replace").count("\ufffd") > len(data) // 20 + 1:
        return None
    return PlainBytes().feed(data.removeprefix(b"\xef\xbb\xbf"), final=True).decode()


def _table(text: str, delimiters: str, is_cut: bool) -> FilePreview | None:
    """Return the first rows and columns; None if they make no table."""
    delimiter = max(delimiters, key=text.partition("\n")[0].count)
    if is_cut and "\n" in text:
        text = text.rpartition("\n")[0]
    try:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter)
        rows = [row for row in itertools.islice(reader, ROWS + 2) if row]
    except csv.Error:
        return None
    if not rows or max(map(len, rows)) < 2:
        return None
    width = min(COLUMNS, max(map(len, rows)))
    shown = [tuple(_cell(cell) for cell in [*row, *[""] * width][:width]) for row in rows[: ROWS + 1]]
    is_cut = is_cut or len(rows) > ROWS + 1 or any(len(row) > COLUMNS for row in rows)
    return FilePreview(TABLE, header=shown[0], rows=tuple(shown[1:]), is_cut=is_cut)


def _cell(text: str) -> str:
    return text if len(text) <= CELL else f"{text[:CELL]}…"
