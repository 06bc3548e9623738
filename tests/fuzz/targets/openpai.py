"""Answers of OpenPAI servers: heads and bodies of HTTP, and the JSON of every endpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

from openpai_tasks.backends.http import logins
from openpai_tasks.backends.http.retries import NEVER
from openpai_tasks.backends.openpai import Client, driver
from openpai_tasks.errors import ApiError, Unreachable
from openpai_tasks.protocol import routes as paths
from openpai_tasks.render import text as render
from openpai_tasks.sdk.clusters import resources
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.diagnosis import explain
from openpai_tasks.sdk.files import job_folders, storages
from openpai_tasks.sdk.jobs import documents, lookup
from openpai_tasks.sdk.logs import output as logs
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials, token_claims
from openpai_tasks.settings.registry import LOCAL, Cluster, dump, parse, registry_path
from tests.fuzz.feeding import http_answers, ok, replacing
from tests.fuzz.target import Target
from tests.properties.answers import ERROR, JOB, KINDS, LIST, RETRYING, RUNNING, TOKEN, V1, V2, WAITING

URI = "http://127.0.0.1:9"
LOGS = f"{JOB}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
OLD = f"{V1}/jobs/ann~train"
API = "/rest-server"
SETTINGS = Settings(http_timeout=1.0)
Read = Callable[[Client], Any]


def signed_in(client: Client) -> Any:
    cluster, known = Cluster("lab", URI, "ann"), Credentials(password="secret")
    found, _ = driver.sign_in(cluster, known, lambda prompt: "", lambda line: None, 1.0)
    text = dump([found])
    assert parse(text, registry_path())[0][0] == found  # it can be saved and read back
    text.encode()
    return found


def storage_rows(client: Client) -> Any:
    found = storages.detail_of(client, "0")
    return [storages._row(storages.place_of(client, found, ()), found)]


def ssh_endpoints(client: Client) -> Any:
    return list(client.ssh_endpoints(client.job("ann~train")).values())


def output(client: Client) -> Any:
    return [str(piece) for piece in logs.read_output(client, "train", logs.LogChoice())]


def log_parts(client: Client) -> Any:
    job = client.job("ann~train")
    log = client.open_log(job, job.tasks[0], "all")
    return [log.size(), log.read_range(0, 9), log.read_end(9)]


def job_document(client: Client) -> Any:
    return documents.job_document(client, "train")[1]


def usage(client: Client) -> Any:
    job = client.job("ann~train")
    return [client.task_usage(job, task, 10) for task in job.tasks]


def why(client: Client) -> Any:
    return explain.why(client, "train")


READS: dict[str, dict[str, list[Read]]] = {
    "1.8": {
        f"GET {V2}/info": [signed_in],
        f"GET {V1}/authn/info": [signed_in],
        f"POST {V1}/token": [signed_in, lambda client: client.login("ann", "secret") and client.token()],
        f"GET {V1}/user/ann": [signed_in, lambda client: client.user_info("ann")],
        f"GET {V2}/virtual-clusters": [resources.cluster_resources, signed_in],
        f"GET {V2}/storages": [
            lambda client: list(client.storages()),
            signed_in,
            storage_rows,
            job_folders.home,
        ],
        f"GET {V2}/storages/team": [storage_rows, job_folders.home],
        f"GET {V2}/jobs": [Client.jobs, lambda client: client.jobs(limit=3, username="ann", keyword="t")],
        f"GET {JOB}": [
            lambda client: lookup.describe(client, "train"),
            why,
            lambda client: client.job_page(client.job("ann~train")),
            ssh_endpoints,
            output,
        ],
        f"GET {JOB}/attempts/0": [lambda client: client.job_attempt("ann~train", 0)],
        f"GET {JOB}/events": [lambda client: lookup.describe(client, "train")],
        f"GET {JOB}/config": [lambda client: lookup.submitted_document(client, "train"), job_document],
        f"GET {LOGS}": [output],
        "GET /logs/all": [output, log_parts],
        f"GET {API}{paths.NODES}": [Client.nodes],
        f"GET {API}{paths.SKU_TYPES}": [lambda client: client.gpu_type_names("default")],
    },
    "0.14": {
        f"GET {V1}": [signed_in],
        f"GET {V1}/virtual-clusters": [signed_in],
        f"GET {V1}/jobs": [Client.jobs, lambda client: client.jobs(order="jobName,ASC", tagsContain="a")],
        f"GET {OLD}": [lambda client: lookup.describe(client, "train"), output],
        f"GET {OLD}/config": [job_document, lambda client: lookup.submitted_document(client, "train")],
        f"GET {OLD}/ssh": [ssh_endpoints],
        "GET /yarn/n:8042/node/containerlogs/c/ann/user.pai.stdout/": [output],
    },
    "0.18": {f"GET {V2}/info": [signed_in], f"GET {V2}/jobs": [Client.jobs]},
    "local": {
        f"GET {API}{paths.CLUSTER_USAGE}": [lambda client: client.cluster_usage(60, 10)],
        f"GET {API}{paths.USAGE_REPORT}": [lambda client: client.usage_report("user", 60, "", 4)],
        f"GET {LOGS.replace('/logs', '/usage')}": [usage],
        f"POST {API}{paths.CLEAN_JOBS}": [lambda client: client.clean_jobs("1d", True)],
        f"POST {API}{paths.CLEAN_ORPHANS}": [lambda client: client.clean_orphans(True)],
        f"POST {API}{paths.PRINTED_RESULTS}": [
            lambda client: client.printed_results([client.job("ann~train")])
        ],
        f"POST {V2}/jobs": [lambda client: client.submit("name: train", hooks="x")],
    },
}
"""How each answer is used: by generation of the server and by request."""
LEVEL = [0.5, 1.0]
MORE: dict[str, Any] = {
    f"GET {API}{paths.CLUSTER_USAGE}": {
        "rows": [{"time": 1794764631094, "running": 1, "waiting": 2, "cpu": 0.5, "memory_mb": 10, "gpu": 1}]
    },
    f"GET {API}{paths.USAGE_REPORT}": {
        "until": 1794764631094,
        "user": "ann",
        "removed": 1794764631094,
        "rows": [
            {
                "name": "ann",
                "jobs": 2,
                "gpu": 1.5,
                "gpu_used": 1,
                "gpu_measured": 1.5,
                "cpu": 3,
                "series": [[1, 2]],
            }
        ],
    },
    f"GET {LOGS.replace('/logs', '/usage')}": {
        "rows": [
            {"time": 1794764631094, "seconds": 5, "values": {"cpu": LEVEL, "gpu0": LEVEL, "gpu0.mb": LEVEL}}
        ],
        "unrecorded": "",
    },
    f"POST {API}{paths.CLEAN_JOBS}": {
        "jobs": [{"name": "ann~a", "completedTime": 1794764631094, "bytes": 5}]
    },
    f"POST {API}{paths.CLEAN_ORPHANS}": {"orphans": [{"name": "a", "job": "b", "home": "/c"}]},
    f"POST {API}{paths.PRINTED_RESULTS}": {
        "jobs": [{"name": "ann~train", "completedTime": 1794764631193, "line": '{"accuracy": 0.5}'}]
    },
    f"POST {V2}/jobs": {"message": "ok", "openpaiTasks": {"notices": ["smaller"], "hooks": True}},
    f"GET {API}{paths.NODES}": {
        "items": [
            {
                "metadata": {"name": "n"},
                "status": {
                    "capacity": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                },
            }
        ]
    },
    f"GET {API}{paths.SKU_TYPES}": {"K80": {"gpu": 1, "cpu": 4, "memory": 1000}},
}
"""Real answers besides those of ``KINDS``."""
REAL: dict[str, dict[str, Any]] = {kind: {**MORE, **KINDS.get(kind, KINDS["1.8"])} for kind in READS}


@dataclasses.dataclass(frozen=True)
class Case:
    """One use of an answer."""

    kind: str
    route: str
    read: Read
    real: Any


def _cases() -> Iterator[Case]:
    for kind, routes in READS.items():
        for route, reads in routes.items():
            yield from (Case(kind, route, read, REAL[kind][route]) for read in reads)
    yield Case("1.8", f"GET {JOB}", lambda client: endpoints.reach(client, "train", SETTINGS), RUNNING)
    yield from (Case("1.8", f"GET {JOB}", why, real) for real in (WAITING, RETRYING))


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


CASES = tuple(_cases())
ANSWERED = {
    kind: {route: ok(_bytes(body)) for route, body in routes.items()} for kind, routes in REAL.items()
}
NO_API = b'{"code": "NoApiError", "message": "API is not found."}'
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(NO_API), NO_API)
STATUSES = (400, 401, 403, 404, 409, 413, 429, 500, 502)


def client_of(kind: str = "1.8") -> Client:
    alias, generation = (LOCAL, "1.8") if kind == "local" else ("lab", kind)
    cluster = Cluster(alias, URI, "ann", generation=generation)
    client = Client(cluster, Credentials(token=TOKEN), timeout=1.0, policies=NEVER)
    client.forget_facts()
    return client


def show(found: Any) -> None:
    """Show a value in every format."""
    rows = found if isinstance(found, (list, tuple)) else [found]
    values = [
        one if isinstance(one, dict) or dataclasses.is_dataclass(one) else {"value": one} for one in rows
    ]
    for form in render.FORMATS:
        render.format_values(values, str if form == "table" else (), form).encode()


def parse_body(data: bytes) -> None:
    """Read and show the answer that the first byte chooses; all other answers are real ones."""
    case = CASES[data[0] % len(CASES) if data else 0]
    odd = ok(data[1:])

    def answer(method: str, target: str) -> bytes:
        asked = f"{method} {target.partition('?')[0]}"
        return odd if asked == case.route else ANSWERED[case.kind].get(asked, NOT_FOUND)

    with http_answers(answer), replacing(logins, "PAUSES", (0.0, 0.0)):
        show(case.read(client_of(case.kind)))


def parse_error(data: bytes) -> None:
    """Read an error with the status that the first byte chooses."""
    status, body = STATUSES[data[0] % len(STATUSES) if data else 0], data[1:]
    answer = b"HTTP/1.1 %d Bad\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    with http_answers(lambda method, target: answer), contextlib.suppress(ApiError, Unreachable):
        client_of().job("ann~train")


def parse_answer(data: bytes) -> None:
    """Read a whole answer, from its status line on."""
    with http_answers(lambda method, target: data):
        client_of().jobs(limit=1)


def parse_stream(data: bytes) -> None:
    """Read an answer that is streamed, such as a log."""
    with http_answers(lambda method, target: data):
        for _ in client_of().read_log("/logs/all"):
            pass


PAGE = _bytes(LIST)
ZIPPED = gzip.compress(PAGE)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PARTS = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in (PAGE[:9], PAGE[9:]))
ANSWERS = (
    ok(PAGE),
    CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE),
    CHUNKED + PARTS + b"0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + ok(PAGE),
    b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\n" + PAGE,
)
"""With a length, in chunks, with a trailer, after an interim answer, up to the end of the connection."""
COMPRESSED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ZIPPED),
    ZIPPED,
)
TARGETS = (
    Target("api-answer", parse_body, tuple(bytes([at]) + _bytes(case.real) for at, case in enumerate(CASES))),
    Target("api-error", parse_error, tuple(bytes([at]) + _bytes(ERROR) for at in range(len(STATUSES)))),
    Target("http-answer", parse_answer, (*ANSWERS, COMPRESSED)),
    Target("http-stream", parse_stream, ANSWERS),
    Target("jwt", lambda data: token_claims(data.decode("utf-8", "replace")), (TOKEN.encode(),)),
)
