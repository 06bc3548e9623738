"""The client of OpenPAI's REST API, and the logs of tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urljoin

from openpai_tasks import hooks as job_hooks
from openpai_tasks import protocol
from openpai_tasks.backends import listing
from openpai_tasks.backends.base import (
    Amount,
    Capabilities,
    Capacity,
    ClusterDescription,
    ClusterNode,
    ClusterSample,
    ClusterStorage,
    Document,
    ExitMeaning,
    GpuSample,
    JobFilter,
    RemovedJob,
    RemovedOrphan,
    TaskLog,
    TaskUsage,
    UsageLevel,
    UsageReport,
    UsageRow,
    UsageSample,
    VirtualCluster,
    require,
)
from openpai_tasks.backends.http import bodies, logins
from openpai_tasks.backends.http.ahead import can_run_ahead
from openpai_tasks.backends.http.connection import ServerConnection
from openpai_tasks.backends.http.facts import Facts
from openpai_tasks.backends.http.retries import UNPAUSED, Policies
from openpai_tasks.backends.openpai.dialects import YARN_EXITS, ApiDialect, dialect_of
from openpai_tasks.errors import ApiError, Denied, NotFound
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.protocol import fields, routes
from openpai_tasks.protocol.document.policy import PRIORITY
from openpai_tasks.protocol.environment import HEADER, encode
from openpai_tasks.protocol.json_text import parse, parse_object
from openpai_tasks.protocol.models import (
    EventInfo,
    JobInfo,
    SshInfo,
    TaskInfo,
    event_from_body,
    job_from_detail,
    job_from_summary,
    keeps_hooks,
    notices_from_body,
    ssh_from_body,
)
from openpai_tasks.protocol.quantities import parse_quantity
from openpai_tasks.protocol.states import FINAL

if TYPE_CHECKING:
    from typing_extensions import Unpack

Answer = TypeVar("Answer")

RESOURCES = {"gpu": ("GPUs", "gpu"), "cpu": ("vCores", "cpu"), "memoryMB": ("memory",)}
"""Resource names in job documents, and their names in the answers of the server generations."""
HDFS = ClusterStorage("hdfs", "hdfs", default=True)
"""The storage of clusters whose API has no storages: HDFS behind the cluster's own address."""
PUBLIC = {"server", "path"}
"""The details of an NFS server; those of other storages may be secret."""
JOB_PAGE = "/job-detail.html"
UNKNOWN_HOOKS = ("the server is older than this client and keeps no hooks: nobody is notified of the job",)
PAGE = 5000  # jobs per request; servers return up to 50000
MOST_PAGES = 200
STREAMS = ("stdout", "stderr", "all")
_LOG_MANAGER = re.compile(r"(/log-manager(?:/[^/]+:[0-9]+)?)/tail/")
_ON_NODE = re.compile(r"/log-manager/((?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})(/.*)", re.DOTALL)
_PAGES = "/containerlogs/"
_BEGINS = re.compile(r"<pre[^<>]*>", re.IGNORECASE)
_ENDS = ("</pre>", "</PRE>")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,17})-[0-9]{1,17}/([0-9]{1,17})")
_GPU = re.compile(r"gpu([0-9]{1,3})(?:\.mb)?")
_CUT = "�"  # replaces a character whose last bytes have not been written yet


OWN = (
    *("job_removal", "usage_history", "dependencies", "queue_moves", "requeues", "exact_requeues"),
    *("idle_gpus", "kept_failures", "hooks"),
)
"""What our own server adds to OpenPAI; with the API of a generation, it shows little of it."""


class Client(ServerConnection):
    """A connection to an OpenPAI cluster as one user: one method per endpoint, no policy."""

    label = "OpenPAI"
    health = routes.HEALTH

    @property
    def login_pauses(self) -> tuple[float, ...]:
        return logins.NO_PAUSES if self.polls_cheaply else logins.PAUSES

    @functools.cached_property
    def dialect(self) -> ApiDialect:
        """The rules of the cluster's generation; if it is unknown, ask the cluster once."""
        if not self.cluster.generation and self._learn:
            self.cluster = self._learn(self.cluster)
        return dialect_of(self.cluster.generation)

    def _base(self) -> str:
        _ = self.dialect  # learning about an unknown cluster may change its base URL
        return super()._base()

    def _log_in(self, user: str, password: str) -> dict[str, Any]:
        return self._object(
            "POST", routes.LOGIN_V1, auth=False, data={"username": user, "password": password}
        )

    # The cluster

    @property
    def product(self) -> str:
        return f"OpenPAI {self.dialect.generation}"

    @property
    def capabilities(self) -> Capabilities:
        hooks = self._is_ours and self.cluster.is_own  # hooks have secrets of the user
        able = dict.fromkeys(OWN, True) if self.cluster.is_embedded else {"hooks": hooks}
        return dataclasses.replace(self.dialect.capabilities, **able)

    @property
    def _is_ours(self) -> bool:
        """Whether the server is our embedded cluster, on this machine or another one."""
        return self.cluster.is_embedded or bool(self.cluster.info.get("engine"))

    def describe(self) -> ClusterDescription:
        """Describe the cluster; an embedded one has an engine next to its ``launcherType``."""
        keys = ("version", "engine", "launcherType", "authnMethod")
        version, engine, launcher, login = (str(self.cluster.info.get(key) or "") for key in keys)
        return ClusterDescription(version, engine or launcher, login)

    def virtual_clusters(self) -> dict[str, VirtualCluster]:
        found = self._object("GET", self.dialect.virtual_clusters, auth=self._guarded, limit=bodies.DOCUMENT)
        return {name: virtual_cluster_from_body(fields.mapping(body)) for name, body in found.items()}

    def gpu_type_names(self, virtual_cluster: str) -> tuple[str, ...]:
        if not self.dialect.sku_types:
            return ()
        if virtual_cluster not in self._gpu_type_names:
            query = {"vc": virtual_cluster}
            try:
                found = self._object("GET", self.dialect.sku_types, query=query, limit=bodies.DOCUMENT)
            except ApiError:  # also if the scheduler has no types
                found = {}
            names = [name for name, sku in found.items() if fields.number(fields.mapping(sku).get("gpu"))]
            self._gpu_type_names[virtual_cluster] = tuple(names)
        return self._gpu_type_names[virtual_cluster]

    @functools.cached_property
    def _gpu_type_names(self) -> dict[str, tuple[str, ...]]:
        """By virtual cluster, as far as the cluster was asked."""
        return {}

    def cluster_usage(self, seconds: int, points: int) -> tuple[ClusterSample, ...]:
        require(self, "usage_history")
        query = {"seconds": seconds, "points": points}
        body = self._object("GET", routes.CLUSTER_USAGE, query=query)
        return tuple(filter(None, map(cluster_sample_from_body, fields.rows(body.get("rows")))))

    def usage_report(self, by: str, seconds: int, user: str, points: int) -> UsageReport:
        require(self, "usage_history")
        query: dict[str, str | int] = {"by": by, "seconds": seconds}
        query |= ({"username": user} if user else {}) | ({"points": points} if points else {})
        body = self._object("GET", routes.USAGE_REPORT, query=query, limit=bodies.JOB_LIST)
        until = fields.moment(body.get("until")) or 0
        found = fields.rows(body.get("rows"))
        gpu, cpu = ({fields.text(row.get("name")): _series(row, at) for row in found} for at in (0, 1))
        return UsageReport(
            *(by, until - 1000 * seconds, until, fields.text(body.get("user"))),
            *(tuple(map(usage_row_from_body, found)), gpu, cpu, fields.moment(body.get("removed"))),
        )

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
        name = "default storages" if default else "storages"
        return self._known_storages(name, lambda: self._ask_storages(default))

    def _ask_storages(self, default: bool) -> tuple[ClusterStorage, ...]:
        marks = self.dialect.marks_default
        rows = self.storage_rows(default)
        return tuple(storage_from_body(row, fields.text(row["name"]), marks) for row in rows)

    def _known_storages(
        self, name: str, ask: Callable[[], tuple[ClusterStorage, ...]]
    ) -> tuple[ClusterStorage, ...]:
        """Return storages as they were a few minutes ago, or ask; those with account keys are not kept."""
        if self.polls_cheaply:
            return ask()
        try:
            return tuple(ClusterStorage(**row) for row in self._facts.get(name))
        except TypeError:  # unknown, or kept by another version
            found = ask()
            if all(one.data.keys() <= PUBLIC for one in found):
                self._facts.keep(name, [vars(one) for one in found])
            return found

    @functools.cached_property
    def _facts(self) -> Facts:
        return Facts(self.cluster)

    def forget_facts(self) -> bool:
        return self._facts.forget()

    def storage_rows(self, default: bool = False) -> list[dict[str, Any]]:
        """Return the server's list of storages, except those without a name."""
        query = {"default": "true"} if default else {}
        rows = fields.rows(self._object("GET", self.dialect.storages, query=query).get("storages"))
        return [row for row in rows if fields.text(row.get("name"))]

    def storage(self, name: str) -> ClusterStorage:
        if self.dialect.storage:
            path = self._path(self.dialect.storage, storage=name)
            (found,) = self._known_storages(
                f"storage {name}", lambda: (storage_from_body(self._object("GET", path), name),)
            )
            return found
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

    @can_run_ahead
    def jobs(self, **query: Unpack[JobFilter]) -> list[JobInfo]:
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        if self.dialect.selects:
            return self._pages(asked)
        user = str(asked.get("username", ""))
        known = {"username": user} if user and "," not in user else {}
        _, rows = self._page(known)
        return listing.select(map(job_from_summary, rows), asked)

    def count_jobs(self, *states: str, **query: Unpack[JobFilter]) -> dict[str, int]:
        if self.dialect.selects:
            asked = {name: value for name, value in query.items() if value not in (None, "")}
            asked |= {"limit": 1, "withTotalCount": "true"}
            totals = {state: self._page({**asked, "state": state})[0] for state in states}
            if None not in totals.values():
                return {state: total or 0 for state, total in totals.items()}
        found = Counter(job.state for job in self.jobs(**query))
        return {state: found[state] for state in states}

    def job_list_version(self, **query: Unpack[JobFilter]) -> str:
        """Return how many jobs there are, and the newest: ended jobs do not change."""
        if not self.dialect.selects:
            return ""
        asked = {**query, "limit": 1, "withTotalCount": "true"}
        total, newest = self._page(asked)
        ended, _ = self._page({**asked, "state": ",".join(sorted(FINAL))})
        if ended is None or ended != total or not newest:
            return ""
        job = job_from_summary(newest[0])
        return f"{total} {job.key} {job.submitted}"

    def clean_jobs(self, keep: str, preview: bool) -> list[RemovedJob]:
        require(self, "job_removal")
        body = {"keep": keep, "preview": preview}
        answer = self._object("POST", routes.CLEAN_JOBS, json=body, limit=bodies.JOB_LIST)
        return [
            RemovedJob(
                fields.text(row.get("name")),
                fields.moment(row.get("completedTime")),
                fields.whole(row.get("bytes")) or 0,
            )
            for row in fields.rows(answer.get("jobs"))
        ]

    def clean_orphans(self, preview: bool) -> list[RemovedOrphan]:
        require(self, "job_removal")
        answer = self._object("POST", routes.CLEAN_ORPHANS, json={"preview": preview}, limit=bodies.JOB_LIST)
        return [
            RemovedOrphan(*(fields.text(row.get(key)) for key in ("name", "job", "home")))
            for row in fields.rows(answer.get("orphans"))
        ]

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

    @can_run_ahead
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

    @can_run_ahead
    def job_document(self, key: str) -> Any:
        text = self.job_config(key)
        try:
            return parse(text)
        except ValueError:
            from openpai_tasks.protocol.yaml import reader

            return reader.read(text).value

    @can_run_ahead
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

    def submit(
        self, document: Document, environment: Mapping[str, str] | None = None, hooks: str = ""
    ) -> tuple[str, ...]:
        path, ignored = self._submit_path(document), self._priority_notices(document)
        headers = {HEADER: encode(environment)} if environment else {}
        headers |= {job_hooks.HEADER: hooks} if hooks else {}
        if isinstance(document, str):
            headers["Content-Type"] = "text/yaml"
            answer = self._call("POST", path, data=document.encode(), headers=headers)
        else:
            answer = self._call("POST", path, json=document, headers=headers)
        with contextlib.suppress(ValueError):  # other servers have no notices, and may send any text
            body = parse(answer.body)
            found = notices_from_body(body) or ignored
            return (*found, *(UNKNOWN_HOOKS if hooks and not keeps_hooks(body) else ()))
        return ignored

    def _priority_notices(self, document: Document) -> tuple[str, ...]:
        """Warn of a priority on a cluster that has no types of GPUs, and so not OpenPAI's HiveD scheduler."""
        if self._is_ours or not isinstance(document, str) or PRIORITY not in document:
            return ()
        asked = protocol.validate(document)
        if not asked.priority or self.gpu_type_names(asked.virtual_cluster):
            return ()
        return ("the priority probably has no effect: only the HiveD scheduler of OpenPAI has priorities",)

    def _submit_path(self, document: Document) -> str:
        if isinstance(document, str):
            return routes.JOBS
        require(self, "v1_documents")
        return self._path(self.dialect.v1_jobs, user=self.user)

    def stop_job(self, key: str) -> None:
        path = self._path(f"{self.dialect.job}/executionType", job=key)
        self._call("PUT", path, json={"value": "STOP"})

    def move_first(self, key: str) -> None:
        require(self, "queue_moves")
        self._call("PUT", self._path(routes.JOB_PLACE, job=key), json={"value": "first"})

    def add_tag(self, key: str, tag: str) -> None:
        require(self, "tags")
        self._call("PUT", self._path(self.dialect.tag, job=key), json={"value": tag})

    # Logs

    def open_log(self, job: JobInfo, task: TaskInfo, stream: str, retries: bool = True) -> TaskLog:
        return LogReader(self, job, task, stream, None if retries else UNPAUSED)

    @can_run_ahead
    def log_locations(
        self, key: str, attempt: int, role: str, index: int, retry: int, policies: Policies | None = None
    ) -> dict[str, str]:
        """Return the addresses of a task's logs by name; the addresses are short-lived."""
        where: dict[str, str | int] = {"job": key, "attempt": attempt, "role": role, "index": index}
        if not self.dialect.task_logs:
            raise NotFound(f"{self._where()} gives no address for the output of {role}-{index}", 404)
        path = self._path(self.dialect.task_logs, task_attempt=retry, **where)
        rows = fields.rows(self._object("GET", path, policies=policies).get("locations"))
        found = {fields.text(log.get("name")): fields.text(log.get("uri")) for log in rows}
        return {name: uri for name, uri in found.items() if name and uri}

    def read_log(
        self, uri: str, offset: int = 0, policies: Policies | None = None, stop: int | None = None
    ) -> Iterator[bytes]:
        """Yield the bytes of a log from ``offset`` on, or nothing if it has not grown; no token is sent."""
        url = self._log_url(uri)
        if is_page(url):
            yield from filter(None, [self._log_page(f"{url}?start={offset}", policies)])
            return
        last = "" if stop is None else stop - 1
        with self._send_range(url, f"{offset}-{last}", policies) as response:
            if response.status_code == 416:
                return
            self._check(response)
            skip = 0 if response.status_code == 206 else offset
            for chunk in self._pieces(response):
                yield from filter(None, [chunk[skip:]])
                skip = max(0, skip - len(chunk))

    def log_size(self, uri: str, policies: Policies | None = None) -> int | None:
        """Return the size of a log; None if the server does not serve parts of it."""
        url = self._log_url(uri)
        if is_page(url):
            return None
        with self._send_range(url, "0-0", policies) as response:
            if response.status_code != 416:
                self._check(response)
            if response.status_code == 206:
                b"".join(self._pieces(response))  # the connection can be used again
            size = response.headers.get("content-range", "").rpartition("/")[2]
        return int(size) if size.isascii() and size.isdecimal() and len(size) < 18 else None

    def read_log_end(
        self, uri: str, length: int, policies: Policies | None = None
    ) -> tuple[int, bytes] | None:
        """Return the last bytes of a log and where they begin; None if the server does not serve them so."""
        url = self._log_url(uri)
        if is_page(url):
            return None
        with self._send_range(url, f"-{length}", policies) as response:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
            if response.status_code == 206 and found:
                start, data = int(found[1]), bytearray()
                for piece in self._pieces(response):
                    data += piece
                    if len(data) > length:
                        break
                return (start, bytes(data)) if start + len(data) == int(found[2]) else None
            if response.headers.get("content-range") == "bytes */0":
                return 0, b""
            if response.status_code not in (200, 206, 400, 416, 500, 501):
                self._check(response)
        return None

    def _send_range(self, url: str, span: str, policies: Policies | None) -> HttpAnswer:
        headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
        return self._send("GET", url, policies=policies, headers=headers, stream=True, any_host=True)

    def _log_url(self, uri: str) -> str:
        """Return the URL of a log: behind the reverse proxy, or on its node if there is no proxy."""
        is_plain = self.cluster.uri.startswith("http://")
        direct = on_node(uri) if is_plain and not self.cluster.prefix else ""
        return direct or self._absolute(uri)

    def _log_page(self, url: str, policies: Policies | None) -> bytes:
        """Return the log in a page; without ``start`` in its URL, a page shows only the last 4 KB."""
        response = self._send("GET", url, any_host=True, limit=bodies.LOG_PAGE, policies=policies)
        self._check(response)
        return text_of_page(response.body.decode("utf-8", "replace"))

    def printed_results(self, jobs: Sequence[JobInfo]) -> dict[str, dict[str, Any]]:
        if not self._is_ours:
            return {}
        ended = {job.key: job.completed for job in jobs}
        try:
            body = self._object(
                "POST", routes.PRINTED_RESULTS, json={"jobs": list(ended)}, limit=bodies.JOB_LIST
            )
        except NotFound:  # the server emulates one version of OpenPAI, or is older than this client
            return {}
        rows = [(fields.text(row.get("name")), row) for row in fields.rows(body.get("jobs"))]
        return {
            key: parse_object(fields.text(row.get("line")).encode()) or {}
            for key, row in rows
            if key in ended and fields.moment(row.get("completedTime")) == ended[key]
        }

    def task_usage(self, job: JobInfo, task: TaskInfo, points: int) -> TaskUsage:
        require(self, "usage_history")
        where: dict[str, str | int] = {"job": job.key, "attempt": job.attempt, "role": task.role}
        path = self._path(routes.TASK_USAGE, index=task.index, task_attempt=task.attempt, **where)
        try:
            body = self._object("GET", path, query={"points": points}, limit=bodies.DOCUMENT)
        except NotFound:  # the server emulates one version of OpenPAI, or is older than this client
            return TaskUsage(task.role, task.index, unrecorded="this server does not sample what tasks use")
        samples = filter(None, map(usage_sample_from_body, fields.rows(body.get("rows"))))
        return TaskUsage(task.role, task.index, tuple(samples), fields.text(body.get("unrecorded")))

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

    def _absolute(self, address: str) -> str:
        """Return the full URL of an address in an answer, which may be relative to the server's root."""
        try:
            return urljoin(self._root + "/", address)
        except ValueError as err:
            shown = mask_keys(address)[:80]
            raise ApiError(f"{self._where()} gives an invalid address: {shown!r}") from err

    def _path(self, path: str, **values: str | int) -> str:
        """Fill the values into a path of the API."""
        return path.format(
            **{name: quote(str(value), safe="~", errors="replace") for name, value in values.items()}
        )


# Logs of tasks


class LogReader:
    """A ``TaskLog`` of OpenPAI, which has one address for each stream."""

    def __init__(
        self, calls: Client, job: JobInfo, task: TaskInfo, stream: str, policies: Policies | None = None
    ) -> None:
        self._calls, self._stream, self._policies = calls, stream, policies
        self._where = (job.key, job.attempt, task.role, task.index, task.attempt)
        self._known = addresses(task.log)  # these servers need not be asked
        self._uris: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        self.is_absent = False

    def read(self) -> Iterator[bytes]:
        self._uris = self._uris or self._find()
        try:
            yield from self._grown()
        except ApiError:
            if self._known:
                raise
            self._uris = self._find()  # addresses expire after two minutes
            yield from self._grown()

    def rewind(self) -> None:
        self._offsets.clear()

    def size(self) -> int | None:
        def measure(uri: str) -> int | None:
            return self._calls.log_size(uri, self._policies)

        return self._ask(measure, None)

    def read_range(self, start: int, stop: int) -> bytes:
        def read(uri: str) -> bytes:
            return b"".join(self._calls.read_log(uri, start, self._policies, stop))

        return self._ask(read, b"")

    def read_end(self, length: int) -> tuple[int, bytes] | None:
        def read(uri: str) -> tuple[int, bytes] | None:
            return self._calls.read_log_end(uri, length, self._policies)

        return self._ask(read, None)

    def seek(self, offset: int) -> None:
        self._offsets = dict.fromkeys(self._uris, offset)

    def _ask(self, ask: Callable[[str], Answer], default: Answer) -> Answer:
        """Ask for the only file; the default if there is none, or one for each stream, or it was rotated."""
        self._uris = self._uris or self._find()
        try:
            return ask(*self._uris.values()) if len(self._uris) == 1 else default
        except NotFound:
            if self._known:
                return default
        except ApiError:
            if self._known:
                raise
        self._uris = self._find()  # addresses expire after two minutes
        return ask(*self._uris.values()) if len(self._uris) == 1 else default

    def _grown(self) -> Iterator[bytes]:
        for name, uri in self._uris.items():
            with contextlib.suppress(*[NotFound] if self._known else []):  # the file has not been written yet
                for data in self._calls.read_log(uri, self._offsets.get(name, 0), self._policies):
                    self._offsets[name] = self._offsets.get(name, 0) + len(data)
                    yield data

    def _find(self) -> dict[str, str]:
        """Return the addresses of the logs that make up the stream; empty while there is no log."""
        try:
            policies = (self._policies,) if self._policies else ()
            found = self._known or self._calls.log_locations(*self._where, *policies)
        except NotFound:
            self.is_absent = True
            return {}
        self.is_absent = False
        one_by_one = self._stream == "all" and "all" not in found
        streams = ["stdout", "stderr"] if one_by_one else [self._stream]
        names = [name for stream in streams for name in (f"{stream}.1", stream) if name in found]
        for name in names:
            # The log was rotated: the bytes read before are in this file now.
            if name.endswith(".1") and name not in self._offsets:
                self._offsets[name] = self._offsets.pop(name.removesuffix(".1"), 0)
        return {name: found[name] for name in names}


def addresses(container_log: str) -> dict[str, str]:
    """Return the addresses of the complete logs by name; none if the server has to be asked for them.

    OpenPAI 0.18 has a log manager, which serves the end of a log under ``tail`` and all of it under ``full``.
    OpenPAI 0.14 has a page of YARN's NodeManager for each log, and no page for both streams together.
    """
    folder = container_log.rstrip("/")
    if _LOG_MANAGER.search(container_log):
        whole = _LOG_MANAGER.sub(r"\1/full/", folder, count=1)
        return {name: f"{whole}/user.pai.{name}" for name in STREAMS}
    if is_page(container_log):
        return {name: f"{folder}/user.pai.{name}/" for name in STREAMS if name != "all"}
    return {}


def on_node(uri: str) -> str:
    """Return the address of a log on its node for an address behind the reverse proxy, or ""."""
    found = _ON_NODE.fullmatch(uri)
    return f"http://{found[1]}{found[2]}" if found else ""


def is_page(url: str) -> bool:
    """Whether an address is an HTML page that shows a log."""
    return _PAGES in url


def text_of_page(source: str) -> bytes:
    """Return the log in such a page; empty if the page only reports that there is no log."""
    begins, end = _BEGINS.search(source), max(map(source.rfind, _ENDS))
    from html import unescape

    return unescape(source[begins.end() : end]).rstrip(_CUT).encode() if begins and end >= 0 else b""


# Answers about the cluster


def virtual_cluster_from_body(body: dict[str, Any]) -> VirtualCluster:
    """Read a virtual cluster; without ``resourcesGuaranteed`` (0.14) all of its resources are usable."""
    sides = ("resourcesUsed", "resourcesGuaranteed", "resourcesTotal")
    found = {}
    for resource, names in RESOURCES.items():
        used, guaranteed, total = (_amount(body.get(side), names) for side in sides)
        found[resource] = Capacity(used, total if guaranteed is None else guaranteed, total)
    own = fields.mapping(body.get(routes.OWN_FIELD))
    types, free = _counts(own.get("gpuTypes")), _counts(own.get("freeGpus"))
    taken, runs_images = tuple(fields.texts(own.get("takenGpus"))), own.get("images") is not False
    return VirtualCluster(found, types, taken, free, runs_images)


def _counts(value: Any) -> dict[str, int | float]:
    """Read numbers by name."""
    found = {name: fields.number(one) for name, one in fields.mapping(value).items()}
    return {name: count for name, count in found.items() if count is not None}


def cluster_sample_from_body(body: dict[str, Any]) -> ClusterSample | None:
    """Read how busy the cluster was at a time; None if the time is missing."""
    names = ("running", "waiting", "cpu", "memory_mb", "gpu")
    time, values = fields.moment(body.get("time")), [fields.number(body.get(name)) or 0.0 for name in names]
    return None if time is None else ClusterSample(time, *values)


def usage_row_from_body(body: dict[str, Any]) -> UsageRow:
    """Read the hours of a group of jobs."""
    hours = {name: fields.number(value) or 0.0 for name, value in body.items()}
    whole, jobs = "gpu" if hours.get("gpu") else "cpu", fields.count(body.get("jobs"))

    def percent(part: str, whole: str) -> float | None:
        return round(100 * hours.get(part, 0.0) / hours[whole], 1) if hours.get(whole) else None

    return UsageRow(
        fields.text(body.get("name")),
        jobs,
        round(hours.get("gpu", 0.0), 4),
        percent("gpu_used", "gpu_measured"),
        round(hours.get("cpu", 0.0), 4),
        percent("cpu_used", "cpu_measured"),
        round(3600 * hours.get("waited", 0.0) / max(1, jobs), 1),
        percent(f"{whole}_failed", whole),
    )


def _series(body: dict[str, Any], at: int) -> tuple[float, ...]:
    found = body.get("series")
    pairs = (
        [one for one in found if isinstance(one, list) and len(one) == 2] if isinstance(found, list) else []
    )
    return tuple(fields.number(one[at]) or 0.0 for one in pairs)


def usage_sample_from_body(body: dict[str, Any]) -> UsageSample | None:
    """Read what a task used for some seconds; None if the time is missing."""
    time, seconds = fields.moment(body.get("time")), fields.number(body.get("seconds"))
    if time is None or seconds is None:
        return None
    found = {
        name: level for name, one in fields.mapping(body.get("values")).items() if (level := _level(one))
    }
    numbers = sorted({int(match[1]) for name in found if (match := _GPU.fullmatch(name))})
    gpus = (GpuSample(one, found.get(f"gpu{one}"), found.get(f"gpu{one}.mb")) for one in numbers)
    return UsageSample(time, seconds, found.get("cpu"), found.get("memory"), tuple(gpus))


def _level(value: Any) -> UsageLevel | None:
    """Read a pair of mean and maximum."""
    numbers = [fields.number(one) for one in value] if isinstance(value, list) and len(value) == 2 else []
    return UsageLevel(*numbers) if numbers and None not in numbers else None  # type: ignore[arg-type]


def node_from_body(body: dict[str, Any]) -> ClusterNode:
    """Read a node as Kubernetes describes it."""
    status = fields.mapping(body.get("status"))
    there = fields.mapping(status.get("capacity"))
    ready = [row for row in fields.rows(status.get("conditions")) if row.get("type") == "Ready"]
    address = [row for row in fields.rows(status.get("addresses")) if row.get("type") == "InternalIP"]
    gpus, cpus, memory = (
        parse_quantity(fields.text(there.get(name))) for name in ("nvidia.com/gpu", "cpu", "memory")
    )
    return ClusterNode(
        name=fields.text(fields.mapping(body.get("metadata")).get("name")),
        address=fields.text(address[0].get("address")) if address else "",
        is_ready=not ready or ready[0].get("status") == "True",
        resources={
            "gpu": gpus or 0,
            "cpu": cpus,
            "memoryMB": None if memory is None else int(memory) >> 20,
        },
    )


def storage_from_body(body: dict[str, Any], name: str, marks_default: bool = True) -> ClusterStorage:
    """Read a storage from a row of a list or from its full description."""
    data = {
        key: fields.text(value)
        for key, value in fields.mapping(body.get("data")).items()
        if fields.text(value)
    }
    own = fields.mapping(body.get(routes.OWN_FIELD))
    is_marked = marks_default or "default" in body
    return ClusterStorage(
        name=name,
        type=fields.text(body.get("type")),
        data=data,
        share=bool(body.get("share", True)),
        read_only=bool(body.get("readOnly")),
        default=bool(body.get("default")) if is_marked else None,
        folder=fields.text(own.get("path")),
        mount_point=fields.text(own.get("mountPoint")),
    )


def _amount(side: Any, names: tuple[str, ...]) -> Amount:
    found = (fields.number(fields.mapping(side).get(name)) for name in names)
    return next((amount for amount in found if amount is not None), None)
