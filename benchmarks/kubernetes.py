"""Trivial jobs on the Kubernetes of ``OPENPAI_TEST_KUBECONFIG``: ours beside kubectl with pods and Jobs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.jobs import running
from benchmarks.side_by_side import OURS, Comparison, Turn

if TYPE_CHECKING:
    from tests.server.engines.kube_cluster import Kube

JOBS, ROUNDS = 200, 1  # a round takes minutes
LOOK = 0.5  # seconds between two looks of kubectl at pods and Jobs
NEEDS = {"cpu": "1", "memory": "64Mi"}  # those of the jobs in benchmarks/jobs.py


def comparisons(folder: Path, jobs: int = JOBS) -> Iterator[Comparison]:
    """Compare how long jobs take that do nothing, from the first submission to the last end."""
    from tests.needs import missing
    from tests.server.engines import kube_cluster

    if not os.environ.get(kube_cluster.KUBECONFIG) or missing("kubectl"):
        return
    with kube_cluster.kube_namespace() as kube, kube_cluster.kube_namespace() as other:
        options = [f"--engine-option={name}={value}" for name, value in kube.options.items()]
        home = folder / "kubernetes"
        with running(home, "--engine=kubernetes", *options, image=kube_cluster.IMAGE) as server:
            turns: dict[str, Turn] = {
                OURS: lambda: server.run(jobs),
                "kubectl create, all pods": lambda: create_pods(other, jobs),
                "kubectl create, Job by Job": lambda: create_jobs(other, jobs),
            }
            counter = RequestCounter(kube)
            contenders = {name: functools.partial(counter.count, name, turn) for name, turn in turns.items()}
            goals = {"kubectl create, all pods": 1.5, "kubectl create, Job by Job": 1.5}
            yield Comparison(f"{jobs} trivial jobs on Kubernetes", contenders, goals, rounds=ROUNDS)
            for name, found in counter.last.items():
                print(f"{name}: {found / jobs:.1f} requests to the API server for a job", file=sys.stderr)
            print(f"server: {_memory(home)} MB after {server.finished} finished jobs", file=sys.stderr)


class RequestCounter:
    """Counts the requests about pods, secrets and Jobs that the API server answers, whoever sends them."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.last: dict[str, float] = {}

    def count(self, name: str, turn: Turn) -> float | None:
        before = self._requests()
        took = turn()
        self.last[name] = self._requests() - before
        return took

    def _requests(self) -> float:
        metrics = self._kube.run("get", "--raw", "/metrics", check=False)  # which an administrator may read
        rows = re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", metrics, re.MULTILINE)
        return sum(float(value) for labels, value in rows if _is_ours(labels))


def _is_ours(labels: str) -> bool:
    found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    return found.get("resource") in ("pods", "secrets", "jobs") and found.get("verb") != "WATCH"


def create_pods(kube: Kube, jobs: int) -> float:
    """Return the seconds that pods in one file take to succeed."""
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": _spec()}
        for number in range(jobs)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    start = time.perf_counter()
    kube.run("create", "--filename=-", sent=text)
    _wait(kube, "pods", "--output=jsonpath={.items[*].status.phase}", "Succeeded", jobs)
    took = time.perf_counter() - start
    kube.run("delete", "pods", "--all", "--grace-period=0", "--force")
    return took


def create_jobs(kube: Kube, jobs: int) -> float:
    """Return the seconds that Jobs take to complete, each created by a command of its own."""
    start = time.perf_counter()
    for number in range(jobs):
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"job-{number}"},
            "spec": {"template": {"spec": _spec()}},
        }
        kube.run("create", "--filename=-", sent=json.dumps(body))
    _wait(kube, "jobs", "--output=jsonpath={.items[*].status.succeeded}", "1", jobs)
    took = time.perf_counter() - start
    kube.run("delete", "jobs", "--all")
    return took


def _spec() -> dict[str, Any]:
    from tests.server.engines.kube_cluster import IMAGE

    task = {"name": "task", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["true"]}
    return {
        "restartPolicy": "Never",
        "containers": [{**task, "resources": {"limits": NEEDS, "requests": NEEDS}}],
    }


def _wait(kube: Kube, kind: str, output: str, word: str, count: int) -> None:
    limit = time.monotonic() + 1800
    while kube.run("get", kind, output).split().count(word) < count:
        if time.monotonic() > limit:
            sys.exit(f"waited 1800 s for {count} {kind}")
        time.sleep(LOOK)


def _memory(home: Path) -> int:
    """Return the memory of the server, in MB; 0 where the system does not say."""
    pid = json.loads((home / "server.json").read_text())["pid"]
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024
    return 0
