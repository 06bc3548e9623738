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
def _files() -> dict[str, bytes]:
    folder = resources.files("openpai_tasks.portal") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if _ending(file.name) in TYPES}


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


@functools.cache
def version() -> str:
    """Return a digest of all files: scripts import each other by relative addresses."""
    files = sorted(_files().items())
    return hashlib.sha256(b"".join(name.encode() + content for name, content in files)).hexdigest()[:12]


def address(name: str) -> str:
    """Return the address of a file."""
    return f"/static/{version()}/{name}"


def serve(name: str) -> Response:
    """Return a file, which browsers may keep."""
    if name not in _files():
        raise NotFound(f"no file {name!r}", 404)
    kind = f"{TYPES[_ending(name)]}; charset=utf-8"
    return Response(_files()[name], headers={"content-type": kind, "cache-control": FOREVER})
