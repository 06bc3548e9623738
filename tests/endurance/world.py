"""Carry out a history with real processes, and record what they did."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import forkserver
from tests.endurance.plan import Fault, Operation, Plan, Step
from tests.endurance.traces import home_violations, outside_leftovers
from tests.processes import is_running

if TYPE_CHECKING:
    from tests.endurance.sites.base import Site

PAI = str(Path(sys.executable).parent / "pai")
FINAL = ("SUCCEEDED", "FAILED", "STOPPED")
FAULT_SECONDS = 6.0  # to find something to hurt
SETTLE = 120.0  # seconds until all jobs must have ended after the last fault
RECOVERY = 10.0  # seconds after a fault in which commands may fail because of it


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    step: Step
    code: int
    out: str
    err: str
    is_killed: bool  # or interrupted, by a fault
    seconds: float
    faults: tuple[str, ...] = ()  # kinds of those that happened meanwhile or shortly before

    @property
    def fails_alone(self) -> bool:
        """Whether it failed without a fault as the reason."""
        return self.code != 0 and not self.is_killed and not self.faults


@dataclasses.dataclass(frozen=True)
class Record:
    """What happened: the commands that ran, the faults, and what was there at the end."""

    plan: Plan
    ran: tuple[Ran, ...]
    faults: tuple[str, ...]
    jobs: tuple[Mapping[str, Any], ...]
    logs: Mapping[str, str]  # by name of the job
    journals: Mapping[str, tuple[str, ...]]  # by label
    killed_tasks: frozenset[str]  # folders of tasks that a fault has killed
    found: Mapping[str, Any]  # what each operation and the site have collected, by kind
    server_log: str
    left: tuple[str, ...]  # processes, files
    lossy_tasks: frozenset[str] = frozenset()  # folders of tasks whose output may have gaps
    wrong: tuple[str, ...] = ()  # in the home folder
    broken: tuple[str, ...] = ()  # promises that a fault has seen broken

    def of_kind(self, *kinds: str) -> Iterator[Ran]:
        return (ran for ran in self.ran if ran.step.kind in kinds)

    def is_hurt(self, job: str) -> bool:
        """Whether a fault has killed a task of this job."""
        return any(f"~{job}/" in folder for folder in self.killed_tasks)

    def is_lossy(self, job: str) -> bool:
        return any(f"~{job}/" in folder for folder in self.lossy_tasks)

    def collected(self, kind: str) -> Any:
        """Return what an operation has collected; an empty mapping if the history did not have it."""
        return self.found.get(kind, {})


def label_of(job: object) -> str:
    """Return the label in a job's name."""
    return str(job).split("-", 1)[0]


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class World:
    """A home folder with its embedded cluster and clients."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder, self.site = folder, site
        self.home = folder / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if "OPENPAI" not in name},
            **{"HOME": str(folder / "user"), "OPENPAI_HOME": str(self.home), "TMPDIR": str(folder / "tmp")},
            **{"INVOKE_OPENPAI_LOCAL_ENGINE": site.kind, "NO_COLOR": "1"},
            "PATH": f"{Path(PAI).parent}{os.pathsep}{os.environ['PATH']}",  # jobs run the same Python
        }
        self.killed_tasks: set[str] = set()
        self.lossy_tasks: set[str] = set()
        self.broken: list[str] = []
        self.preloaded: set[str] = set()
        """The variables of libraries that faults load into processes, for other machines."""
        self.client_environments: list[dict[str, str]] = [{}]
        """Further variables of the clients, in turn."""
        self.has_old_server = False
        """Whether the server may be one of the last release, with its faults."""
        self.cleanups = contextlib.ExitStack()
        """What to do when the history has ended."""
        self._lock = threading.Lock()
        self._is_quiet = threading.Event()  # when the clients are done
        self._is_over = False  # before the clients are done, as it was interrupted
        self._clients: list[subprocess.Popen[str]] = []
        self._hurt: set[int] = set()  # clients that a fault has ended
        self._ran: list[Ran] = []
        self._faults: list[str] = []
        self._times: list[tuple[str, float]] = []  # when each fault has ended

    # Processes

    def pai(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that no fault disturbs; fork it, unless the server would be forked with it."""
        if self.pids("openpai_tasks.server "):
            return forkserver.run(
                [PAI, *words], self.folder / "project", self.environment, timeout=self.site.limit
            )
        return self.call([PAI, *words])

    def call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program that no fault disturbs."""
        return subprocess.run(
            words,
            **{"env": self.environment, "cwd": self.folder / "project", "timeout": self.site.limit},
            **{"capture_output": True, "text": True, "stdin": subprocess.DEVNULL},
        )

    def processes(self, words: str = "") -> Iterator[tuple[int, str]]:
        """Yield the processes of this history with these words in their command line."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                pid = int(path.parent.name)
                if f"{self.folder}/" in line and words in line and is_running(pid) and pid != os.getpid():
                    yield pid, line

    def members(self) -> list[int]:
        """Return the processes of this history, with those that jobs have started."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                variables = (path / "environ").read_bytes().split(b"\0")
                place = str((path / "cwd").readlink())
                is_ours = any(
                    f"OPENPAI_HOME={home}".encode() in variables or place.startswith(f"{home}/")
                    for home in self.homes()
                )
                if is_ours and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(path.name))
            except OSError:
                continue
        return found + [pid for pid in self.pids("") if pid not in found]

    def homes(self) -> set[Path]:
        """Return the home folders of the clients and of the server."""
        return {self.home, self.site.server_folder(self).parent}

    def pids(self, words: str) -> list[int]:
        return [pid for pid, _ in self.processes(words)]

    def clients(self) -> list[int]:
        """Return the commands that run now."""
        with self._lock:
            return [process.pid for process in self._clients if process.poll() is None]

    def hurt_client(self, pid: int, number: int) -> None:
        """Send a signal to a command, which may then end without a result."""
        with self._lock:
            self._hurt.add(pid)
        send_signal(pid, number)

    def preload(self, library: str) -> None:
        """Load a library into all processes that start from now on."""
        others = self.environment.get("LD_PRELOAD", "").split()
        self.environment["LD_PRELOAD"] = " ".join(dict.fromkeys([*others, library]))

    def unfinished_tasks(self) -> list[str]:
        """Return the folders of tasks whose end was not recorded."""
        return [path for path in self.tasks() if not Path(path, "exit").exists()]

    def tasks(self) -> list[str]:
        """Return the folders of all tasks."""
        return list(map(str, self.site.server_folder(self).glob("jobs/*/*/*")))

    # The whole history

    def run(self, plan: Plan, operations: Mapping[str, Operation], faults: Mapping[str, Fault]) -> Record:
        """Carry out the plan, let everything end, and return what happened."""
        self.make_folders()
        used = [operations[kind] for kind in sorted({step.kind for one in plan.clients for step in one})]
        kinds = sorted({step.kind for step in plan.faults}, key=lambda one: faults[one].order)
        with self.cleanups:
            self.cleanups.callback(self.site.stop, self)
            try:
                early = [kind for kind in kinds if not faults[kind].order]
                for kind in early:
                    faults[kind].prepare(self)
                self.site.start(self)
                for kind in kinds[len(early) :]:
                    faults[kind].prepare(self)
                for operation in used:
                    self.cleanups.callback(operation.finish, self)
                    operation.prepare(self)
                self._carry_out(plan, operations, faults)
                return self._record(plan, operations)
            except BaseException:
                self.abort([faults[kind] for kind in kinds])
                raise

    def make_folders(self) -> None:
        for name in ("user", "tmp", "journals", "project", "trees"):
            (self.folder / name).mkdir(parents=True)

    def abort(self, faults: Iterable[Fault] = ()) -> None:
        """End a history that was interrupted: its clients, then its jobs and the server as a user does."""
        self._is_over = True
        self._is_quiet.set()
        try:
            for pid in self.clients():
                self.hurt_client(pid, signal.SIGKILL)
            for fault in faults:
                fault.repair(self)
            self.pai("cluster.portal", "--stop")
            self.site.stop_cluster(self)
        finally:
            while found := self.members():
                for pid in found:
                    send_signal(pid, signal.SIGKILL)
                time.sleep(0.05)

    def _carry_out(
        self, plan: Plan, operations: Mapping[str, Operation], faults: Mapping[str, Fault]
    ) -> None:
        workers = [
            threading.Thread(
                target=self._guard(self._run_client), args=(number, steps, operations), daemon=True
            )
            for number, steps in enumerate(plan.clients)
        ]
        injector = threading.Thread(target=self._guard(self._inject), args=(plan.faults, faults), daemon=True)
        keeper = threading.Thread(target=self._keep_server, daemon=True)
        for worker in (*workers, injector, keeper):
            worker.start()
        for worker in workers:
            worker.join()
        self._is_quiet.set()
        injector.join()
        for kind in {step.kind for step in plan.faults}:
            faults[kind].repair(self)

    def _keep_server(self) -> None:
        """Start a server that was killed, for clients that know it only by an address, as users of a site."""
        while not self._is_quiet.wait(5):
            if len(self.client_environments) > 1 and not self.pids("openpai_tasks.server "):
                self.pai("cluster.start")

    def _guard(self, work: Callable[..., None]) -> Callable[..., None]:
        """Record an error of the driver itself: the history is not what was planned."""

        def guarded(*words: Any) -> None:
            try:
                work(*words)
            except Exception:
                self.broken.append(f"the driver failed: {traceback.format_exc()}")

        return guarded

    def _run_client(self, number: int, steps: tuple[Step, ...], operations: Mapping[str, Operation]) -> None:
        further = self.client_environments[number % len(self.client_environments)]
        for step in steps:
            time.sleep(step.pause)
            words = operations[step.kind].command(self, step.options)
            if self._is_over:
                return
            began = time.monotonic()
            process = subprocess.Popen(
                words,
                **{"env": {**self.environment, **further}, "cwd": self.folder / "project", "text": True},
                **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
            )
            with self._lock:
                self._clients.append(process)
            try:
                out, err = process.communicate(timeout=self.site.limit)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\nTraceback: hung for {self.site.limit:.0f} s\n"
            with self._lock:
                self._clients.remove(process)
                is_killed = process.pid in self._hurt
                self._hurt.discard(process.pid)
                took = time.monotonic() - began
                near = tuple(kind for kind, end in self._times if end + RECOVERY > began)
                self._ran.append(Ran(step, process.returncode, out, err, is_killed, took, near))

    def _inject(self, steps: tuple[Step, ...], faults: Mapping[str, Fault]) -> None:
        for step in steps:
            time.sleep(step.pause)
            deadline = time.monotonic() + FAULT_SECONDS
            if self._is_over:
                return
            with self._noted(step.kind):
                while (done := faults[step.kind].inject(self, step.options)) is None:
                    if self._is_quiet.wait(0.3) or time.monotonic() > deadline:
                        break
                else:
                    self._faults.append(f"{step.kind}: {done}")

    @contextlib.contextmanager
    def _noted(self, kind: str) -> Iterator[None]:
        """Note when a fault happens; it lasts until it has ended."""
        with self._lock:
            self._times.append((kind, math.inf))
        try:
            yield
        finally:
            with self._lock:
                self._times[-1] = (kind, time.monotonic())

    def _record(self, plan: Plan, operations: Mapping[str, Operation]) -> Record:
        jobs = self._settle()
        logs = {job["name"]: self._read_log(job["name"]) for job in jobs}
        steps = {kind: [ran.step for ran in self._ran if ran.step.kind == kind] for kind in operations}
        found = {kind: operations[kind].collect(self, steps[kind]) for kind in operations if steps[kind]}
        found[self.site.kind] = self.site.collect(self)
        ended = self.site.stop_cluster(self)
        return Record(
            plan,
            tuple(self._ran),
            tuple(self._faults),
            tuple(jobs),
            logs,
            self.site.read_journals(self),
            frozenset(self.killed_tasks),
            found,
            (self.site.server_folder(self) / "server.log").read_text(errors="replace") + ended,
            tuple(self._leftovers()),
            frozenset(self.lossy_tasks),
            () if plan.has("upgrade") else tuple(self._home_violations()),  # of another release
            tuple(self.broken),
        )

    def _read_log(self, job: str) -> str:
        read = self.pai("job.logs", job)
        if read.returncode:
            self.broken.append(f"job.logs {job} fails without a fault: {read.stderr}")
        return read.stdout

    def _settle(self) -> list[dict[str, Any]]:
        deadline = time.monotonic() + SETTLE
        while True:
            self.site.administer(self)
            listed = self.pai("job.list", "--limit", "100000", "-o", "json")
            if listed.returncode:
                self.broken.append(f"the server does not work again by itself: {listed.stderr}")
            jobs: list[dict[str, Any]] = json.loads(listed.stdout or "[]")
            if all(job["state"] in FINAL for job in jobs) or time.monotonic() > deadline:
                return jobs
            time.sleep(0.3)

    def _leftovers(self) -> Iterator[str]:
        deadline = time.monotonic() + 10
        while (found := list(self.processes())) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield from (f"process {pid}: {line}" for pid, line in found)
        for pid, _ in found:
            send_signal(pid, signal.SIGKILL)
        yield from (f"file {path}" for path in (self.folder / "tmp").iterdir())
        yield from outside_leftovers(self.folder, self.site.server_folder(self))
        yield from self.site.leftovers(self)

    def _home_violations(self) -> Iterator[str]:
        for home in self.homes():
            yield from home_violations(home)

    def remove(self) -> None:
        """Remove its files, with the new folder that they are in."""
        shutil.rmtree(self.folder.parent)
