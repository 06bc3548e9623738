"""HTTP connection to a cluster: tokens, timeouts, retries, redirects and limits."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any
from urllib.parse import urlsplit

from openpai_tasks.backends.base import NOT_SHARED, TokenStore
from openpai_tasks.backends.http import bodies, logins
from openpai_tasks.backends.http.ahead import PendingCall, call_key
from openpai_tasks.backends.http.errors import answer_error, cause, chain, redirect_target, status_line
from openpai_tasks.backends.http.redirects import may_follow, origin
from openpai_tasks.backends.http.retries import NEVER, TOO_MANY, UNAVAILABLE, USUAL, Policies, Retries
from openpai_tasks.errors import ApiError, ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.connection_pool import ConnectTimeout
from openpai_tasks.net.exchange import CONNECT_SECONDS, TOTAL, AnswerTooLarge, DeadlineExceeded, Exchange
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings import home
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.text.hints import command

MOST_REDIRECTS = 5
FOREIGN = (OSError, ValueError)
"""The errors of sockets, TLS and invalid addresses."""
SILENT_PAUSE = 2.0  # seconds; the user is notified of longer pauses


@dataclass(frozen=True)
class ProbeAnswer:
    """The answer to a probe: ``body`` is parsed JSON or else text, ``url`` is where redirects ended."""

    status: int
    url: str
    body: Any


class ServerConnection:
    """A connection to a cluster as one user: tokens and HTTP, without the endpoints."""

    label = ""
    """The kind of cluster, for messages."""
    scheme = "Bearer"
    """The word in front of the token in requests."""
    health = ""
    """The path that shows whether the server answers."""
    patience = 900.0  # seconds

    def __init__(
        self,
        cluster: Cluster,
        credentials: Credentials,
        tokens: TokenStore = NOT_SHARED,
        timeout: float = 60.0,
        learn: Callable[[Cluster], Cluster] | None = None,
        say: Callable[[str], None] = lambda line: None,
        policies: Policies = USUAL,
        hint: str = "",
    ) -> None:
        self.cluster = cluster
        self._credentials = credentials
        self._logins = logins.UserToken(
            credentials.token,
            tokens,
            self.login_pauses,
            lambda: logins.login_lock(self.cluster, say),
            lambda line: say(f"{self._where()}: {line}"),
        )
        self._timeout = timeout
        self._learn, self._say = learn, say
        self._policies = policies
        self._hint = hint  # why there are no credentials
        self.pending: dict[Hashable, PendingCall] = {}  # calls that were started ahead

    @property
    def polls_cheaply(self) -> bool:
        """Whether the cluster may be asked several times a second."""
        return self.cluster.is_embedded

    @property
    def runs_here(self) -> bool:
        """Whether jobs run on this machine, where they can use the user's own Python."""
        return self.cluster.is_embedded

    def say(self, line: str) -> None:
        """Show a message to the user."""
        self._say(line)

    @property
    def user(self) -> str:
        return self.cluster.user

    @property
    def login_pauses(self) -> tuple[float, ...]:
        """Seconds between a login and the first use of its token, for each login that a request may make."""
        return logins.NO_PAUSES

    @contextlib.contextmanager
    def ahead(self, *calls: functools.partial[Any]) -> Iterator[None]:
        """Start calls of methods marked with ``can_run_ahead``; a near cluster gains nothing by it."""
        started: dict[Hashable, PendingCall] = {}
        for call in () if self.polls_cheaply else calls:
            self._base()  # an unknown cluster is asked what it is once, before there are threads
            key = call_key(call.func, call.args, call.keywords)
            method = getattr(call.func, "__wrapped__", None)
            if method and key not in self.pending:
                run = functools.partial(method, self, *call.args, **call.keywords)
                with contextlib.suppress(RuntimeError, MemoryError):  # no thread: it is called as usual
                    started[key] = self.pending[key] = PendingCall(run)
        try:
            yield
        finally:
            for key, pending in started.items():
                if self.pending.get(key) is pending:
                    del self.pending[key]  # no later call may get an old answer

    def forget_facts(self) -> bool:
        """Return that nothing is kept about the cluster."""
        return False

    def login(self, user: str, password: str) -> str:
        """Log in, store the new token and return it."""
        self._logins.log_in(functools.partial(self._ask_for_token, user, password))
        return self.token()

    def renew(self, refused: str = "", pause: float | None = None) -> str:
        """Return a token other than the refused one; log in with the password if necessary."""
        ask = functools.partial(self._ask_for_token, self.user, self._credentials.password)
        self._logins.renew(refused, ask, pause)
        return self.token()

    def token(self) -> str:
        """Return the token for requests; log in first if there is none."""
        if not self._logins.token:
            if not self._credentials.password:
                hint = (
                    self._hint
                    or f"`{command('cluster.update', self.cluster.alias, '--login')}` asks for a password"
                )
                raise Denied(f"no password or token is stored for {self._who()}; {hint}", status=401)
            self.renew()
        token = self._logins.token
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigError(
                f"the token for {self._who()} contains characters that are not allowed in tokens"
            )
        return token

    def _ask_for_token(self, user: str, password: str) -> str:
        answer = self._log_in(user, password)
        if not answer.get("token"):
            raise ApiError(f"{self._where()} logged in {user!r} but returned no token: {self._doubt}")
        return str(answer["token"])

    def _log_in(self, user: str, password: str) -> dict[str, Any]:
        """Send the password and return the answer, which contains a token."""
        raise NotImplementedError

    @property
    def _root(self) -> str:
        """The URL of the server, which paths in its answers are relative to."""
        return self.cluster.uri

    def _base(self) -> str:
        """Return the base URL of the API."""
        return self._root + self.cluster.prefix

    def probe(self, path: str) -> ProbeAnswer:
        """Return the answer to a GET without a token, errors too; never retry."""
        response = self._send("GET", self._root + self.cluster.prefix + path, policies=NEVER)
        try:
            body: Any = parse(response.body)
        except ValueError:
            body = response.text
        return ProbeAnswer(response.status_code, response.url, body)

    def answers(self) -> bool:
        """Return whether the server answers."""
        try:
            return self.probe(self.health).status < 500
        except PaiError:
            return False

    def _object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        body = self._json(method, path, **options)
        if not isinstance(body, dict):
            raise ApiError(f"{self._where()} does not answer {path} with an object: {self._doubt}")
        return body

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response = self._call(method, path, **options)
        try:
            return parse(response.body)
        except ValueError as err:
            raise ApiError(f"{self._where()} does not answer {path} with JSON: {self._doubt}") from err

    def _call(
        self,
        method: str,
        path: str,
        *,
        auth: bool = True,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> HttpAnswer:
        """Call the REST API and raise unless it succeeds.

        ``limit`` is the maximum size of the answer in bytes.
        """
        url = self._base() + path
        send = functools.partial(self._send, method, url, params=query, **body)
        response = self._authorised(send, headers or {}) if auth else send(headers=headers or {})
        self._check(response)
        return response

    def _authorised(self, send: Callable[..., HttpAnswer], headers: dict[str, str]) -> HttpAnswer:
        """Send a request with the token.

        After a 401, log in with the password and send it with a new token.
        """
        pauses = self._logins.pauses if self._credentials.password else ()
        token = self.token()
        response = send(headers={**headers, "Authorization": f"{self.scheme} {token}"})
        for pause in pauses:
            if response.status_code != 401:
                break
            token = self.renew(token, pause)
            response = send(headers={**headers, "Authorization": f"{self.scheme} {token}"})
        if response.status_code != 401 and response.status_code < 500:
            self._logins.accepted(token)
        return response

    def _send(self, method: str, url: str, *, policies: Policies | None = None, **options: Any) -> HttpAnswer:
        """Send a request; retry it after a pause if that can help and is safe."""
        retries = Retries(policies or self._policies, method)
        while True:
            try:
                response = self._follow(method, url, **options)
            except FOREIGN as err:
                wait = retries.after_error(err)
                if wait is None:
                    raise self._unreachable(err) from err
            else:
                wait = retries.after(response)
                if wait is None:
                    return response
                response.close()
                if response.status_code == TOO_MANY and wait > SILENT_PAUSE:
                    self._say(f"{self._where()} accepts no more requests for now; waiting {wait:.0f} s")
            time.sleep(wait)

    def _unreachable(self, err: Exception) -> Unreachable:
        """Return the error for a failed connection."""
        import ssl

        if isinstance(err, ssl.SSLError):
            return Unreachable(f"no secure connection to {self._where()}: {cause(err)}")
        own = next((one for one in chain(err) if isinstance(one, (DeadlineExceeded, AnswerTooLarge))), None)
        if isinstance(own, DeadlineExceeded):
            reason = f"{own} ({TOTAL} times the setting http-timeout)"
        elif any(isinstance(one, TimeoutError) for one in chain(err)) and not own:
            is_connecting = isinstance(err, ConnectTimeout)
            seconds = min(CONNECT_SECONDS, self._timeout) if is_connecting else self._timeout
            reason = f"no data arrived within {seconds:g} s (the setting http-timeout)"
        else:
            reason = str(own or cause(err))
            if self.cluster.is_embedded and any(
                isinstance(one, ConnectionRefusedError) for one in chain(err)
            ):
                reason += f" (it has ended; `{command('cluster.start')}` starts it again)"
        is_outage = not isinstance(err, ValueError) and not isinstance(own, AnswerTooLarge)
        return Unreachable(f"no answer from {self._where()}: {reason}", is_outage)

    def _follow(
        self,
        method: str,
        url: str,
        *,
        any_host: bool = False,
        limit: int = bodies.USUAL,
        stream: bool = False,
        **options: Any,
    ) -> HttpAnswer:
        """Send a request and follow redirects of a GET; the token is sent only to its own cluster.

        All redirects together have the time of one exchange. The content is read up to ``limit`` bytes; the
        content of a ``stream`` is left to ``_pieces``.
        """
        certificate = self.cluster.certificate
        token = "Authorization" in options.get("headers", {}) or certificate is not None
        exchange = Exchange(self._timeout)
        for _ in range(MOST_REDIRECTS):
            response = self._http.request(
                method, url, exchange, verify=self.cluster.verify or True, certificate=certificate, **options
            )
            if method != "GET" or not response.is_redirect:
                return response if stream and response.status_code < 300 else self._read(response, limit)
            target = redirect_target(response)
            response.close()
            if not may_follow(url, target, token, any_host):
                raise ApiError(
                    f"{self._where()} redirects this request to {origin(target)}, which is not followed;"
                    f" if that is its new address, add it with `{command('cluster.add')}`"
                )
            url, options["params"] = target, None
        raise ApiError(f"{self._where()} redirects this request again and again")

    def _read(self, response: HttpAnswer, limit: int) -> HttpAnswer:
        """Read the content of the answer; of an error, only the beginning."""
        is_error = response.status_code >= 300
        with self._converting_errors(response):
            response.body = bodies.beginning(response) if is_error else bodies.whole(response, limit)
        return response

    def _pieces(self, response: HttpAnswer) -> Iterator[bytes]:
        """Yield the content of a stream as long as data arrives."""
        try:
            with self._converting_errors(response):
                yield from bodies.as_sent(response)
        except FOREIGN as err:
            raise self._unreachable(err) from err

    @contextlib.contextmanager
    def _converting_errors(self, response: HttpAnswer) -> Iterator[None]:
        try:
            yield
        except bodies.InvalidBody as err:
            path = urlsplit(response.url).path
            raise ApiError(f"the answer of {self._where()} to {path} is refused: {err}") from err
        finally:
            response.close()

    def _check(self, response: HttpAnswer) -> None:
        # The gateway answers, but the server may have received the request.
        if response.status_code in UNAVAILABLE:
            raise Unreachable(f"no answer from {self._where()}: {status_line(response)}", is_outage=True)
        if not 200 <= response.status_code < 300:
            raise answer_error(response, self._where(), self.cluster.alias)

    @property
    def _doubt(self) -> str:
        return f"is it {self.label}?"

    def _where(self) -> str:
        return f"cluster {self.cluster.alias!r} ({self.cluster.uri})"

    def _who(self) -> str:
        return f"user {self.user!r} of {self._where()}"

    @functools.cached_property
    def _http(self) -> HttpClient:
        is_here = self.cluster.uri.startswith("http://127.0.0.1")
        users = _own_users() if is_here and self.cluster.is_embedded else frozenset[int]()
        return HttpClient(uses_proxies=not is_here, users=users)


def _own_users() -> frozenset[int]:
    """Return the users that may run the embedded cluster: this one, or the owner of the home folder."""
    try:
        return frozenset((os.geteuid(), home.home().stat().st_uid))
    except OSError:
        return frozenset((os.geteuid(),))
