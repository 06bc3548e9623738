"""Logs as nodes of older clusters serve them: pages of YARN's node manager, files of a log manager.

Neither requires a token: the id of a task, which cannot be guessed, is enough to read its logs.
"""

from __future__ import annotations

import codecs
import html
from collections.abc import Iterable, Iterator
from functools import partial

from starlette.responses import HTMLResponse, StreamingResponse

from openpai_tasks.protocol import routes, states
from openpai_tasks.server import api_errors
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers.logs import TAIL, slice_log
from openpai_tasks.server.api.request import Reply, Request, read_pieces, stream_file
from openpai_tasks.server.state.records import Task

CONTAINER_FILES = {"user.pai.stdout": "stdout", "user.pai.stderr": "stderr"}
POD_FILES = {**CONTAINER_FILES, "user.pai.all": "all"}
PAGE_SHOWS = 4096  # bytes by default
PAGE = "<!DOCTYPE html>\n<html><body>\nBODY\n</body></html>\n"


def list_container_logs(context: Context, request: Request) -> Reply:
    """Return a page with a link to each log."""
    sizes = _sizes(context, _container(context, request), CONTAINER_FILES)
    links = [
        f'<p><a href="{_page(request, name)}?start=-{PAGE_SHOWS}">'
        f"{name} : Total file length is {size} bytes.</a></p>"
        for name, size in sizes.items()
    ]
    return _html("\n".join(links) or "<p>No logs available for container</p>")


def show_container_log(context: Context, request: Request) -> Reply:
    """Return a page with the end of a log, or from ``start`` to ``end``.

    Negative numbers count from the end.
    """
    task = _container(context, request)
    log, size = _log(context, task, CONTAINER_FILES, request)
    start = _place(request.first("start"), -PAGE_SHOWS, size)
    end = _place(request.first("end"), size, size)
    note = ""
    if start > 0:
        link = f'<a href="{_page(request, request.params["file"])}?start=0">here</a>'
        note = f"<p>Showing {size - start} bytes of {size} total. Click {link} for full log.</p>\n"
    pieces = read_pieces(partial(context.engine.open_log, task, log), start, end - start)
    return StreamingResponse(_log_page(note, pieces), media_type="text/html")


def list_pod_logs(context: Context, request: Request) -> Reply:
    """List the existing files like a web server lists a folder."""
    sizes = _sizes(context, _pod(context, request), POD_FILES)
    rows = [f'<a href="{name}">{name}</a> {size}' for name, size in sizes.items()]
    return _html("<pre>\n" + "\n".join(rows) + "\n</pre>")


def get_pod_log(context: Context, request: Request) -> Reply:
    """Return a file, or the part of it in a Range header."""
    task = _pod(context, request)
    log, _ = _log(context, task, POD_FILES, request)
    return slice_log(context, task, log, request.headers.get("range", ""))


def get_pod_log_tail(context: Context, request: Request) -> Reply:
    """Return the end of a file."""
    task = _pod(context, request)
    log, size = _log(context, task, POD_FILES, request)
    length = min(size, TAIL)
    return stream_file(partial(context.engine.open_log, task, log), size - length, length)


def _container(context: Context, request: Request) -> Task:
    task = context.state.task(request.params["container"])
    job = context.state.job(task.job) if task else None
    if task is None or job is None or job.user != request.params["user"]:
        raise api_errors.no_log()
    return task


def _pod(context: Context, request: Request) -> Task:
    task, asked = context.state.task(request.params["pod"]), request.params
    if task is None:
        raise api_errors.no_log()
    place = (task.job.partition("~")[0], states.debug_id(task.job), states.role_key(task.role))
    if place != (asked["user"], asked["framework"], asked["role"]):
        raise api_errors.no_log()
    return task


def _sizes(context: Context, task: Task, names: dict[str, str]) -> dict[str, int]:
    """Return the existing files and their sizes; ``names`` maps files to logs."""
    logs = context.engine.logs(task)
    return {name: logs[log] for name, log in names.items() if log in logs}


def _log(context: Context, task: Task, names: dict[str, str], request: Request) -> tuple[str, int]:
    """Return the log in the path, and its size."""
    name, sizes = request.params["file"], _sizes(context, task, names)
    if name not in sizes:
        raise api_errors.no_log()
    return names[name], sizes[name]


def _place(text: str, default: int, size: int) -> int:
    """Return the position in ``text``, from the start of the file or, if negative, from its end."""
    digits = text.removeprefix("-")
    number = int(text) if digits.isdecimal() and len(digits) < 18 else default
    return min(max(size + number if number < 0 else number, 0), size)


def _page(request: Request, name: str) -> str:
    params = {key: request.params[key] for key in ("node", "container", "user")}
    return html.escape(routes.CONTAINER_LOG.format(**params, file=name))


def _html(body: str) -> Reply:
    return HTMLResponse(PAGE.replace("BODY", body))


def _log_page(note: str, pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield a page with a log, which is decoded and escaped piece by piece."""
    head, tail = PAGE.split("BODY")
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield f"{head}{note}<pre>"
    for piece in pieces:
        yield html.escape(decoder.decode(piece), quote=False)
    yield html.escape(decoder.decode(b"", final=True), quote=False) + f"</pre>{tail}"
