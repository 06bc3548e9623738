"""TensorBoard for jobs, started for one browser: its address is in no page of another."""

from __future__ import annotations

import hashlib
import json

from starlette.responses import Response

from openpai_tasks.errors import NotFound
from openpai_tasks.portal.pages.compare import chosen_names
from openpai_tasks.portal.request import PortalRequest, redirect
from openpai_tasks.sdk.tensorboard import TensorBoard

MOST = 3
"""For each browser; the oldest one ends for another."""


def start(request: PortalRequest) -> Response:
    """Start it for jobs, sweeps and patterns, unless it runs for the same ones."""
    names, boards = chosen_names(request), request.session.boards
    key = hashlib.sha256(json.dumps([request.alias, names]).encode()).hexdigest()[:16]
    with request.session.starting:
        if key not in boards or not boards[key].is_running:
            board = TensorBoard(
                request.client,
                names,
                request.mounts,
                records=request.records,
                in_place=not request.session.only,
            )
            while len(boards) >= MOST or key in boards:
                boards.pop(key if key in boards else next(iter(boards))).close()
            boards[key] = board
    return redirect("c", request.alias, "tensorboard", key)


def page(request: PortalRequest) -> Response:
    return request.page("tensorboard.html", board=_board(request), key=request.params["board"])


def stop(request: PortalRequest) -> Response:
    _board(request)
    request.session.boards.pop(request.params["board"]).close()
    return redirect("c", request.alias, "jobs")


def _board(request: PortalRequest) -> TensorBoard:
    board = request.session.boards.get(request.params["board"])
    if board is None or not board.is_running:
        raise NotFound("this TensorBoard has ended: start it again from the page of its jobs", 404)
    return board
