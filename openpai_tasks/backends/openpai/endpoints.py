"""One method per endpoint, no policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urljoin

from openpai_tasks.backends.openpai import bodies, listing, log_addresses
from openpai_tasks.backends.openpai.log_masking import mask_keys
from openpai_tasks.backends.openpai.retries import NEVER, Policies
from openpai_tasks.backends.openpai.transport import Answer, Connection
from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.protocol import fields, routes
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import (
    EventInfo,
    JobInfo,
    SshInfo,
    event_from_body,
    job_from_detail,
    job_from_summary,
    ssh_from_body,
)
from openpai_tasks.protocol.yaml import reader

V1_JOBS = "jobs of protocol version 1"
PAGE = 5000  # jobs asked for at once; servers give up to 50000
MOST_PAGES = 200


class Client(Connection):
    """A cluster, spoken to as one user."""

    # What the cluster is

    def info(self) -> dict[str, Any]:
        return self._object("GET", routes.INFO, auth=False)

    def authn_info(self) -> dict[str, Any]:
        return self._object("GET", routes.AUTHN_INFO, auth=False)

    def probe(self, path: str) -> Answer:
        """What a GET without a token brings, refusals too, at the first try: to find out what is there."""
        response = self._send("GET", self.cluster.rest + path, policies=NEVER)
        try:
            body: Any = parse(response.content)
        except ValueError:
            body = response.text
        return Answer(response.status_code, response.url, body)

    def virtual_clusters(self) -> dict[str, dict[str, Any]]:
        found = self._object("GET", self.dialect.virtual_clusters, auth=self._guarded, limit=bodies.DOCUMENT)
        return {name: fields.mapping(record) for name, record in found.items()}

    def storages(self, default: bool = False) -> list[dict[str, Any]]:
        query = {"default": "true"} if default else {}
        path = self._path(self.dialect.storages, "storages")
        return fields.rows(self._object("GET", path, query=query).get("storages"))

    def storage(self, name: str) -> dict[str, Any]:
        return self._object("GET", self._path(self.dialect.storage, "storages", storage=name))

    # Who we are

    def check_token(self) -> dict[str, Any]:
        return self._object("GET", self._path(self.dialect.token_check, "check of tokens"))

    def application_token(self) -> str:
        path = self._path(self.dialect.application_token, "application tokens")
        token = fields.text(self._object("POST", path).get("token"))
        if not token:
            raise ApiError(f"{self._where()} does not answer {path} with a token: is it OpenPAI?")
        return token

    def user_info(self, name: str) -> dict[str, Any]:
        return self._object("GET", self._path(routes.USER_V1, user=name))

    # Jobs

    def jobs(self, **query: str | int | None) -> list[JobInfo]:
        """The job list, newest first; the query is that of the 1.8 API (username, state, vc, limit, …)."""
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        if self.dialect.selects:
            return self._pages(asked)
        user = str(asked.get("username", ""))
        known = {"username": user} if user and "," not in user else {}
        _, rows = self._page(known)
        return listing.select(map(job_from_summary, rows), asked)

    def _pages(self, query: dict[str, Any]) -> list[JobInfo]:
        """Page by page until all are there; what moved to the next page meanwhile is not told twice."""
        found: dict[str, JobInfo] = {}
        seen: set[str] = set()
        limit, offset = query.get("limit"), int(query.get("offset", 0))
        asked = listing.for_server(query)
        for _ in range(MOST_PAGES):
            if limit is not None and len(found) >= int(limit):
                break
            size = PAGE if limit is None or asked != query else min(PAGE, int(limit) - len(found))
            page = {"offset": offset, "limit": size, "withTotalCount": "true"}
            total, rows = self._page({**asked, **page})
            before, offset = len(seen), offset + len(rows)
            new = {job.key: job for job in map(job_from_summary, rows) if job.key not in seen}
            seen |= new.keys()
            found |= {key: job for key, job in new.items() if listing.is_in_state(job, query)}
            ended = len(rows) < size if total is None else offset >= total
            if ended or len(seen) == before:
                break
        else:
            raise ApiError(f"{self._where()} lists jobs without an end; limit their number with --limit")
        return list(found.values())[: None if limit is None else int(limit)]

    def _page(self, query: dict[str, Any]) -> tuple[int | None, list[dict[str, Any]]]:
        """How many there are in all, where the server says it, and the rows of one page."""
        wanted = query.get("limit")
        limit = bodies.JOB_LIST if wanted is None else bodies.USUAL + wanted * bodies.JOB_ROW
        body = self._json("GET", self.dialect.jobs, query=query, auth=self._guarded, limit=limit)
        total, rows = (body.get("totalCount"), body.get("data")) if isinstance(body, dict) else (None, body)
        if not isinstance(rows, list):
            raise ApiError(f"{self._where()} does not answer {self.dialect.jobs} with a list: is it OpenPAI?")
        return fields.whole(total), [row for row in fields.rows(rows) if fields.text(row.get("name"))]

    def job(self, key: str) -> JobInfo:
        """One job by ``user~name``, or by the bare name of one from before jobs had owners."""
        path = self._path(self.dialect.job, job=key)
        return self._job(self._object("GET", path, auth=self._guarded, limit=bodies.JOB), key)

    def job_attempt(self, key: str, attempt: int) -> JobInfo:
        """The job as it was in one of its tries, from 0; servers before 1.3 don't tell."""
        path = self._path(self.dialect.attempt, "tries of jobs", job=key, attempt=attempt)
        return self._job(self._object("GET", path, limit=bodies.JOB), key)

    def _job(self, body: dict[str, Any], key: str) -> JobInfo:
        if not isinstance(body.get("jobStatus"), dict):
            raise ApiError(f"{self._where()} does not answer with a job for {key!r}: is it OpenPAI?")
        return job_from_detail(body, key)

    def job_config(self, key: str) -> str:
        """The document as the server tells it: YAML, or JSON whatever its content type says."""
        path = self._path(self.dialect.config, job=key)
        return self._call("GET", path, auth=self._guarded, limit=bodies.DOCUMENT).text

    def job_document(self, key: str) -> Any:
        """The document a job was submitted as, of version 1 or 2; the server has masked its secrets."""
        text = self.job_config(key)
        try:
            return parse(text)
        except ValueError:
            return reader.read(text).value

    def job_events(self, key: str) -> tuple[EventInfo, ...]:
        path = self._path(self.dialect.events, "events of jobs", job=key)
        body = self._object("GET", path, limit=bodies.JOB)
        return tuple(map(event_from_body, fields.rows(body.get("data"))))

    def job_ssh(self, key: str) -> tuple[SshInfo, ...]:
        """Where the job's containers take ssh; newer servers tell it by the tasks' ports."""
        if self.dialect.ssh:
            path, known = self._path(self.dialect.ssh, job=key), bool(self._credentials)
            return ssh_from_body(self._object("GET", path, auth=self._guarded or known, limit=bodies.JOB))
        return tuple(task.ssh for task in self.job(key).tasks if task.ssh)

    def ssh_key(self, url: str) -> str:
        """The private key behind the link that ``job_ssh`` told. No token is sent."""
        response = self._send("GET", self._absolute(url), abroad=True)
        self._check(response)
        return response.text

    @property
    def submit_url(self) -> str:
        return self.cluster.rest + routes.JOBS

    @property
    def v1_submit_url(self) -> str:
        return self.cluster.rest + self._path(self.dialect.v1_jobs, V1_JOBS, user=self.user)

    @property
    def takes_v1(self) -> bool:
        """Whether a document of version 1 can be handed in as it is; elsewhere it has to be converted."""
        return bool(self.dialect.v1_jobs)

    def create_job(self, text: str) -> None:
        """Hand in a v2 document; it is sent as it is."""
        self._call("POST", routes.JOBS, data=text.encode(), headers={"Content-Type": "text/yaml"})

    def create_job_v1(self, document: dict[str, Any]) -> None:
        """Hand in a document of version 1, where that is taken."""
        path = self._path(self.dialect.v1_jobs, V1_JOBS, user=self.user)
        self._call("POST", path, json=document)

    def set_execution(self, key: str, value: str) -> None:
        self._call("PUT", self._path(self.dialect.execution, job=key), json={"value": value})

    def add_tag(self, key: str, tag: str) -> None:
        self._call("PUT", self._path(self.dialect.tag, "tags of jobs", job=key), json={"value": tag})

    def log_locations(
        self, key: str, attempt: int, role: str, index: int, retry: int, policies: Policies | None = None
    ) -> dict[str, str]:
        """Names of a task's logs and the (short-lived) addresses of their text."""
        where: dict[str, str | int] = {"job": key, "attempt": attempt, "role": role, "index": index}
        path = self._path(self.dialect.task_logs, "endpoint for logs", task_attempt=retry, **where)
        rows = fields.rows(self._object("GET", path, policies=policies).get("locations"))
        found = {fields.text(log.get("name")): fields.text(log.get("uri")) for log in rows}
        return {name: uri for name, uri in found.items() if name and uri}

    def read_log(self, uri: str, offset: int = 0, policies: Policies | None = None) -> Iterator[bytes]:
        """A log's bytes from ``offset`` on, in pieces; nothing if it has not grown. No token is sent."""
        url = self._log_url(uri)
        if log_addresses.is_page(url):
            yield from filter(None, [self._log_page(log_addresses.page(url, offset), policies)])
            return
        headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
        exchange = self._exchange()
        sent = self._send("GET", url, policies=policies, headers=headers, stream=exchange, abroad=True)
        with sent as response:
            if response.status_code == 416:
                return
            self._check(response)
            skip = 0 if response.status_code == 206 else offset
            for chunk in self._pieces(response, exchange):
                yield from filter(None, [chunk[skip:]])
                skip = max(0, skip - len(chunk))

    def _log_url(self, uri: str) -> str:
        """Its address; without the reverse proxy, which routes the logs of all nodes, the node's own."""
        is_plain = self.cluster.uri.startswith("http://")
        direct = log_addresses.on_node(uri) if is_plain and not self.cluster.prefix else ""
        return direct or self._absolute(uri)

    def _log_page(self, url: str, policies: Policies | None) -> bytes:
        response = self._send("GET", url, abroad=True, limit=bodies.LOG_PAGE, policies=policies)
        self._check(response)
        return log_addresses.text_of_page(response.content.decode("utf-8", "replace"))

    def _absolute(self, address: str) -> str:
        """An address that the server tells, from its root or whole."""
        try:
            return urljoin(self.cluster.uri + "/", address)
        except ValueError as err:
            shown = mask_keys(address)[:80]
            raise ApiError(f"{self._where()} tells an invalid address: {shown!r}") from err

    @property
    def _guarded(self) -> bool:
        return self.dialect.reads_need_token

    def _path(self, path: str, what: str = "", **values: str | int) -> str:
        """The path filled in; "" stands for what the server's generation does not have."""
        if not path:
            words = f"{self._where()} has no {what}: it is OpenPAI {self.dialect.generation}"
            raise NotFound(words, 404, "NoApiError")
        return path.format(
            **{name: quote(str(value), safe="~", errors="replace") for name, value in values.items()}
        )
