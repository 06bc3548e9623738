"""The web application: checks who asks and from where, finds the page, and turns errors into pages."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, Denied, NotFound, PaiError, Unreachable
from openpai_tasks.loopback.callers import ANYONE, NOBODY, caller_process, connection
from openpai_tasks.loopback.guesses import Guesses, GuessRate
from openpai_tasks.loopback.web import SAFE, Dispatcher, Match, RefusedCall, Router, read_small_form, split
from openpai_tasks.portal import html, static_files
from openpai_tasks.portal.html import url
from openpai_tasks.portal.live import EventStream, Steps
from openpai_tasks.portal.request import PortalRequest, UploadBody
from openpai_tasks.portal.routes import TABLE, Page
from openpai_tasks.portal.sessions import Session, Sessions
from openpai_tasks.settings.config import load_settings
from openpai_tasks.settings.registry import is_embedded
from openpai_tasks.text.plain import one_line

log = logging.getLogger(__name__)

OWN_HOST = re.compile(r"((?:[0-9a-f]{32}\.)?localhost|127\.0\.0\.1):(\d{1,5})", re.ASCII)
SAME_SITE = ("same-origin", "none")
LARGEST_FORM = 1 << 20
LARGEST_SIGN_IN = 16 << 10
EVERYONE = ""  # all browsers together: they have the same address
SIGN_INS, ALL_SIGN_INS = GuessRate(10, 300), GuessRate(50, 300)
NOT_FOUND = {
    "jobs": "No such job",
    "sweeps": "No such sweep",
    "storage": "No such file or folder",
    "file": "No such file",
}
"""Titles of errors, by the part of the address that names what is missing."""
LONGEST_TITLE = 60  # characters of an error's first words
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with less, browsers send forms without their origin
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Activity:
    """Requests in progress, and when the last one ended."""

    def __init__(self) -> None:
        self._open = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Count a request; a page that is followed live counts until it is closed."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return the time since the last request; 0 during one."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._last


class Portal(Dispatcher[Page]):
    """The web application of one project folder."""

    hosts = OWN_HOST
    headers = HEADERS
    expected = PaiError

    def __init__(self, folder: Path, project: Path) -> None:
        super().__init__(Router(TABLE, exact=True))
        self.activity = Activity()
        self._project = project
        self._sessions = Sessions(folder)
        self._guesses = Guesses(of_one_name=SIGN_INS, of_all_names=ALL_SIGN_INS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.activity.request():
            await super().__call__(scope, receive, send)

    def accepts_page(self, web: Request) -> bool:
        own = f"http://{web.headers['host']}"
        is_same_site = web.headers.get("sec-fetch-site", "none") in SAME_SITE
        return web.headers.get("origin", own) == own and (web.method in SAFE or is_same_site)

    async def answer(self, web: Request, path: str, match: Match[Page] | None) -> Response:
        words = split(path, exact=True)
        if words[:1] == ["static"] and len(words) == 3:
            return static_files.serve(words[2])
        caller = await anyio.to_thread.run_sync(caller_process, connection(web.scope))
        if caller == NOBODY:
            raise ClientDisconnect
        if words[:1] == ["open"] and len(words) == 2:
            return self._open(web, words[1], caller)
        if words[:1] == ["enter"] and len(words) == 2:
            return self._enter(web, words[1], caller)
        session = web.state.session = self._find(web, caller)
        if words == ["sign-in"] or session is None:
            return await self._sign_in(web, words, caller)
        if words == ["sign-out"] and web.method == "POST":
            return await self._sign_out(web, session)
        if match is None:
            raise NotFound("there is no such page", 404)
        return await self._page(web, match, session)

    async def refuse(self, web: Request, err: PaiError) -> Response:
        session = getattr(web.state, "session", None)
        message, status = str(err), _status(err)
        if "text/html" not in web.headers.get("accept", "text/html"):
            response: Response = JSONResponse({"error": message}, status)
        else:
            request = _request(web, {}, session or _anonymous_session(), self._project, None)
            title, is_signed_in = _title(err, web.url.path), session is not None
            response = request.page(
                "problem.html", status, title=title, message=message, is_signed_in=is_signed_in
            )
        response.headers.update(err.headers if isinstance(err, RefusedCall) else {})
        return response

    # Pages

    async def _page(self, web: Request, match: Match[Page], session: Session) -> Response:
        form: Any = None
        if web.method not in SAFE:
            token = web.headers.get("x-csrf-token", "")
            if web.method != "PUT":
                form = await web.form(max_part_size=LARGEST_FORM)
                token = token or str(form.get("csrf") or "")
            if not session.accepts(token):
                raise Denied("this form is out of date: reload the page and try again", 403)
        request = _request(web, match.params, session, self._project, form)
        alias = match.params.get("alias", "")

        def forget_if_lost(err: PaiError) -> None:
            if isinstance(err, (Denied, Unreachable)):
                session.forget(alias)

        cached = session.clients.get(alias) if is_embedded(alias) else None
        if cached and cached.cluster.uri != sdk.clusters.embedded_uri():
            session.forget(alias)  # it was stopped, or started at another port
        if match.route.is_live:
            return EventStream(_follow(match.route, request), on_problem=forget_if_lost)
        try:
            return await anyio.to_thread.run_sync(match.route.handler, request)
        except PaiError as err:
            forget_if_lost(err)
            raise

    # Signing in and out

    def _find(self, web: Request, caller: str) -> Session | None:
        return self._sessions.find(web.cookies.get(_cookie(web), ""), _host(web)[0], caller)

    def _open(self, web: Request, token: str, caller: str) -> Response:
        """Sign in the browser that follows a one-time link."""
        if caller not in (f"uid {os.getuid()}", "uid 0", ANYONE):
            raise Denied("this link is for the user who started the portal", 403)
        if not self._sessions.redeem(token):
            return RedirectResponse(url("sign-in", expired="1"), 303)
        session = Session(self._connect, host=self._sessions.host(), caller=caller)
        return self._send_to_session_host(web, session, _local(web.query_params.get("next", "/")))

    def _send_to_session_host(self, web: Request, session: Session, following: str) -> Response:
        """Send the browser to the host of its session, by a page: forms may not be redirected elsewhere."""
        home = f"http://{session.host}:{_host(web)[1]}"
        page = url("enter", self._sessions.hand_over(session), next=following)
        return HTMLResponse(html.render("opening.html", home=home, page=home + page, request=None))

    def _enter(self, web: Request, token: str, caller: str) -> Response:
        before = self._find(web, caller)
        session = self._sessions.enter(token, _host(web)[0], caller)
        if session is None:
            return RedirectResponse(url("sign-in", expired="1"), 303)
        if before:
            self._sessions.close(before)
        answer = RedirectResponse(_local(web.query_params.get("next", "/")), 303)
        # not strict: that withholds it when a page of another site leads here, such as the one of a command
        answer.set_cookie(_cookie(web), session.id, httponly=True, samesite="lax", path="/")
        return answer

    async def _sign_in(self, web: Request, path: list[str], caller: str) -> Response:
        if path != ["sign-in"]:
            if web.method not in SAFE or "text/html" not in web.headers.get("accept", "text/html"):
                raise Denied("sign in first", 401)
            here = web.url.path + (f"?{web.url.query}" if web.url.query else "")
            return RedirectResponse(url("sign-in", next=here), 303)
        following = _local(web.query_params.get("next", "/"))
        problem = "This link was used already or has expired." if web.query_params.get("expired") else ""
        form: dict[str, str] = {}
        code = 200
        if web.method == "POST":
            sent = await read_small_form(web, LARGEST_SIGN_IN)
            form = {name: str(value) for name, value in sent.items()}
            try:
                session = await anyio.to_thread.run_sync(self._log_in, form, caller)
                return self._send_to_session_host(web, session, following)
            except PaiError as err:
                problem, code = str(err), _status(err)
                code = 403 if isinstance(err, ApiError) and code < 429 else code
        clusters = await anyio.to_thread.run_sync(lambda: sdk.clusters.list_clusters(load_settings()))
        typed = {name: form.get(name, "") for name in ("cluster", "user")}
        page = html.render(
            "sign_in.html", clusters=clusters, form=typed, problem=problem, next=following, request=None
        )
        return Response(page, code, media_type="text/html")

    def _log_in(self, form: dict[str, str], caller: str) -> Session:
        """Check a name and password with the cluster; they are kept only as long as the session."""
        alias, user = form.get("cluster", ""), form.get("user", "")
        _check_running(alias)
        self._guesses.begin(EVERYONE, account := f"{alias} {user}")
        client = sdk.clusters.log_in(load_settings(), alias, user, form.get("password", ""))
        self._guesses.note_right(EVERYONE, account)
        host = self._sessions.host(account)
        return Session(lambda _: client, only=alias, host=host, caller=caller)

    async def _sign_out(self, web: Request, session: Session) -> Response:
        form = await read_small_form(web, LARGEST_SIGN_IN)
        if not session.accepts(str(form.get("csrf") or "")):
            raise Denied("this form is out of date: reload the page and try again", 403)
        self._sessions.close(session)
        answer = RedirectResponse(url("sign-in"), 303)
        answer.delete_cookie(_cookie(web))
        return answer

    def _connect(self, alias: str) -> Backend:
        """Connect with the owner's stored credentials, which never reach a page."""
        return sdk.clusters.connect(
            load_settings({"cluster_alias": alias}), say=lambda line: log.info("%s", line)
        )


def _follow(page: Page, request: PortalRequest) -> Steps:
    _check_running(request.params.get("alias", ""))
    yield from page.handler(request)


def _check_running(alias: str) -> None:
    """Refuse to use a stopped embedded cluster: an open page or a guess must not start it again."""
    if is_embedded(alias) and not sdk.clusters.embedded_uri():
        raise Unreachable("the embedded cluster is stopped")


def _anonymous_session() -> Session:
    def refuse(alias: str) -> Backend:
        raise Denied("sign in first", 401)

    return Session(refuse)


def _request(
    web: Request, params: dict[str, str], session: Session, project: Path, form: Any
) -> PortalRequest:
    pairs = [(name, value) for name, value in form.multi_items()] if form else []
    texts = [(name, value) for name, value in pairs if isinstance(value, str)]
    repeated = [*texts, *web.query_params.multi_items()]
    return PortalRequest(
        session=session,
        project=project,
        path=web.url.path,
        params=params,
        query=dict(web.query_params),
        form=dict(texts),
        lists={name: tuple(value for other, value in repeated if other == name) for name, _ in repeated},
        files=tuple(value for _, value in pairs if not isinstance(value, str)),
        body=_body(web) if web.method == "PUT" else None,
    )


def _body(web: Request) -> UploadBody:
    """Return the content of a file for a thread that writes it: it never waits in memory or on the disk."""
    stream = web.stream()

    async def more() -> bytes:
        return await anext(stream, b"")

    size = web.headers.get("content-length", "")
    pieces = iter(lambda: anyio.from_thread.run(more), b"")
    return UploadBody(pieces, int(size) if size.isascii() and size.isdigit() else None)


def _host(web: Request) -> tuple[str, str]:
    """Return the host and the port by which the browser knows the portal."""
    name, _, port = web.headers.get("host", "").rpartition(":")
    return name, port


def _cookie(web: Request) -> str:
    """Return the name of the cookie: browsers share cookies between the ports of a host."""
    return f"pai_portal_{(web.scope.get('server') or ('', 0))[1]}"


def _local(address: str) -> str:
    """Return a page of ours to go to; the first page instead of an address elsewhere."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_ours and "\\" not in address else "/"


def _title(err: PaiError, path: str) -> str:
    """Return what went wrong in a few words; the message has the details."""
    words = split(path, exact=True)
    if isinstance(err, NotFound):
        what = words[2] if len(words) > 3 and words[0] == "c" else ""
        return NOT_FOUND.get("file" if "outputs" in words[4:5] and words[5:] else what, "No such page")
    kinds = ((Denied, "Not allowed"), (Unreachable, "The cluster does not answer"))
    known = next((title for kind, title in kinds if isinstance(err, kind)), "")
    if known or _status(err) >= 500:
        return known or "The cluster reports an error"
    first = one_line(re.split(r"; |: | \(", str(err), maxsplit=1)[0])
    return first[:1].upper() + first[1:] if 0 < len(first) <= LONGEST_TITLE else "This cannot be done"


def _status(err: PaiError) -> int:
    if isinstance(err, ApiError):
        return err.status if 400 <= err.status < 600 else 502
    return 502 if isinstance(err, Unreachable) else 400
