"""The calls of the file service: list, describe, create and remove files, and read and write their chunks.

Failures are in ``err`` of the body. The header EXTENSIONS announces what the original server lacks, so that a
file can be replaced as a whole: ``cp`` and ``mv``; ``modtime`` of ``touch``, which also keeps the content
that fits; and a chunk that is checked by ``md5``, may ``create`` its file, set ``filesize`` and ``modtime``,
rename it ``into`` place, and is described in the answer. A downloaded chunk has its MD5 in a header.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.responses import JSONResponse, Response

from openpai_tasks.errors import ApiError
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud import places
from openpai_tasks.server.paddlecloud.pfs import chunks
from openpai_tasks.server.paddlecloud.pfs.tree import Names, TreeEntry, matches
from openpai_tasks.server.paddlecloud.places import PfsPlace

MISSING = "no such file or directory"
AT_END = "this file reaches end"
EXTENSIONS = {"x-pfs-extensions": "replace"}
CHUNK_MD5 = "x-pfs-md5"
MULTIPART = f"multipart/form-data; boundary={chunks.BOUNDARY}"
MOST_LISTED = 1_000_000


def get_files(context: Context, request: Request) -> Reply:
    """List or describe files."""
    method = request.first("method")
    if method == "ls":
        return _done(_list(context, request))
    if method == "stat":
        path = request.first("path")
        with _errors_name(path):
            area = places.locate(context, request.caller.user, path)
            return _done(_row(area, area.tree.stat(area.names)))
    return 405, {"err": f"Method Not Allowed:{method}", "results": None}


def change_files(context: Context, request: Request) -> Reply:
    """Create or remove files and folders, as ``method`` in the body says."""
    body = request.body if isinstance(request.body, dict) else {}
    method = body.get("method")
    if method == "touch":
        return _done(_touch(context, request.caller.user, body))
    if method in ("cp", "mv"):
        return _done(_transfer(context, request.caller.user, body, is_move=method == "mv"))
    if method == "mkdir":
        return _done([_make_folder(context, request.caller.user, path) for path in _paths(body)])
    if method == "rm":
        recursive, paths = body.get("r", False), _paths(body)
        if not isinstance(recursive, bool):
            raise _bad()
        found = [_remove(context, request.caller.user, path, recursive) for path in paths]
        return _done([{"path": path} for some in found for path in some] or None)
    return 405, {"err": f"Method Not Allowed:{method}", "results": None}


def get_chunk_meta(context: Context, request: Request) -> Reply:
    """Return length and MD5 of the chunk at ``offset``, or without it, those of all chunks of the file."""
    if request.first("method") != "GetChunkMeta":
        return 405, {"err": f"Method Not Allowed:{request.first('method')}", "results": None}
    path, is_one = request.first("path"), "offset" in request.query
    with _errors_name(path):
        query = request.query if is_one else {**request.query, "offset": ("0",)}
        part = chunks.parse_range(query)
        area = places.locate(context, request.caller.user, path)
        if is_one:
            return _done(chunks.describe(area.tree, area.names, part.offset, part.size))
        return _done(chunks.describe_all(area.tree, area.names, part.size))


def get_chunk(context: Context, request: Request) -> Reply:
    """Return the bytes of a chunk, in the form of an uploaded file."""
    with _errors_name(request.first("path")):
        part = chunks.parse_range(request.query)
        area = places.locate(context, request.caller.user, part.path)
        data = chunks.read(area.tree, area.names, part)
    status = {"err": "" if len(data) == part.size else AT_END, "results": None}
    end = json.dumps(status).encode() + b"\n"
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return Response(chunks.frame(part, data, end), 200, {CHUNK_MD5: md5, "content-type": MULTIPART})


def put_chunk(context: Context, request: Request) -> Reply:
    """Write a chunk into an existing file; the path is in the name of the uploaded part."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/"):
        return 400, {"err": "Bad Request", "results": None}
    with _errors_name(""):
        part, data = chunks.unframe(request.headers["content-type"], request.body)
    with _errors_name(part.path):
        area = places.locate(context, request.caller.user, part.path, writes=True)
        into = places.locate(context, request.caller.user, part.into, writes=True) if part.into else None
        written = chunks.write(area.tree, area.names, part, data)
        if into and area.prefix != into.prefix:
            raise ApiError("invalid arguments", 400)
        if into:
            area.tree.move(area.names, into.names)
        return _done(written)


def _list(context: Context, request: Request) -> list[dict[str, Any]] | None:
    recursive = request.first("r")
    if recursive not in ("true", "false") or not request.query.get("arg"):
        raise ApiError("invalid arguments", 400)
    rows: list[dict[str, Any]] = []
    for path in request.query["arg"]:
        with _errors_name(path):
            area = places.locate(context, request.caller.user, path)
            for facts in _listed(area, recursive == "true"):
                rows.append(_row(area, facts))
                if len(rows) > MOST_LISTED:
                    raise ApiError(f"more than {MOST_LISTED} files; list their folders one by one", 400)
    return rows or None


def _listed(area: PfsPlace, recursive: bool) -> Iterator[TreeEntry]:
    found = list(matches(area.tree, area.names))
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for names in found:
        facts = area.tree.stat(names)
        yield from area.tree.list(names, recursive) if facts.is_folder else [facts]


def _touch(context: Context, user: str, body: dict[str, Any]) -> dict[str, str]:
    path, size, mtime = body.get("path"), body.get("filesize", 0), body.get("modtime")
    if not isinstance(path, str) or not _is_number(size) or not (mtime is None or _is_number(mtime)):
        raise _bad()
    if not 0 <= size <= chunks.LARGEST:
        raise ApiError(f"bad file size:{size}", 400)
    with _errors_name(path):
        area = places.locate(context, user, path, writes=True)
        area.tree.resize(area.names, size, mtime)
    return {"path": path}


def _transfer(context: Context, user: str, body: dict[str, Any], is_move: bool) -> dict[str, str]:
    """Copy a file, or rename it and set its time; a file at the target is replaced."""
    paths, mtime = _paths(body), body.get("modtime")
    if not (mtime is None or _is_number(mtime)):
        raise _bad()
    if len(paths) != 2:
        raise ApiError("not enough arguments" if len(paths) < 2 else "invalid arguments", 400)
    with _errors_name(paths[0]):
        source = places.locate(context, user, paths[0], writes=is_move)
        target = places.locate(context, user, paths[1], writes=True)
        if source.prefix != target.prefix:
            raise ApiError("invalid arguments", 400)
        if mtime is not None and is_move:
            source.tree.set_time(source.names, mtime)
        (source.tree.move if is_move else source.tree.copy)(source.names, target.names)
    return {"path": paths[1]}


def _make_folder(context: Context, user: str, path: str) -> dict[str, str]:
    with _errors_name(path):
        area = places.locate(context, user, path, writes=True)
        area.tree.make_folder(area.names)
    return {"path": path}


def _remove(context: Context, user: str, path: str, recursive: bool) -> Iterable[str]:
    with _errors_name(path):
        area = places.locate(context, user, path, writes=True)
        found = list(matches(area.tree, area.names)) or _link(area)
        for names in found:
            area.tree.remove(names, recursive)
    return [_path(area, names) for names in found]


def _link(area: PfsPlace) -> list[Names]:
    """Return the names of a link that leads nowhere or outside, which can still be removed."""
    return [area.names] if area.names and area.tree.is_link(area.names) else []


def _path(area: PfsPlace, names: Names) -> str:
    return _text("/".join([area.prefix, *names]))


def _row(area: PfsPlace, facts: TreeEntry) -> dict[str, Any]:
    return {
        "Path": _path(area, facts.names),
        "ModTime": facts.mtime_ns,
        "Size": facts.size,
        "IsDir": facts.is_folder,
    }


def _paths(body: dict[str, Any]) -> list[str]:
    paths = body.get("path")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise _bad()
    if not paths:
        raise ApiError("not enough arguments", 400)
    return paths


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


def _bad() -> ApiError:
    return ApiError(chunks.BAD_JSON, 400)


@contextlib.contextmanager
def _errors_name(path: str) -> Iterator[None]:
    """Turn errors of the system into messages with the user's path."""
    try:
        yield
    except OSError as err:
        missing = err.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        why = MISSING if missing else (err.strerror or type(err).__name__).lower()
        raise ApiError(f"{_text(path)}: {why}", 400) from err
    except (ValueError, RecursionError) as err:
        raise ApiError(str(err), 400) from err


def _done(results: Any) -> Reply:
    return JSONResponse({"err": "", "results": results}, headers=EXTENSIONS)


def _text(path: str) -> str:
    """Return a name that JSON can hold: one that is not UTF-8 shows replacement characters."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
