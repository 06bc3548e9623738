"""Answers of PaddleCloud: its jobs, pods, quotas, logs and files, and the frames of PFS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openpai_tasks.backends.http.retries import NEVER
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.backends.paddlecloud.pfs.connection import BOUNDARY, PfsConnection
from openpai_tasks.backends.paddlecloud.pfs.store import PfsStore
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.retry import retrying
from tests.fuzz.feeding import http_answers, ok
from tests.fuzz.target import Target
from tests.fuzz.targets.openpai import show

METADATA = {
    "name": "train-trainer",
    "namespace": "ann",
    "creation_timestamp": "2026-11-15T17:43:51Z",
    "annotations": {"paddle-job-package": "job"},
}
CONDITION = {
    "type": "Failed",
    "status": "True",
    "message": "x",
    "last_transition_time": "2026-11-15T17:44:00Z",
}
JOBS = {
    "items": [
        {
            "metadata": METADATA,
            "spec": {"parallelism": 2},
            "status": {
                "active": 1,
                "succeeded": 1,
                "start_time": "2026-11-15T17:43:51Z",
                "conditions": [CONDITION],
            },
        }
    ],
    "terminating": ["old"],
}
STATE = {
    "terminated": {"exit_code": 1, "finished_at": "2026-11-15T17:43:59Z", "reason": "Error", "message": "m"}
}
POD = {
    "phase": "Failed",
    "start_time": "2026-11-15T17:43:51Z",
    "pod_ip": "10.0.0.1",
    "container_statuses": [{"state": STATE}],
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}
PODS = {"items": [{"metadata": {"name": "train-trainer-x"}, "status": POD}]}
AMOUNTS = {"requests.cpu": "8", "requests.memory": "64Gi", "alpha.kubernetes.io/nvidia-gpu": "4"}
QUOTAS = {"items": [{"status": {"hard": AMOUNTS, "used": {**AMOUNTS, "requests.cpu": "100m"}}}]}
RECORDS = {"items": ["train~a1~1794764631094", "train~a1.yaml"], "code": 200}
ANSWERS: dict[str, Any] = {
    "/api/v1/jobs/": JOBS,
    "/api/v1/pservers/": {"items": [{"metadata": {"name": "train-pserver"}, "status": {"replicas": 1}}]},
    "/api/v1/workers/": PODS,
    "/api/v1/quota/": QUOTAS,
    "/api/v1/logs/": {"code": 200, "msg": "line\nline 2\n"},
    "/api/v1/filelist/": RECORDS,
    "/api/v1/file/": {"code": 500, "msg": "not exists"},
    "/api/v1/token2user/": {"user": "ann"},
    "/api-token-auth/": {"token": "abc"},
}
USES: tuple[tuple[str, Callable[[PaddleBackend], Any]], ...] = (
    ("/api/v1/jobs/", lambda backend: backend.jobs()),
    ("/api/v1/jobs/", lambda backend: backend.job("ann~train")),
    ("/api/v1/pservers/", lambda backend: backend.pserver_sets()),
    ("/api/v1/workers/", lambda backend: backend.job("ann~train")),
    ("/api/v1/quota/", lambda backend: list(backend.virtual_clusters().values())),
    ("/api/v1/logs/", lambda backend: read_log(backend)),
    ("/api/v1/filelist/", lambda backend: backend.jobs()),
    ("/api/v1/token2user/", lambda backend: backend.authenticate()),
    ("/api-token-auth/", lambda backend: backend.login("ann", "secret")),
)


def read_log(backend: PaddleBackend) -> list[bytes]:
    job = backend.job("ann~train")
    return [piece for task in job.tasks[:1] for piece in backend.open_log(job, task, "all").read()]


def parse_answer(data: bytes) -> None:
    """Read and show the answer that the first byte chooses; all other answers are real ones."""
    odd, use = USES[data[0] % len(USES) if data else 0]

    def answer(method: str, target: str) -> bytes:
        path = target.partition("?")[0]
        return ok(data[1:] if path == odd else json.dumps(ANSWERS.get(path, {})).encode())

    cluster = Cluster("cloud", "http://127.0.0.1:9", "ann", "paddlecloud", "v1", prefix="")
    with http_answers(answer):
        show(use(PaddleBackend(cluster, Credentials(token="t"), timeout=1.0, policies=NEVER)))


PLACE = "/home/ann/a"
FILE = {"Path": f"/pfs/dc{PLACE}", "Size": 5, "ModTime": 1794764631094000000, "IsDir": False}
FRAME = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"\r\n\r\nhello\r\n--{BOUNDARY}--\r\n'
SUM = {"err": "", "results": {"offset": 0, "len": 5, "checksum": "5d41402abc4b2a76b9719d911017c592"}}
FILES: tuple[tuple[Any, Callable[[PfsStore], Any]], ...] = (
    ({"err": "", "results": FILE}, lambda store: store.stat(PLACE)),
    ({"err": "", "results": [{**FILE, "Path": f"/pfs/dc{PLACE}/b"}]}, lambda store: list(store.list(PLACE))),
    (SUM, lambda store: store._connection.sum(PLACE, 0)),
    (FRAME, lambda store: store._connection.read(PLACE, 0, 5)),
    (SUM, lambda store: store._connection.write(PLACE, 0, b"hello", {})),
    ({"err": "", "results": None}, lambda store: store._connection.make_folder(PLACE)),
)


def parse_pfs(data: bytes) -> None:
    """Read an answer of PFS; the first byte chooses the call."""
    _, use = FILES[data[0] % len(FILES) if data else 0]
    store = PfsStore(PfsConnection("http://127.0.0.1:9", "dc", "t"), "ann")
    with http_answers(lambda method, target: ok(data[1:])):
        retrying(lambda: use(store), wait=lambda seconds: True)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


TARGETS = (
    Target(
        "paddle-answer",
        parse_answer,
        tuple(bytes([at]) + _bytes(ANSWERS[path]) for at, (path, _) in enumerate(USES)),
    ),
    Target("pfs-answer", parse_pfs, tuple(bytes([at]) + _bytes(body) for at, (body, _) in enumerate(FILES))),
)
