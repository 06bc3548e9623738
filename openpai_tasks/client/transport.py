"""How anything is said to a cluster: tokens, timeouts, retries, redirects; the one home of ``requests``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openpai_tasks.client.answers import cause, error, led_to, pause
from openpai_tasks.client.dialects import Dialect, dialect_of
from openpai_tasks.client.redirects import may_follow, origin
from openpai_tasks.credentials import Credentials
from openpai_tasks.errors import ApiError, ConfigError, Denied, Unreachable
from openpai_tasks.protocol import routes
from openpai_tasks.registry import Cluster

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 10.0
TRIES = 4  # of a read that was not answered
PATIENCE = 120.0  # seconds to wait in all for a server that says "too many requests"
MOST_REDIRECTS = 5
ANSWERS = 4  # how many times the patience for one piece of an answer is that for all of it
LARGEST_ANSWER = 1 << 28
GONE_FOR_NOW = (502, 503, 504)


@dataclass(frozen=True)
class Answer:
    """What a server said to a probe: JSON where it was JSON, else text; ``url`` is where it led to."""

    status: int
    url: str
    body: Any


class Connection:
    """A cluster, and one user's way in."""

    def __init__(
        self,
        cluster: Cluster,
        credentials: Credentials,
        save_token: Callable[[str], None] | None = None,
        timeout: float = 60.0,
        session: requests.Session | None = None,
        learn: Callable[[Cluster], Cluster] | None = None,
        hint: str = "",
    ) -> None:
        self.cluster = cluster
        self._credentials = credentials
        self._token = credentials.token
        self._save_token = save_token
        self._timeout = timeout
        self._given_session = session
        self._learn = learn
        self._hint = hint  # why there are no credentials

    @property
    def user(self) -> str:
        return self.cluster.user

    @functools.cached_property
    def dialect(self) -> Dialect:
        """What its generation speaks; a cluster that was never asked is asked now, once."""
        if not self.cluster.generation and self._learn:
            self.cluster = self._learn(self.cluster)
        return dialect_of(self.cluster.generation)

    def login(self, user: str, password: str) -> str:
        """A fresh token for the user; it is used from now on and handed to ``save_token``."""
        form = {"username": user, "password": password}
        answer = self._object("POST", routes.LOGIN_V1, auth=False, data=form)
        if not answer.get("token"):
            raise ApiError(f"{self._where()} lets {user!r} in, but without a token: is it OpenPAI?")
        self._token = str(answer["token"])
        if self._save_token:
            self._save_token(self._token)
        return self._token

    def token(self) -> str:
        """The token that requests carry, after logging in if there is none yet."""
        if not self._token:
            if not self._credentials.password:
                hint = self._hint or f"`pai cluster.update {self.cluster.alias} --login` asks for a password"
                raise Denied(f"no password or token is kept for {self._who()}; {hint}", status=401)
            self.login(self.user, self._credentials.password)
        if not (self._token.isascii() and self._token.isprintable()) or " " in self._token:
            raise ConfigError(f"the token for {self._who()} has characters in it that no token has")
        return self._token

    def _object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        body = self._json(method, path, **options)
        if not isinstance(body, dict):
            raise ApiError(f"{self._where()} does not answer {path} with an object: is it OpenPAI?")
        return body

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response = self._call(method, path, **options)
        try:
            return response.json()
        except ValueError as err:
            raise ApiError(f"{self._where()} does not answer {path} with JSON: is it OpenPAI?") from err

    def _call(
        self,
        method: str,
        path: str,
        *,
        auth: bool = True,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> requests.Response:
        """A call of the REST API that must succeed."""
        _ = self.dialect  # an unknown cluster may have its API elsewhere
        url = self.cluster.rest + path
        response = self._send(method, url, headers=self._headers(headers, auth), params=query, **body)
        if response.status_code == 401 and auth and self._credentials.password:
            self._token = ""  # it has expired or was revoked; the password still counts
            response = self._send(method, url, headers=self._headers(headers, auth), params=query, **body)
        self._check(response)
        return response

    def _headers(self, headers: dict[str, str] | None, auth: bool) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token()}"} if auth else {}
        return {**(headers or {}), **bearer}

    def _send(self, method: str, url: str, *, tries: int = TRIES, **options: Any) -> requests.Response:
        """Send it; where the server asks for a pause that can be borne, pause and send it again."""
        patience = PATIENCE if tries > 1 else 0.0
        while True:
            response = self._reach(method, url, tries, options)
            wait = pause(response)
            if response.status_code != 429 or wait > patience:
                return response
            response.close()
            time.sleep(wait)
            patience -= wait

    def _reach(self, method: str, url: str, tries: int, options: dict[str, Any]) -> requests.Response:
        """Send it, and again where that cannot do harm: a read that was not answered."""
        import requests
        import urllib3

        hopeless = (requests.exceptions.InvalidURL, UnicodeError)
        for left in reversed(range(tries)):
            try:
                response = self._follow(method, url, **options)
            except requests.exceptions.SSLError as err:
                raise Unreachable(f"no safe connection to {self._where()}: {cause(err)}") from err
            except requests.exceptions.Timeout as err:  # who was silent for so long will be so again
                raise Unreachable(f"no answer from {self._where()}: {self._patience(err)}") from err
            except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, UnicodeError) as err:
                if method != "GET" or not left or isinstance(err, hopeless):
                    raise Unreachable(f"no answer from {self._where()}: {cause(err)}") from err
            else:
                if method != "GET" or not left or response.status_code not in GONE_FOR_NOW:
                    return response
                response.close()
            time.sleep(0.2 * (tries - left))
        raise AssertionError("the last try returns or raises")

    def _patience(self, err: requests.exceptions.Timeout) -> str:
        import requests

        is_connecting = isinstance(err, requests.exceptions.ConnectTimeout)
        seconds = min(CONNECT_SECONDS, self._timeout) if is_connecting else self._timeout
        return f"nothing came within {seconds:g} s (the setting http-timeout)"

    def _follow(self, method: str, url: str, *, abroad: bool = False, **options: Any) -> requests.Response:
        """Send it and go where a read is sent on to; a token goes nowhere but to the cluster it is for."""
        token = "Authorization" in options.get("headers", {})
        for _ in range(MOST_REDIRECTS):
            response = self._session.request(
                method,
                url,
                allow_redirects=False,
                verify=self.cluster.verify or True,
                timeout=(min(CONNECT_SECONDS, self._timeout), self._timeout),
                **{**options, "stream": True},
            )
            if method != "GET" or not response.is_redirect:
                return response if options.get("stream") else self._whole(response)
            target = led_to(response)
            response.close()
            if not may_follow(url, target, token, abroad):
                raise ApiError(
                    f"{self._where()} sends this call on to {origin(target)}, which is not followed;"
                    " if that is the cluster's new address, add it"
                )
            url, options["params"] = target, None
        raise ApiError(f"{self._where()} sends this call on again and again")

    def _whole(self, response: requests.Response) -> requests.Response:
        """Its body read, within a time and a size: a server that drips must not hold us for ever."""
        limit = time.monotonic() + ANSWERS * self._timeout
        pieces, size = [], 0
        for piece in response.iter_content(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_ANSWER or time.monotonic() > limit:
                response.close()
                raise Unreachable(f"the answer of {self._where()} does not come to an end")
        response._content = b"".join(pieces)
        return response

    def _check(self, response: requests.Response) -> None:
        if response.status_code in GONE_FOR_NOW:  # a gateway's word: what became of the call is not known
            said = f"HTTP {response.status_code} {response.reason}"
            raise Unreachable(f"no answer from {self._where()}: {said}")
        if response.status_code >= 300:
            raise error(response, self._where())

    def _where(self) -> str:
        return f"cluster {self.cluster.alias!r} ({self.cluster.uri})"

    def _who(self) -> str:
        return f"user {self.user!r} of {self._where()}"

    @functools.cached_property
    def _session(self) -> requests.Session:
        import requests

        session = self._given_session or requests.Session()
        session.auth = _unchanged
        session.trust_env = not self.cluster.uri.startswith("http://127.0.0.1")  # no proxy for loopback
        return session


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Without an auth of our own, requests would put a ~/.netrc entry in the place of our token."""
    return request
