"""The scripts, styles and pictures of the pages; an address changes with the content of its file."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

from starlette.responses import Response

from openpai_tasks.errors import NotFound

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"


@functools.cache
def _content(name: str) -> bytes:
    folder = resources.files("openpai_tasks.portal") / "static"
    known = {file.name: file for file in folder.iterdir()}
    if name not in known or name.rpartition(".")[2] not in TYPES:
        raise NotFound(f"no file {name!r}", 404)
    return known[name].read_bytes()


@functools.cache
def version() -> str:
    """Return a digest of all files: scripts import each other by relative addresses."""
    folder = resources.files("openpai_tasks.portal") / "static"
    names = sorted(file.name for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES)
    return hashlib.sha256(b"".join(name.encode() + _content(name) for name in names)).hexdigest()[:12]


def address(name: str) -> str:
    """Return the address of a file."""
    return f"/static/{version()}/{name}"


def serve(name: str) -> Response:
    """Return a file, which browsers may keep."""
    kind = f"{TYPES.get(name.rpartition('.')[2], '')}; charset=utf-8"
    return Response(_content(name), headers={"content-type": kind, "cache-control": FOREVER})
