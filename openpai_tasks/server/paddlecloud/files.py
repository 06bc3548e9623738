"""Whole files: upload, download, and the names in a folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile

from openpai_tasks.errors import ApiError, Denied, NotFound
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request, stream_file
from openpai_tasks.server.paddlecloud import places
from openpai_tasks.server.paddlecloud.pfs.tree import PIECE, WRITE

PART = ".pai-part-"
"""Begins the names of files that are not complete, which copies leave out and `storage.clean` removes."""


def upload(context: Context, request: Request) -> Reply:
    """Write the form's ``file`` to the query's ``path``, with its folders; replace what is there at once."""
    place = places.locate(context, request.caller.user, request.first("path"), writes=True)
    file = request.body.get("file") if isinstance(request.body, FormData) else None
    if not isinstance(file, UploadFile):
        raise ApiError("no file in the form: expected a field named 'file'", 400)
    if not place.names or place.is_folder():
        raise ApiError(f"file path not valid: {place.path} is a folder", 400)
    with _map_errors(place):
        _replace(place, file.file)
    return 200, {"code": 200, "msg": ""}


def download(context: Context, request: Request) -> Reply:
    """Return the content of a file; a failure is JSON."""
    place = places.locate(context, request.caller.user, request.first("path"))
    try:
        with _map_errors(place), place.tree.open(place.names) as handle:
            file = os.fdopen(os.dup(handle), "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as err:
        raise NotFound("file not exist", 404) from err
    name = quote(place.names[-1], safe="")
    headers = {
        "content-type": "application/force-download",
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return stream_file(lambda: file, 0, os.fstat(file.fileno()).st_size, 200, headers)


def list_names(context: Context, request: Request) -> Reply:
    place = places.locate(context, request.caller.user, request.first("path"))
    try:
        with _map_errors(place):
            names = sorted(place.tree.names(place.names))
    except FileNotFoundError as err:
        raise NotFound(f"no such file or directory: {place.path}", 404) from err
    except NotADirectoryError as err:
        raise ApiError(f"not a folder: {place.path}", 400) from err
    shown = [os.fsencode(name).decode("utf-8", "replace") for name in names if not name.startswith(PART)]
    return 200, {"code": 200, "msg": "", "items": shown}


@contextlib.contextmanager
def _map_errors(place: places.PfsPlace) -> Iterator[None]:
    try:
        yield
    except PermissionError as err:
        raise Denied("what you request is unauthorized", 403) from err
    except FileExistsError as err:
        raise ApiError(f"file path not valid: a file is in the way of {place.path}", 400) from err


def _replace(place: places.PfsPlace, source: BinaryIO) -> None:
    """Write a file that readers see complete or not at all; it gets the mode of the one that it replaces."""
    tree, part = place.tree, (*place.names[:-1], f"{PART}{int(time.time()):08x}{secrets.token_hex(4)}")
    try:
        with tree.open(part, WRITE, create=True) as handle, open(os.dup(handle), "wb") as file:
            os.fchmod(handle, 0o600)
            shutil.copyfileobj(source, file, PIECE)
            file.flush()
            os.fsync(handle)
        tree.move(part, place.names)
    except BaseException:
        with contextlib.suppress(OSError):
            tree.remove(part)
        raise
