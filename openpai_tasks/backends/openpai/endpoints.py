"""The client of OpenPAI's REST API."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from openpai_tasks.backends import listing
from openpai_tasks.backends.base import (
    Capabilities,
    ClusterDescription,
    ClusterNode,
    ClusterStorage,
    Document,
    ExitMeaning,
    JobFilter,
    RemovedJob,
    RemovedOrphan,
    VirtualCluster,
    require,
)
from openpai_tasks.backends.http import bodies
from openpai_tasks.backends.openpai.cluster_bodies import (
    HDFS,
    node_from_body,
    removed_job_from_body,
    removed_orphan_from_body,
    storage_from_body,
    virtual_cluster_from_body,
)
from openpai_tasks.backends.openpai.dialects import YARN_EXITS
from openpai_tasks.backends.openpai.log_endpoints import LogEndpoints
from openpai_tasks.errors import ApiError, Denied, NotFound
from openpai_tasks.protocol import fields, routes
from openpai_tasks.protocol.environment import HEADER, encode
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import (
    EventInfo,
    JobInfo,
    SshInfo,
    event_from_body,
    job_from_detail,
    job_from_summary,
    notices_from_body,
    ssh_from_body,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

JOB_PAGE = "/job-detail.html"
PAGE = 5000  # jobs per request; servers return up to 50000
MOST_PAGES = 200


class Client(LogEndpoints):
    """A connection to an OpenPAI cluster as one user: one method per endpoint, no policy."""

    health = routes.HEALTH

    # The cluster

    @property
    def product(self) -> str:
        return f"OpenPAI {self.dialect.generation}"

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.dialect.capabilities, job_removal=self.cluster.is_embedded)

    def describe(self) -> ClusterDescription:
        """Describe the cluster; an embedded one has an engine next to its ``launcherType``."""
        keys = ("version", "engine", "launcherType", "authnMethod")
        version, engine, launcher, login = (str(self.cluster.info.get(key) or "") for key in keys)
        return ClusterDescription(version, engine or launcher, login)

    def virtual_clusters(self) -> dict[str, VirtualCluster]:
        found = self._object("GET", self.dialect.virtual_clusters, auth=self._guarded, limit=bodies.DOCUMENT)
        return {name: virtual_cluster_from_body(fields.mapping(body)) for name, body in found.items()}

    def nodes(self) -> tuple[ClusterNode, ...]:
        if not self.dialect.nodes:
            return ()
        try:
            found = self._object("GET", self.dialect.nodes, limit=bodies.JOB_LIST)
        except (Denied, NotFound):  # only administrators may see them
            return ()
        return tuple(map(node_from_body, fields.rows(found.get("items"))))

    def storages(self, default: bool = False) -> tuple[ClusterStorage, ...]:
        if not self.dialect.storages:
            return (HDFS,)
        marks = self.dialect.marks_default
        rows = self.storage_rows(default)
        return tuple(storage_from_body(row, fields.text(row["name"]), marks) for row in rows)

    def storage_rows(self, default: bool = False) -> list[dict[str, Any]]:
        """Return the server's list of storages, except those without a name."""
        query = {"default": "true"} if default else {}
        rows = fields.rows(self._object("GET", self.dialect.storages, query=query).get("storages"))
        return [row for row in rows if fields.text(row.get("name"))]

    def storage(self, name: str) -> ClusterStorage:
        if self.dialect.storage:
            return storage_from_body(
                self._object("GET", self._path(self.dialect.storage, storage=name)), name
            )
        if name != HDFS.name:
            raise NotFound(f"{self._where()} has no storage {name!r}, only {HDFS.name!r}", 404)
        return HDFS

    # The user

    def authenticate(self) -> str:
        self.user_info(self.user)
        return self.token()

    def user_info(self, name: str) -> dict[str, Any]:
        return self._object("GET", self._path(routes.USER_V1, user=name))

    # Jobs

    def jobs(self, **query: Unpack[JobFilter]) -> list[JobInfo]:
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        if self.dialect.selects:
            return self._pages(asked)
        user = str(asked.get("username", ""))
        known = {"username": user} if user and "," not in user else {}
        _, rows = self._page(known)
        return listing.select(map(job_from_summary, rows), asked)

    def count_jobs(self, *states: str) -> dict[str, int]:
        if self.dialect.selects:
            query = {"limit": 1, "withTotalCount": "true"}
            totals = {state: self._page({"state": state, **query})[0] for state in states}
            if None not in totals.values():
                return {state: total or 0 for state, total in totals.items()}
        found = Counter(job.state for job in self.jobs())
        return {state: found[state] for state in states}

    def clean_jobs(self, keep: str, preview: bool) -> list[RemovedJob]:
        require(self, "job_removal")
        body = {"keep": keep, "preview": preview}
        answer = self._object("POST", routes.CLEAN_JOBS, json=body, limit=bodies.JOB_LIST)
        return [removed_job_from_body(row) for row in fields.rows(answer.get("jobs"))]

    def clean_orphans(self, preview: bool) -> list[RemovedOrphan]:
        require(self, "job_removal")
        answer = self._object("POST", routes.CLEAN_ORPHANS, json={"preview": preview}, limit=bodies.JOB_LIST)
        return [removed_orphan_from_body(row) for row in fields.rows(answer.get("orphans"))]

    def _pages(self, query: dict[str, Any]) -> list[JobInfo]:
        """List page by page; a job that moves to the next page meanwhile is listed once."""
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
            raise ApiError(f"{self._where()} returns an endless list of jobs; limit it with --limit")
        return list(found.values())[: None if limit is None else int(limit)]

    def _page(self, query: dict[str, Any]) -> tuple[int | None, list[dict[str, Any]]]:
        """Return the total number of jobs, if the server reports it, and the rows of one page."""
        wanted = query.get("limit")
        limit = bodies.JOB_LIST if wanted is None else bodies.USUAL + wanted * bodies.JOB_ROW
        body = self._json("GET", self.dialect.jobs, query=query, auth=self._guarded, limit=limit)
        total, rows = (body.get("totalCount"), body.get("data")) if isinstance(body, dict) else (None, body)
        if not isinstance(rows, list):
            raise ApiError(f"{self._where()} does not answer {self.dialect.jobs} with a list: is it OpenPAI?")
        return fields.whole(total), [row for row in fields.rows(rows) if fields.text(row.get("name"))]

    def job(self, key: str) -> JobInfo:
        path = self._path(self.dialect.job, job=key)
        return self._job(self._object("GET", path, auth=self._guarded, limit=bodies.JOB), key)

    def job_attempt(self, key: str, attempt: int) -> JobInfo:
        require(self, "attempts")
        path = self._path(self.dialect.attempt, job=key, attempt=attempt)
        return self._job(self._object("GET", path, limit=bodies.JOB), key)

    def _job(self, body: dict[str, Any], key: str) -> JobInfo:
        if not isinstance(body.get("jobStatus"), dict):
            raise ApiError(f"{self._where()} does not answer with a job for {key!r}: is it OpenPAI?")
        return job_from_detail(body, key)

    def job_config(self, key: str) -> str:
        """Return the document as the server sends it: YAML or JSON, whatever its content type says."""
        path = self._path(f"{self.dialect.job}/config", job=key)
        return self._call("GET", path, auth=self._guarded, limit=bodies.DOCUMENT).text

    def job_document(self, key: str) -> Any:
        text = self.job_config(key)
        try:
            return parse(text)
        except ValueError:
            from openpai_tasks.protocol.yaml import reader

            return reader.read(text).value

    def job_events(self, key: str) -> tuple[EventInfo, ...]:
        require(self, "events")
        body = self._object("GET", self._path(self.dialect.events, job=key), limit=bodies.JOB)
        return tuple(map(event_from_body, fields.rows(body.get("data"))))

    def job_page(self, job: JobInfo) -> str:
        return f"{self.cluster.uri}{JOB_PAGE}?{urlencode({'username': job.user, 'jobName': job.name})}"

    def explain_exit(self, code: int) -> ExitMeaning | None:
        known = self.dialect.has_yarn and code in YARN_EXITS
        return ExitMeaning(*YARN_EXITS[code]) if known else None

    def submit_url(self, document: Document) -> str:
        return self.cluster.rest + self._submit_path(document)

    def check_document(self, document: Document) -> None:
        self._submit_path(document)

    def submit(self, document: Document, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
        path = self._submit_path(document)
        headers = {HEADER: encode(environment)} if environment else {}
        if isinstance(document, str):
            headers["Content-Type"] = "text/yaml"
            answer = self._call("POST", path, data=document.encode(), headers=headers)
        else:
            answer = self._call("POST", path, json=document, headers=headers)
        with contextlib.suppress(ValueError):  # other servers have no notices, and may send any text
            return notices_from_body(parse(answer.body))
        return ()

    def _submit_path(self, document: Document) -> str:
        if isinstance(document, str):
            return routes.JOBS
        require(self, "v1_documents")
        return self._path(self.dialect.v1_jobs, user=self.user)

    def stop_job(self, key: str) -> None:
        path = self._path(f"{self.dialect.job}/executionType", job=key)
        self._call("PUT", path, json={"value": "STOP"})

    def add_tag(self, key: str, tag: str) -> None:
        require(self, "tags")
        self._call("PUT", self._path(self.dialect.tag, job=key), json={"value": tag})

    # Containers

    def ssh_endpoints(self, job: JobInfo) -> dict[str, SshInfo]:
        if not self.dialect.ssh:
            return {task.label: task.ssh for task in job.tasks if task.ssh}
        try:
            found = {info.container: info for info in self._ssh_infos(job.key)}
        except NotFound:  # no container has started yet
            return {}
        return {task.label: found[task.container] for task in job.tasks if task.container in found}

    def job_private_key(self, job: JobInfo) -> str:
        require(self, "job_keys")
        urls = [one.key_url for one in self._ssh_infos(job.key) if one.key_url]
        if not urls:
            raise NotFound(f"{self._where()} has no key for job {job.name!r}", 404)
        return self.ssh_key(urls[0])

    def ssh_key(self, url: str) -> str:
        """Return the private key at a URL, without sending a token."""
        response = self._send("GET", self._absolute(url), any_host=True)
        self._check(response)
        return response.text

    def _ssh_infos(self, key: str) -> tuple[SshInfo, ...]:
        path, known = self._path(self.dialect.ssh, job=key), bool(self._credentials)
        return ssh_from_body(self._object("GET", path, auth=self._guarded or known, limit=bodies.JOB))

    @property
    def _guarded(self) -> bool:
        return self.dialect.reads_need_token
