"""One method per REST endpoint, no policy; the one home of ``requests``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from openpai_tasks.credentials import Credentials
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound, Unreachable
from openpai_tasks.protocol import routes
from openpai_tasks.protocol.models import (
    EventInfo,
    JobInfo,
    event_from_body,
    job_from_detail,
    job_from_summary,
)
from openpai_tasks.registry import Cluster

if TYPE_CHECKING:
    import requests

ERRORS: dict[int, type[ApiError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
CONNECT_SECONDS = 10.0
TRIES = 4  # of a request that may be sent again
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Answer:
    """What a server said to a probe: JSON where it was JSON, else text; ``url`` is where it led to."""

    status: int
    url: str
    body: Any


class Client:
    """A cluster, spoken to as one user."""

    def __init__(
        self,
        cluster: Cluster,
        credentials: Credentials,
        save_token: Callable[[str], None] | None = None,
        timeout: float = 60.0,
        session: requests.Session | None = None,
    ) -> None:
        self.cluster = cluster
        self._credentials = credentials
        self._token = credentials.token
        self._save_token = save_token
        self._timeout = timeout
        self._given_session = session

    @property
    def user(self) -> str:
        return self.cluster.user

    # What the cluster is

    def info(self) -> dict[str, Any]:
        return self._object("GET", routes.INFO, auth=False)

    def authn_info(self) -> dict[str, Any]:
        return self._object("GET", routes.AUTHN_INFO, auth=False)

    def probe(self, path: str) -> Answer:
        """What a GET without a token brings, refusals too, at the first try: to find out what is there."""
        response = self._send("GET", self.cluster.rest + path, tries=1, timeout=self._timeouts)
        try:
            body: Any = response.json()
        except ValueError:
            body = response.text
        return Answer(response.status_code, response.url, body)

    def virtual_clusters(self) -> dict[str, dict[str, Any]]:
        oldest = self.cluster.generation == "0.14"
        return self._object("GET", routes.VIRTUAL_CLUSTERS_V1 if oldest else routes.VIRTUAL_CLUSTERS)

    def storages(self, default: bool = False) -> list[dict[str, Any]]:
        query = {"default": "true"} if default else {}
        return _rows(self._object("GET", routes.STORAGES, query=query).get("storages"))

    def storage(self, name: str) -> dict[str, Any]:
        return self._object("GET", _fill(routes.STORAGE, storage=name))

    # Who we are

    def login(self, user: str, password: str) -> str:
        """A fresh token for the user; it is used from now on and handed to ``save_token``."""
        form = {"username": user, "password": password}
        answer = self._object("POST", routes.LOGIN_V1, auth=False, data=form)
        self._token = str(answer["token"])
        if self._save_token:
            self._save_token(self._token)
        return self._token

    def check_token(self) -> dict[str, Any]:
        return self._object("GET", routes.TOKEN_CHECK)

    def application_token(self) -> str:
        return str(self._object("POST", routes.TOKEN_APPLICATION)["token"])

    def token(self) -> str:
        """The token that requests carry, after logging in if there is none yet."""
        if not self._token:
            if not self._credentials.password:
                raise Denied(f"no password or token is known for {self._who()}", status=401)
            self.login(self.user, self._credentials.password)
        return self._token

    def user_info(self, name: str) -> dict[str, Any]:
        return self._object("GET", _fill(routes.USER_V1, user=name))

    # Jobs

    def jobs(self, **query: str | int | None) -> list[JobInfo]:
        """The job list, newest first; the query is that of the REST API (username, state, vc, limit, …)."""
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        return [job_from_summary(row) for row in _rows(self._json("GET", routes.JOBS, query=asked))]

    def job(self, key: str) -> JobInfo:
        return job_from_detail(self._object("GET", _fill(routes.JOB, job=key)))

    def job_config(self, key: str) -> str:
        return self._call("GET", _fill(routes.JOB_CONFIG, job=key)).text

    def job_events(self, key: str) -> tuple[EventInfo, ...]:
        rows = _rows(self._object("GET", _fill(routes.JOB_EVENTS, job=key)).get("data"))
        return tuple(map(event_from_body, rows))

    @property
    def submit_url(self) -> str:
        return self.cluster.rest + routes.JOBS

    def create_job(self, text: str) -> None:
        """Hand in a v2 document; it is sent as it is."""
        self._call("POST", routes.JOBS, data=text.encode(), headers={"Content-Type": "text/yaml"})

    def set_execution(self, key: str, value: str) -> None:
        self._call("PUT", _fill(routes.JOB_EXECUTION, job=key), json={"value": value})

    def add_tag(self, key: str, tag: str) -> None:
        self._call("PUT", _fill(routes.JOB_TAG, job=key), json={"value": tag})

    def log_locations(self, key: str, attempt: int, role: str, index: int, retry: int) -> dict[str, str]:
        """Names of a task's logs and the (short-lived) addresses of their text."""
        path = _fill(routes.TASK_LOGS, job=key, attempt=attempt, role=role, index=index, task_attempt=retry)
        return {log["name"]: log["uri"] for log in _rows(self._object("GET", path).get("locations"))}

    def read_log(self, uri: str, offset: int = 0) -> Iterator[bytes]:
        """A log's bytes from ``offset`` on, in pieces; nothing if it has not grown."""
        headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
        url = urljoin(self.cluster.uri + "/", uri)
        response = self._send("GET", url, headers=headers, stream=True, timeout=self._timeouts)
        with response:
            if response.status_code == 416:
                return
            self._check(response)
            skip = 0 if response.status_code == 206 else offset
            for chunk in response.iter_content(1 << 16):
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))

    # How it is said

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
            raise ApiError(f"{self.cluster.uri} does not answer {path} with JSON: is it OpenPAI?") from err

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
        url = self.cluster.rest + path
        options = {"params": query, "timeout": self._timeouts, "allow_redirects": method == "GET", **body}
        response = self._send(method, url, headers=self._headers(headers, auth), **options)
        if response.status_code == 401 and auth and self._credentials.password:
            self._token = ""  # it has expired or was revoked; the password still counts
            response = self._send(method, url, headers=self._headers(headers, auth), **options)
        self._check(response)
        return response

    def _headers(self, headers: dict[str, str] | None, auth: bool) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token()}"} if auth else {}
        return {**(headers or {}), **bearer}

    def _send(self, method: str, url: str, *, tries: int = TRIES, **options: Any) -> requests.Response:
        """Send it, and again where that cannot do harm: a read that failed, or 'too many requests'."""
        import requests

        hopeless = (requests.exceptions.InvalidURL, requests.exceptions.ConnectTimeout)
        for left in reversed(range(tries)):
            try:
                response = self._session.request(method, url, verify=self.cluster.verify, **options)
            except requests.exceptions.SSLError as err:
                raise Unreachable(f"no safe connection to {self._where()}: {_cause(err)}") from err
            except requests.exceptions.RequestException as err:
                if method != "GET" or not left or isinstance(err, hopeless):
                    raise Unreachable(f"no answer from {self._where()}: {_cause(err)}") from err
                time.sleep(0.2 * (tries - left))
                continue
            if not left or not _worth_another_try(method, response):
                return response
            time.sleep(_pause(response, tries - left))
        raise AssertionError("the last try returns or raises")

    def _check(self, response: requests.Response) -> None:
        if response.status_code < 300:
            return
        code, message = _error_body(response)
        kind = ERRORS.get(response.status_code, ApiError)
        raise kind(f"{self._where()} says no: {message}", response.status_code, code)

    def _where(self) -> str:
        return f"cluster {self.cluster.alias!r} ({self.cluster.uri})"

    def _who(self) -> str:
        return f"user {self.user!r} of cluster {self.cluster.alias!r}; say it with `cluster.add`"

    @property
    def _timeouts(self) -> tuple[float, float]:
        return (min(CONNECT_SECONDS, self._timeout), self._timeout)

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


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _fill(path: str, **values: str | int) -> str:
    return path.format(**{name: quote(str(value), safe="~") for name, value in values.items()})


def _worth_another_try(method: str, response: requests.Response) -> bool:
    return response.status_code == 429 or (method == "GET" and response.status_code in (502, 503, 504))


def _pause(response: requests.Response, tries: int) -> float:
    try:
        return min(LONGEST_PAUSE, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return float(tries)


def _error_body(response: requests.Response) -> tuple[str, str]:
    """OpenPAI's code and message, or what a proxy in between wrote."""
    try:
        body = response.json()
        code, message = str(body.get("code", "")), str(body.get("message", ""))
    except (ValueError, AttributeError):
        code, message = "", ""
    return code, " ".join(message.split()) or f"HTTP {response.status_code} {response.reason}"


def _cause(err: BaseException) -> str:
    """The innermost reason of a chain of wrapped exceptions, as one line."""
    inner: BaseException | None = err
    while inner is not None:
        last, inner = inner, inner.__cause__ or inner.__context__
    return " ".join(str(getattr(last, "strerror", None) or last).split())
