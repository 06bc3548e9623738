"""Jobs of the embedded cluster: trivial ones beside other queues, and a list of many beside one of few."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.side_by_side import OURS, Comparison, Turn

ROOT = Path(__file__).resolve().parent.parent
JOBS, ROUNDS = 500, 15
SUBMITTERS = 4
LISTED, FEW, MANY = 100, 100, 100_000
START_SECONDS, WAIT_SECONDS = 120.0, 600.0
DOCUMENT = """\
protocolVersion: 2
name: {name}
type: job
prerequisites: [{{name: image, type: dockerimage, uri: {image}}}]
taskRoles:
  main:
    instances: 1
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: 64, gpu: 0}}
    commands: ["true"]
"""


def comparisons(folder: Path, jobs: int = JOBS, many: int = MANY) -> Iterator[Comparison]:
    yield from throughput(folder, jobs)
    yield from lists(folder, many)


def throughput(folder: Path, jobs: int) -> Iterator[Comparison]:
    """Compare how long jobs that do nothing take, from the first submission to the last end."""
    with running(folder / "cluster") as server:
        contenders: dict[str, Turn] = {OURS: lambda: server.run(jobs), **peers(folder, jobs)}
        goals = {"task-spooler": 4.5, "submitit": 0.1}  # 4.5 times 150 jobs a second are what it does at best
        yield Comparison(f"{jobs} trivial jobs", contenders, goals, amount=jobs, unit="jobs")


def lists(folder: Path, many: int) -> Iterator[Comparison]:
    """Compare a page of the list of many jobs with the same page of few."""
    homes = {}
    for count in (FEW, many):
        with running(folder / f"{count}") as server:
            server.run(1)
        fill(folder / f"{count}", count)
        homes[count] = folder / f"{count}"
    with running(homes[FEW]) as few, running(homes[many]) as full:
        contenders: dict[str, Turn] = {OURS: full.list_jobs, f"{FEW} jobs": few.list_jobs}
        yield Comparison(f"list {LISTED} of {many:,} jobs", contenders, {f"{FEW} jobs": 1.5}, rounds=ROUNDS)


class EmbeddedServer:
    """A running server and a token of its owner."""

    def __init__(self, uri: str, login: dict[str, str], image: str) -> None:
        self._image, self.user = image, login["user"]
        self.address = urlsplit(uri).netloc
        self._names = (f"job-{time.time_ns()}-{number}" for number in itertools.count())
        body = json.dumps({"username": login["user"], "password": login["password"]})
        answer = self._call(self._connect(), "POST", "/api/v1/authn/basic/login", body, "application/json")
        self.token: str = answer["token"]

    def run(self, count: int) -> None:
        """Submit jobs over a few connections, and wait until all have succeeded."""
        before, names = self._count("SUCCEEDED"), [next(self._names) for _ in range(count)]
        parts = [names[first::SUBMITTERS] for first in range(SUBMITTERS)]
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._submit, parts))
        until(lambda: self._count("SUCCEEDED") == before + count)

    @property
    def finished(self) -> int:
        return self._count("SUCCEEDED")

    def list_jobs(self) -> float:
        """Return the seconds that a page takes, without those of connecting."""
        connection = self._connect()
        path = f"/api/v2/jobs?limit={LISTED}&withTotalCount=true"
        self._call(connection, "GET", path)
        start = time.perf_counter()
        for _ in range(10):
            rows = self._call(connection, "GET", path)["data"]
        took = time.perf_counter() - start
        connection.close()
        if len(rows) != LISTED:
            sys.exit(f"listed {len(rows)} jobs instead of {LISTED}")
        return took

    def _submit(self, names: list[str]) -> None:
        connection = self._connect()
        for name in names:
            body = DOCUMENT.format(name=name, image=self._image)
            self._call(connection, "POST", "/api/v2/jobs", body, "text/yaml")
        connection.close()

    def _count(self, state: str) -> int:
        connection = self._connect()
        path = f"/api/v2/jobs?limit=1&withTotalCount=true&state={state}"
        found: int = self._call(connection, "GET", path)["totalCount"]
        connection.close()
        return found

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=60)

    def _call(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: str = "", type: str = ""
    ) -> dict:
        headers = {"Content-Type": type} if type else {}
        if hasattr(self, "token"):
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, path, body.encode(), headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {content.decode()}")
        return json.loads(content)


@contextlib.contextmanager
def running(home: Path, *options: str, image: str = "busybox") -> Iterator[EmbeddedServer]:
    """Run an embedded server; bytecode is written, as it is for an installed package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-m", "openpai_tasks.server", "--home", str(home), *options]
    environment |= {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until((home / "server.json").exists, START_SECONDS)
            uri = json.loads((home / "server.json").read_text())["uri"]
            yield EmbeddedServer(uri, json.loads((home / "credentials.json").read_text()), image)
        finally:
            process.terminate()


def fill(home: Path, count: int) -> None:
    """Copy the only job of a cluster until it has this many."""
    from openpai_tasks.server.state.database import Database
    from openpai_tasks.server.state.state import SCHEMA

    database = Database(home / "cluster.db", SCHEMA)
    row = dict(database.rows("SELECT * FROM jobs")[0])
    with database.transaction():
        for number in range(2, count + 1):
            new = {"key": f"{row['user']}~copy-{number}", "name": f"copy-{number}", "queued": number}
            values = {**row, **new, "submitted": row["submitted"] + number}
            database.write(f"INSERT INTO jobs VALUES ({', '.join('?' * len(values))})", list(values.values()))
    database.close()


def peers(folder: Path, jobs: int) -> dict[str, Turn]:
    """Return the other queues that are installed."""
    found: dict[str, Turn] = {}
    if spooler := shutil.which("tsp") or shutil.which("ts"):
        found["task-spooler"] = lambda: spool(spooler, folder, jobs)
    if importlib.util.find_spec("submitit"):
        found["submitit"] = lambda: submit_locally(folder, jobs)
    return found


def spool(program: str, folder: Path, jobs: int) -> None:
    """Run the jobs in task-spooler, as many at once as there are processors."""
    sockets = tempfile.TemporaryDirectory(prefix="tsp-")  # the path of a socket must be short
    environment = {**os.environ, "TS_SOCKET": f"{sockets.name}/socket", "TMPDIR": str(folder)}
    environment |= {"TS_MAXFINISHED": str(2 * jobs), "TS_SLOTS": str(os.cpu_count() or 1)}

    def call(*arguments: str) -> str:
        done = subprocess.run([program, *arguments], env=environment, check=True, capture_output=True)
        return done.stdout.decode()

    try:
        for _ in range(jobs):
            call("true")
        call("-w")
        until(lambda: call().count(" finished ") == jobs)
    finally:
        call("-K")
        sockets.cleanup()


def submit_locally(folder: Path, jobs: int) -> float:
    """Return the seconds for the jobs in submitit's local executor, from those of a few."""
    import submitit

    few = min(jobs, 4)
    executor = submitit.LocalExecutor(folder=folder / "submitit")
    start = time.perf_counter()
    for job in [executor.submit(int) for _ in range(few)]:
        job.result()
    return (time.perf_counter() - start) * jobs / few


def until(done: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            sys.exit(f"waited {seconds:.0f} s")
        time.sleep(0.1)
