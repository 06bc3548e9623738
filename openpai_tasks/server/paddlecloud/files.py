"""Whole files: upload, download, and the names in a folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile

from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.regular_files import open_regular
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import LogSlice, Reply, Request
from openpai_tasks.server.paddlecloud import places

PART = ".pai-part-"
"""Begins the names of files that are not complete, which copies leave out and `storage.clean` removes."""
_PIECE = 1 << 20


def upload(context: Context, request: Request) -> Reply:
    """Write the form's ``file`` to the query's ``path``, with its folders; replace what is there at once."""
    place = places.locate(context, request.caller.user, request.first("path"), writes=True)
    file = request.body.get("file") if isinstance(request.body, FormData) else None
    if not isinstance(file, UploadFile):
        raise ApiError("no file in the form: expected a field named 'file'", 400)
    if place.real == place.root or place.real.is_dir():
        raise ApiError(f"file path not valid: {place.path} is a folder", 400)
    _make_folders(place.real.parent, place.path)
    _replace(place.real, file.file)
    return 200, {"code": 200, "msg": ""}


def download(context: Context, request: Request) -> Reply:
    """Return the content of a file; a failure is JSON."""
    place = places.locate(context, request.caller.user, request.first("path"))
    try:
        file = open_regular(place.real)
    except FileNotFoundError as err:
        raise NotFound("file not exist", 404) from err
    name = quote(place.real.name, safe="")
    headers = {
        "content-type": "application/force-download",
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return 200, LogSlice(lambda: file, 0, os.fstat(file.fileno()).st_size, headers)


def list_names(context: Context, request: Request) -> Reply:
    place = places.locate(context, request.caller.user, request.first("path"))
    try:
        names = sorted(os.listdir(place.real))
    except FileNotFoundError as err:
        raise NotFound(f"no such file or directory: {place.path}", 404) from err
    except NotADirectoryError as err:
        raise ApiError(f"not a folder: {place.path}", 400) from err
    shown = [os.fsencode(name).decode("utf-8", "replace") for name in names if not name.startswith(PART)]
    return 200, {"code": 200, "msg": "", "items": shown}


def _make_folders(folder: Path, path: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as err:
        raise ApiError(f"file path not valid: a file is in the way of {path}", 400) from err


def _replace(target: Path, source: BinaryIO) -> None:
    """Write a private file that readers see complete or not at all; an executable stays one."""
    part = target.with_name(f"{PART}{int(time.time()):08x}{secrets.token_hex(4)}")
    mode = 0o600
    with contextlib.suppress(FileNotFoundError):
        mode |= stat.S_IMODE(target.lstat().st_mode) & 0o100
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with open(handle, "wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
            file.flush()
            os.fsync(handle)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
