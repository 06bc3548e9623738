"""A request to the portal, as the pages see it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.responses import HTMLResponse, RedirectResponse, Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.portal import html
from openpai_tasks.portal.sessions import Session
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.store import Mounts

MOST_ANSWERS = 1000
"""Answers of forms that are remembered."""

_answers: dict[str, Future[str]] = {}
_answers_lock = threading.Lock()


@dataclass(frozen=True)
class UploadBody:
    """The content of a file that arrives while it is written."""

    pieces: Iterator[bytes]
    size: int | None


@dataclass(frozen=True)
class PortalRequest:
    """A request of a signed-in browser: its session, and the values in its path, query and form."""

    session: Session
    project: Path
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict, repr=False)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Every value of fields that a form, or the query of a page, may repeat."""
    files: tuple[UploadFile, ...] = ()
    body: UploadBody | None = None
    """Of the method PUT."""
    _clients: dict[str, Backend] = field(default_factory=dict, init=False, repr=False)

    @property
    def alias(self) -> str:
        return self.params["alias"]

    @property
    def shown_alias(self) -> str:
        """The cluster that the page's header links to; on pages about all clusters, the last one."""
        return self.params.get("alias") or self.session.last or self.session.only

    @property
    def client(self) -> Backend:
        """The connection to the cluster that the address names.

        A page that is followed keeps it, as a new one would start an embedded cluster that was stopped.
        """
        if self.alias not in self._clients:
            self._clients[self.alias] = self.session.client(self.alias)
        return self._clients[self.alias]

    @property
    def records(self) -> Path:
        """The folder with records of submissions: the project, or another one for users with a password."""
        if not self.session.only:
            return self.project
        user = hashlib.sha256(self.client.user.encode()).hexdigest()[:16]
        return self.project / ".openpai" / "guests" / user

    @property
    def mounts(self) -> Mounts:
        """Shares that are mounted on this machine; those of the owner are not for users with a password."""
        return () if self.session.only else sdk.files.mounts(load_settings())

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a whole page."""
        return HTMLResponse(html.render(template, request=self, **values), status)

    def fragment(self, template: str, **values: Any) -> str:
        """Return a part of a page, as HTML."""
        return html.render(template, request=self, **values)


def once(request: PortalRequest, act: Callable[[], str]) -> str:
    """Act once, even if a browser sends a form twice; after an error it can be sent again."""
    sent = json.dumps([request.session.id, request.path, sorted(request.lists.items())])
    key = hashlib.sha256(sent.encode()).hexdigest()
    with _answers_lock:
        known = _answers.get(key)
        if known is None:
            if len(_answers) >= MOST_ANSWERS:
                del _answers[next(iter(_answers))]
            mine = _answers[key] = Future[str]()
    if known is not None:
        return known.result()
    try:
        mine.set_result(act())
    except BaseException as err:
        with _answers_lock:
            _answers.pop(key, None)
        mine.set_exception(err)
    return mine.result()


def whole_number(text: str) -> int | None:
    """Return the number in a field of an address or a form; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def redirect(*words: str, **query: object) -> Response:
    """Redirect the browser to another page."""
    return RedirectResponse(html.url(*words, **query), 303)
