"""What a program uses inside its job: where it runs, callbacks, outputs, checkpoints, logging and metrics.

This file needs only the standard library (Python 3.8 or newer) and nothing of this package: it travels with
the sources of a job. The same program runs on a laptop, in a container to work in, and in a batch job.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import glob
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import zlib
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Env = Mapping[str, str]

LOCAL, INTERACTIVE, BATCH = "local", "interactive", "batch"

OUTPUT = "PAI_OUTPUT_DIR"
INTERACTIVE_MARK = "PAI_INTERACTIVE"
"""Set in containers that a user works in."""
EARLIER_JOBS = "PAI_EARLIER_JOBS"
"""The jobs that this job was resubmitted from, the last one first."""
OUTPUT_URLS, OUTPUT_USER = "PAI_OUTPUT_URLS", "PAI_OUTPUT_USER"
"""Where HDFS keeps the output folder, which is uploaded only when the command ends."""

PART = ".pai-part-"  # begins the names of files that are not complete
OWN = ".pai"  # below the output folder: metrics, logs, checkpoints
LOG_BYTES = 32 << 20  # of log lines that wait to be written
METRIC_POINTS = 200_000  # that wait to be written
STOP_SECONDS = 5.0  # to write what is waiting when the job is stopped

Result = TypeVar("Result")
Call = TypeVar("Call", bound="Callable[..., Any]")


# Where


@dataclasses.dataclass(frozen=True)
class PeerTask:
    """A task of the job: its host, and its ports by label."""

    host: str
    ports: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Where:
    """Where a program runs; ``output`` is the folder whose files are kept, if there is one."""

    place: str
    user: str
    job: str = ""
    role: str = "main"
    index: int = 0
    attempt: int = 0
    peers: Mapping[str, tuple[PeerTask, ...]] = dataclasses.field(default_factory=dict)
    output: str | None = None
    platform: str = ""  # openpai, paddlecloud or slurm
    count: int = 1  # tasks of the job

    @property
    def label(self) -> str:
        """The task's name in file names."""
        return f"{re.sub('[^A-Za-z0-9_]', '', self.role) or 'main'}-{self.index}"


def where(environment: Env | None = None) -> Where:
    """Return where this program runs, from its environment variables."""
    env = os.environ if environment is None else environment
    if env.get("PAI_JOB_NAME") or env.get("PAI_FRAMEWORK_NAME"):
        return _on_openpai(env)
    if env.get("PADDLE_JOB_NAME"):
        return _on_paddlecloud(env)
    if env.get("SLURM_JOB_ID"):
        return _on_slurm(env)
    return Where(LOCAL, env.get("USER") or env.get("LOGNAME") or "", output=_folder(env))


def in_job() -> bool:
    """Whether this program runs inside a job, batch or interactive."""
    return where().place != LOCAL


def is_chief() -> bool:
    """Whether this is the one task that does what must happen once; True on a laptop."""
    here = where()
    return here.index == 0 and here.role == _chief_role(here)


def _on_openpai(env: Env) -> Where:
    owner, _, job = (env.get("PAI_JOB_NAME") or env["PAI_FRAMEWORK_NAME"]).rpartition("~")
    names = [name for name in env.get("PAI_TASK_ROLE_LIST", "").split(",") if name]
    own = env.get("PAI_CURRENT_TASK_ROLE_NAME") or env.get("PAI_TASK_ROLE_NAME") or "main"
    peers = _openpai_peers(env, names)
    is_interactive = bool(env.get(INTERACTIVE_MARK) or env.get("SSH_TTY"))
    return Where(
        place=INTERACTIVE if is_interactive else BATCH,
        user=env.get("PAI_USER_NAME") or env.get("PAI_USERNAME") or owner,
        job=job,
        role=next((name for name in peers if _key(name) == _key(own)), own),
        index=_int(env, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX", "PAI_TASK_ROLE_INDEX"),
        attempt=_int(env, "FC_FRAMEWORK_ATTEMPT_ID"),
        peers=peers,
        output=_folder(env),
        platform="openpai",
        count=_int(env, "PAI_TASKS_NUM", "PAI_JOB_TASK_COUNT") or sum(map(len, peers.values())) or 1,
    )


def _openpai_peers(env: Env, names: list[str]) -> dict[str, tuple[PeerTask, ...]]:
    """Return the tasks of each role; servers shorten the names of roles in some of the variables."""
    hosts: dict[str, dict[int, PeerTask]] = {name: {} for name in names}
    known = {_key(name): name for name in names}
    for variable, host in env.items():
        found = re.match(r"PAI_HOST_IP_(.+)_(\d+)$", variable)
        if found:
            name = known.setdefault(_key(found[1]), found[1])
            ports = _openpai_ports(env, f"PAI_PORT_LIST_{found[1]}_{found[2]}_")
            hosts.setdefault(name, {})[int(found[2])] = PeerTask(host, ports)
    counts = {name: _int(env, f"PAI_TASK_ROLE_TASK_COUNT_{name}") for name in hosts}
    return {
        name: tuple(
            tasks.get(index, PeerTask("")) for index in range(max([counts[name], *(i + 1 for i in tasks)]))
        )
        for name, tasks in hosts.items()
    }


def _openpai_ports(env: Env, prefix: str) -> dict[str, tuple[int, ...]]:
    lists = {name[len(prefix) :]: text for name, text in env.items() if name.startswith(prefix)}
    return {
        label: tuple(int(port) for port in text.split(",") if port.strip().isdigit())
        for label, text in sorted(lists.items())
    }


def _on_paddlecloud(env: Env) -> Where:
    """Read PaddleCloud's variables; trainers do not know each other's hosts."""
    port = _int(env, "PADDLE_INIT_PORT")
    ports = {"main": (port,)} if port else {}
    servers = [host for host in env.get("PADDLE_INIT_PSERVERS", "").split(",") if host]
    trainers = _int(env, "TRAINERS", "PADDLE_INIT_NUM_GRADIENT_SERVERS") or 1
    role = "pserver" if env.get("TRAINING_ROLE", "").upper() == "PSERVER" else "trainer"
    own = servers.index(env["POD_IP"]) if role == "pserver" and env.get("POD_IP") in servers else 0
    package = env.get("TRAINER_PACKAGE")
    return Where(
        place=BATCH,
        user=env.get("PADDLE_CLOUD_USERNAME") or env.get("USER") or "",
        job=env["PADDLE_JOB_NAME"],
        role=role,
        index=_int(env, "PADDLE_INIT_TRAINER_ID", "PADDLE_TRAINER_ID") if role == "trainer" else own,
        peers={
            "trainer": tuple(PeerTask("") for _ in range(trainers)),
            **({"pserver": tuple(PeerTask(host, ports) for host in servers)} if servers else {}),
        },
        output=_folder(env) or (os.path.join(package, "output") if package else None),
        platform="paddlecloud",
        count=trainers + len(servers),
    )


def _on_slurm(env: Env) -> Where:
    hosts = _slurm_hosts(env)
    array = env.get("SLURM_ARRAY_JOB_ID")
    is_batch = "SLURM_PROCID" in env and "SLURM_PTY_PORT" not in env  # a shell of salloc has no number
    return Where(
        place=BATCH if is_batch else INTERACTIVE,
        user=env.get("SLURM_JOB_USER") or env.get("USER") or "",
        job=f"{array}_{env.get('SLURM_ARRAY_TASK_ID', '')}" if array else env["SLURM_JOB_ID"],
        index=_int(env, "SLURM_PROCID"),
        attempt=_int(env, "SLURM_RESTART_COUNT"),
        peers={"main": tuple(PeerTask(host) for host in hosts)},
        output=_folder(env),
        platform="slurm",
        count=_int(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") or len(hosts) or 1,
    )


def _slurm_hosts(env: Env) -> list[str]:
    """Return the host of every task: node after node, or one task or plane of each node in turn."""
    nodes = _expand_nodes(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "")
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    counts = [
        int(found[1])
        for found in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(int(found[2] or 1))
    ]
    counts += [1] * (len(nodes) - len(counts))
    planes = {"cyclic": 1, "plane": _int(env, "SLURM_DIST_PLANESIZE") or 1}
    plane = planes.get(env.get("SLURM_DISTRIBUTION", "").partition(":")[0], max([1, *counts]))
    turns = range(0, max([0, *counts]), plane)
    return [
        node
        for turn in turns
        for node, count in zip(nodes, counts)
        for _ in range(max(0, min(plane, count - turn)))
    ]


def _expand_nodes(text: str) -> list[str]:
    """Expand ``gpu[01-03,7],login`` into the names of nodes."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\[\]]*\][^,\[]*)*", text):
        names = [""]
        for plain, ranges in re.findall(r"([^\[]+)|\[([^\[\]]*)\]", part):
            ends = [plain] if plain else [one for span in ranges.split(",") for one in _expand_range(span)]
            names = [name + end for name in names for end in ends]
        found += names
    return found


def _expand_range(span: str) -> list[str]:
    first, dash, last = span.partition("-")
    if not dash:
        return [first]
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _folder(env: Env) -> str | None:
    """Return the output folder; old servers set the variable to the address of a folder in HDFS."""
    path = env.get(OUTPUT, "")
    return path if path and "://" not in path else None


def _int(env: Env, *names: str) -> int:
    """Return the first of these variables that is a number, else 0."""
    return next((int(env[name]) for name in names if env.get(name, "").isdigit()), 0)


def _key(role: str) -> str:
    """Reduce the name of a role to what all servers agree on."""
    return re.sub("[^a-z0-9]", "", role.lower())


# Distributed training

_SERVERS = {"ps", "pserver", "psserver", "paramserver", "parameterserver"}
_HELPERS = {*_SERVERS, "evaluator", "tensorboard"}
"""Roles that take no part in the ranks of the training."""


@dataclasses.dataclass(frozen=True)
class Distributed:
    """The values for a distributed training; ``rank`` is -1 in a role that takes no part in it."""

    rank: int
    world_size: int
    local_rank: int
    master_addr: str
    master_port: int


def init_distributed(port: str = "") -> Distributed:
    """Set MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK and TF_CONFIG from the roles of the job.

    ``port`` is the label of the port to use; by default the first one that the job asked for, else ``http``.
    Variables that a launcher such as torchrun has set are kept.
    """
    env = os.environ
    if all(env.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        rank, size, number = (int(env[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        return Distributed(rank, size, _int(env, "LOCAL_RANK"), env["MASTER_ADDR"], number)
    here = where()
    ranks = _ranks(here)
    own = (here.role, here.index)
    if own not in ranks and _key(here.role) not in _HELPERS:
        raise RuntimeError(f"no rank for {here.label}: the job's variables list only {ranks or 'no tasks'}")
    chief, index = ranks[0]
    peer = here.peers[chief][index] if here.peers else PeerTask("127.0.0.1")
    if not peer.host:
        raise RuntimeError(
            f"the host of {chief}-{index} is unknown here; set MASTER_ADDR, MASTER_PORT and RANK"
        )
    found = Distributed(
        rank=ranks.index(own) if own in ranks else -1,
        world_size=len(ranks),
        local_rank=_int(env, "SLURM_LOCALID") if here.platform == "slurm" else 0,
        master_addr=peer.host,
        master_port=_port(here, peer, port) if here.peers else _free_port(),
    )
    if found.rank >= 0:
        for name, value in dataclasses.asdict(found).items():
            env[name.upper()] = str(value)
    if len(ranks) > 1 or _key(here.role) in _HELPERS:
        env["TF_CONFIG"] = json.dumps(_tf_config(here, port))
    return found


def _ranks(here: Where) -> list[tuple[str, int]]:
    """Return the tasks that train, those of the chief's role first."""
    if not here.peers:
        return [(here.role, here.index)]
    chief = _chief_role(here)
    others = [name for name in here.peers if name != chief and _key(name) not in _HELPERS]
    return [(name, index) for name in [chief, *others] for index in range(len(here.peers[name]))]


def _chief_role(here: Where) -> str:
    names = {_key(name): name for name in here.peers} or {_key(here.role): here.role}
    usual = [names[name] for name in ("chief", "master", "worker", "main") if name in names]
    return [*usual, *(name for key, name in names.items() if key not in _HELPERS), *names.values()][0]


def _tf_config(here: Where, port: str) -> dict[str, Any]:
    roles = {name: _tf_role(here, name) for name in here.peers if _key(name) != "tensorboard"}
    cluster = {
        kind: [f"{peer.host}:{_port(here, peer, port, index)}" for index, peer in enumerate(here.peers[name])]
        for name, kind in roles.items()
        if kind != "evaluator"
    }
    return {
        "cluster": cluster,
        "task": {"type": roles.get(here.role, here.role), "index": here.index},
    }


def _tf_role(here: Where, name: str) -> str:
    if _key(name) in _SERVERS:
        return "ps"
    if _key(name) in ("chief", "master"):
        return "chief"
    trains = [one for one in here.peers if _key(one) not in {*_HELPERS, "chief", "master"}]
    return "worker" if trains == [name] else name


def _port(here: Where, peer: PeerTask, label: str, index: int = 0) -> int:
    if label and label not in peer.ports:
        raise RuntimeError(f"the job has no port {label!r}; it has: {', '.join(peer.ports) or 'none'}")
    asked = [name for name in peer.ports if name not in ("ssh", "http")]
    for name in (label, *asked, "http"):
        if peer.ports.get(name):
            return peer.ports[name][0]
    return 20000 + (zlib.crc32(here.job.encode()) + index) % 20000  # the same on all hosts of the job


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# The end of the process

_at_end: list[Callable[[], None]] = []
_is_watched = False


def _watch_end() -> None:
    """Finish up when the process exits or gets SIGTERM, unless the program handles that signal itself."""
    global _is_watched
    if _is_watched:
        return
    _is_watched = True
    atexit.register(flush)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_by_signal)


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    """Finish up and end as the signal would have ended the process."""
    try:
        flush()
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_stop = threading.Event()
_is_stop_noted = False


def should_stop() -> bool:
    """Whether the job has been asked to end: save a checkpoint now, and ``sys.exit(143)``.

    A job gets SIGTERM before its time limit if it may run again, and when it is stopped. From the first call
    on, which must be in the main thread, the signal no longer ends the program. An exit code other than 0
    lets a job at its time limit run again; 0 means that it has finished.
    """
    global _is_stop_noted
    if not _is_stop_noted:
        before = signal.getsignal(signal.SIGTERM)
        own = getattr(before, "__module__", "") == __name__  # these end the program

        def note(number: int, frame: FrameType | None) -> None:
            _stop.set()
            if callable(before) and not own:
                before(number, frame)

        signal.signal(signal.SIGTERM, note)
        _is_stop_noted = True
    return _stop.is_set()


def flush() -> None:
    """Write all log lines and metrics that are waiting, and save outputs that changed."""
    for finish in list(_at_end):
        try:
            finish()
        except Exception:
            _warn(f"cannot finish: {traceback.format_exc(limit=-1)}")


def _warn(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"openpai_tasks.runtime: {text.strip()}\n")


# Callbacks


class App:
    """Callbacks for the parts of a program's life; ``main`` runs only where its conditions hold."""

    EVENTS = ("start", "main", "end", "error")

    def __init__(self) -> None:
        self._callbacks: dict[str, list[tuple[Callable[..., Any], Callable[[], bool]]]] = {}

    def on(
        self,
        event: str,
        place: str | None = None,
        role: str | None = None,
        chief: bool | None = None,
    ) -> Callable[[Call], Call]:
        """Register a callback for an event, everywhere or only at a place, in a role, or in the chief.

        ``error`` callbacks get the exception; the others get nothing.
        """
        if event not in self.EVENTS:
            raise ValueError(f"unknown event {event!r}: expected one of {', '.join(self.EVENTS)}")
        if place not in (None, LOCAL, INTERACTIVE, BATCH):
            raise ValueError(f"unknown place {place!r}: expected {LOCAL}, {INTERACTIVE} or {BATCH}")

        def fits() -> bool:
            here = where()
            return (
                place in (None, here.place)
                and (role is None or _key(role) == _key(here.role))
                and chief in (None, is_chief())
            )

        def register(callback: Call) -> Call:
            self._callbacks.setdefault(event, []).append((callback, fits))
            return callback

        return register

    def run(self) -> Any:
        """Call ``start``, ``main``, on failure ``error``, and always ``end``; return the last main's result.

        A job that is stopped gets SIGTERM, which ends ``main`` with SystemExit(143).
        """
        with contextlib.ExitStack() as stack:
            stack.callback(flush)
            stack.enter_context(_stop_as_exit())
            for callback in reversed(self._fitting("end")):
                stack.callback(callback)
            try:
                for callback in self._fitting("start"):
                    callback()
                result = None
                for callback in self._fitting("main"):
                    result = callback()
                return result
            except BaseException as error:
                if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                    self._report(error)
                raise

    def _report(self, error: BaseException) -> None:
        """Call the callbacks for errors; one that fails itself does not hide the error."""
        for callback in self._fitting("error"):
            try:
                callback(error)
            except Exception:
                traceback.print_exc()

    def _fitting(self, event: str) -> list[Callable[..., Any]]:
        return [callback for callback, fits in self._callbacks.get(event, ()) if fits()]


app = App()


@contextlib.contextmanager
def _stop_as_exit() -> Iterator[None]:
    """Turn SIGTERM into an exception, unless the program handles it itself."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # the callbacks run once
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    if before not in (signal.SIG_DFL, _end_by_signal):
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Outputs

_saved: dict[tuple[str, str], tuple[int, int]] = {}  # size and time of each file, by folder and name
_patterns: dict[tuple[str, str], int] = {}  # the process that asked for each folder and pattern


def save_outputs(*patterns: str) -> list[str]:
    """Copy matching files of the working folder to the output folder, now and when the process ends.

    A folder is copied with all files in it, ``**`` matches any folders. In a job of several tasks, each has
    its own folder, such as ``worker-1``. Return the names in the output folder; outside of a job, where files
    stay where they are, there are none.
    """
    root = os.getcwd()
    for pattern in patterns:
        if os.path.isabs(pattern) or ".." in pattern.split("/"):
            raise ValueError(f"invalid pattern {pattern!r}: expected a path below the working folder")
        _patterns.setdefault((root, pattern), os.getpid())
    if _save_again not in _at_end:
        _at_end.append(_save_again)
    _watch_end()
    return [name for pattern in patterns for name in _save(root, pattern)]


def _save_again() -> None:
    """Save what changed since; a forked process leaves that to its parent."""
    for (root, pattern), process in list(_patterns.items()):
        if process == os.getpid():
            _save(root, pattern)


def _save(root: str, pattern: str) -> list[str]:
    here = where()
    if here.output is None:
        return []
    names = []
    for name in sorted(_files(root, pattern, here.output)):
        target = os.path.join(here.label, name) if here.count > 1 else name
        facts = os.stat(os.path.join(root, name))
        seen = (facts.st_size, facts.st_mtime_ns)
        if _saved.get((root, name)) != seen:
            with _replacing(os.path.join(here.output, target)) as part:
                shutil.copy2(os.path.join(root, name), part)
            _saved[root, name] = seen
        names.append(target)
    return names


def _files(root: str, pattern: str, output: str) -> Iterator[str]:
    """Yield the names of the files that match, or are in folders that match."""
    kept = os.path.realpath(output)
    for match in glob.iglob(os.path.join(glob.escape(root), pattern), recursive=True):
        inside = ((match, [], [""]),) if os.path.isfile(match) else os.walk(match)
        for folder, _, files in inside:
            if os.path.realpath(folder).startswith(kept + os.sep) or os.path.realpath(folder) == kept:
                continue
            for file in files:
                path = os.path.join(folder, file) if file else folder
                if os.path.isfile(path):
                    yield os.path.relpath(path, root)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield a temporary name, which listings of outputs leave out, and rename that file to the path."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = os.path.join(os.path.dirname(path), f"{PART}{int(time.time()):08x}{os.urandom(4).hex()}")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        _remove(part)
        raise


# Checkpoints

_NUMBERED = re.compile(r"(\d{8,})\.json")
_DATA = re.compile(r"(\d{8,})-[0-9a-f]{8}(\.\w+)?")


def checkpoint(name: str = "state", keep: int = 3) -> Checkpoint:
    """Return the checkpoints with this name; a suffix such as ``state.npz`` becomes that of their files."""
    return Checkpoint(name, keep)


class Checkpoint:
    """Numbered checkpoints on the job's storage, of which the last few are kept.

    A checkpoint counts only with its manifest, which is written last and has the sizes and checksums of its
    files; so an incomplete or damaged one is never returned. Only one task should save under a name.
    """

    def __init__(self, name: str, keep: int) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9]+)?", name):
            raise ValueError(f"invalid name {name!r}: letters, digits, _ and -, with or without a suffix")
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.name, self.keep = name, keep
        self.folder, self._remote, *self._earlier = _checkpoint_places(name)

    def save(self, write: Callable[[str], object]) -> str:
        """Call ``write`` with a new path, at which it creates a file or a folder, and keep the result.

        Return the path. Once this returns, the checkpoint survives a kill at any moment, and so do
        the metrics and log lines before it.
        """
        for lines in _writers:
            lines.flush()
        os.makedirs(self.folder, exist_ok=True)
        number = max([0, *_numbers_in(self.folder), *(self._remote.numbers() if self._remote else ())]) + 1
        data = f"{number:08d}-{os.urandom(4).hex()}{os.path.splitext(self.name)[1]}"
        path = os.path.join(self.folder, data)
        try:
            write(path)
            manifest = {"data": data, "time": time.time(), "files": _summary(path, sync=True)}
            _write_whole(os.path.join(self.folder, f"{number:08d}.json"), json.dumps(manifest).encode())
        except BaseException:
            _remove(path)
            raise
        if self._remote:
            self._remote.send(self.folder, number, manifest)
        self._forget(number)
        return path

    def latest(self) -> str | None:
        """Return the path of the newest complete checkpoint, of this job or an earlier one, or None."""
        for place in [self.folder, *([self._remote] if self._remote else []), *self._earlier]:
            path = place.fetch_latest(self.folder) if isinstance(place, _Hdfs) else _newest(place)
            if path:
                return path
        return None

    def _forget(self, newest: int) -> None:
        """Remove all but the last checkpoints, and what killed processes left."""
        kept = sorted(_numbers_in(self.folder))[-self.keep :]
        for entry in os.listdir(self.folder):
            found = _NUMBERED.fullmatch(entry)
            if found and int(found[1]) not in kept:
                _remove(os.path.join(self.folder, entry))
        named = {_manifest(self.folder, number).get("data") for number in kept}
        for entry in os.listdir(self.folder):
            found = _DATA.fullmatch(entry)
            if entry.startswith(PART) or (found and int(found[1]) < newest and entry not in named):
                _remove(os.path.join(self.folder, entry))
        if self._remote:
            self._remote.forget(self.keep)


def _checkpoint_places(name: str) -> list[Any]:
    """Return the folder to save in, its copy in HDFS if there is one, and the places of earlier jobs."""
    env, here = os.environ, where()
    inside = (OWN, "checkpoints", name)
    if here.output is None:
        return [os.path.abspath(os.path.join(".openpai", "checkpoints", name)), None]
    earlier = [
        job
        for job in env.get(EARLIER_JOBS, "").split()
        if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._~-]*", job)
    ]
    urls = env.get(OUTPUT_URLS, "").split()
    if not urls:
        jobs = os.path.dirname(os.path.dirname(here.output))
        found = [os.path.join(jobs, job, "output", *inside) for job in earlier]
        return [os.path.join(here.output, *inside), None, *found]
    # apart from what is uploaded
    local = os.path.join(os.path.dirname(here.output), ".pai-checkpoints", name)
    user = env.get(OUTPUT_USER, "")
    jobs_of = [url.rpartition("/")[0].rpartition("/")[0] for url in urls]
    remote = [_Hdfs([f"{jobs}/{job}/output/{'/'.join(inside)}" for jobs in jobs_of], user) for job in earlier]
    return [local, _Hdfs([f"{url}/{'/'.join(inside)}" for url in urls], user), *remote]


def _newest(folder: str) -> str | None:
    found = (_verified(folder, number) for number in sorted(_numbers_in(folder), reverse=True))
    return next(filter(None, found), None)


def _numbers_in(folder: str) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [int(found[1]) for found in map(_NUMBERED.fullmatch, names) if found]


def _verified(folder: str, number: int) -> str | None:
    """Return the path of the checkpoint if its files are what its manifest says."""
    manifest = _manifest(folder, number)
    data = manifest.get("data")
    if isinstance(data, str) and _DATA.fullmatch(data):
        path = os.path.join(folder, data)
        with contextlib.suppress(OSError):
            if os.path.lexists(path) and _summary(path) == manifest.get("files"):
                return path
    _warn(f"checkpoint {number} in {folder} is damaged; trying the one before it")
    return None


def _manifest(folder: str, number: int) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, f"{number:08d}.json"), "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _summary(path: str, sync: bool = False) -> dict[str, list[int]]:
    """Return the size and checksum of each file at the path, by its name below it."""
    if os.path.isdir(path):
        paths = [os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files]
    elif os.path.isfile(path):
        paths = [path]
    else:
        raise FileNotFoundError(f"the function that writes the checkpoint created nothing at {path}")
    found = {("" if one == path else os.path.relpath(one, path)): _checksum(one, sync) for one in paths}
    for folder in {os.path.dirname(one) for one in [*paths, path]} if sync else ():
        _sync_folder(folder)
    return found


def _checksum(path: str, sync: bool) -> list[int]:
    size = crc = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
        if sync:
            os.fsync(file.fileno())
    return [size, crc]


def _write_whole(path: str, content: bytes) -> None:
    """Write a file so that it is never seen incomplete."""
    with _replacing(path) as part, open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(os.path.dirname(path))


def _sync_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # not every storage can
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.remove(path)


_LARGEST_ANSWER = 64 << 20  # bytes of a manifest or a listing
_ANSWER_SECONDS = 60.0  # for a whole answer that has no data, and for each wait for data
_DATA_SECONDS = 600.0  # for the beginning of an answer with data
_SLOWEST = 10_000  # bytes of an upload in a second


def _call_within(seconds: float, ask: Callable[[], Result]) -> Result:
    """Call a function in a thread, and limit its total time: urllib limits only the time of each read."""
    found: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="pai-ask", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends
        return ask()
    thread.join(seconds)
    if errors and not isinstance(errors[0], TimeoutError):  # a read may time out at the same moment
        raise errors[0]
    if not found:
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    return found[0]


class _Hdfs:
    """A folder of checkpoints in HDFS, by its address at each name node."""

    def __init__(self, urls: list[str], user: str) -> None:
        self._urls, self._user = urls, user

    def numbers(self) -> list[int]:
        return [int(found[1]) for found in map(_NUMBERED.fullmatch, self._list()) if found]

    def send(self, folder: str, number: int, manifest: Mapping[str, Any]) -> None:
        """Upload the files, and then the manifest that makes them count."""
        data = str(manifest["data"])
        for name in manifest["files"]:
            self._put(f"{data}/{name}".rstrip("/"), os.path.join(folder, data, name).rstrip("/"))
        self._put(f"{number:08d}.json", os.path.join(folder, f"{number:08d}.json"))

    def fetch_latest(self, folder: str) -> str | None:
        """Download the newest complete checkpoint into the folder, and return its path."""
        os.makedirs(folder, exist_ok=True)
        for number in sorted(self.numbers(), reverse=True):
            try:
                manifest = json.loads(self._ask("GET", f"{number:08d}.json", "OPEN"))
                self._fetch(manifest, folder)
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                _warn(f"checkpoint {number} cannot be fetched ({error}); trying the one before it")
                continue
            _write_whole(os.path.join(folder, f"{number:08d}.json"), json.dumps(manifest).encode())
            path = _verified(folder, number)
            if path:
                return path
            _remove(os.path.join(folder, f"{number:08d}.json"))
        return None

    def _fetch(self, manifest: Mapping[str, Any], folder: str) -> None:
        data = str(manifest["data"])
        if not _DATA.fullmatch(data):
            raise ValueError(f"invalid name {data!r}")
        for name in manifest["files"]:
            target = os.path.normpath(os.path.join(folder, data, name))
            if not (target + os.sep).startswith(os.path.join(folder, data) + os.sep):
                raise ValueError(f"invalid name {name!r}")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._download(f"{data}/{name}".rstrip("/"), target)

    def forget(self, keep: int) -> None:
        """Remove all but the last checkpoints, manifests first."""
        with contextlib.suppress(OSError):
            names = [f"{number:08d}" for number in sorted(self.numbers())[:-keep]]
            for name in names:
                self._ask("DELETE", f"{name}.json", "DELETE")
            for entry in self._list() if names else ():
                if entry.partition("-")[0] in names:
                    self._ask("DELETE", entry, "DELETE", recursive="true")

    def _list(self) -> list[str]:
        import urllib.error

        try:
            found = json.loads(self._ask("GET", "", "LISTSTATUS"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return [entry["pathSuffix"] for entry in found["FileStatuses"]["FileStatus"]]

    def _put(self, name: str, path: str) -> None:
        """Upload a file: the name node redirects to a data node, which gets the content."""
        import urllib.error
        import urllib.request

        class Redirect(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        opener = urllib.request.build_opener(Redirect)

        def once(url: str) -> None:
            address = self._address(url, name, "CREATE", overwrite="true")
            asked = urllib.request.Request(address, method="PUT")
            try:
                _call_within(_ANSWER_SECONDS, lambda: opener.open(asked, timeout=_ANSWER_SECONDS).close())
            except urllib.error.HTTPError as error:
                if error.code != 307:
                    raise
                address = error.headers["Location"]
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                headers = {"Content-Length": str(size)}
                request = urllib.request.Request(address, data=file, headers=headers, method="PUT")
                limit = _DATA_SECONDS + size / _SLOWEST
                _call_within(limit, lambda: opener.open(request, timeout=_DATA_SECONDS).close())

        self._try_each(once)

    def _download(self, name: str, path: str) -> None:
        import urllib.request

        def once(url: str) -> None:
            address = self._address(url, name, "OPEN")
            opened = _call_within(
                _DATA_SECONDS, lambda: urllib.request.urlopen(address, timeout=_DATA_SECONDS)
            )
            with opened as answer, open(path, "wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)

        self._try_each(once)

    def _ask(self, method: str, name: str, operation: str, **options: str) -> bytes:
        """Return a small answer; one that takes too long is an error."""
        import urllib.request

        def once(url: str) -> bytes:
            address = self._address(url, name, operation, **options)
            request = urllib.request.Request(address, method=method)
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return bytes(answer.read(_LARGEST_ANSWER))

        return self._try_each(lambda url: _call_within(_ANSWER_SECONDS, lambda: once(url)))

    def _address(self, url: str, name: str, operation: str, **options: str) -> str:
        from urllib.parse import quote, urlencode

        path = f"{url}/{quote(name)}".rstrip("/")
        return f"{path}?{urlencode({'op': operation, **options})}&user.name={self._user}"

    def _try_each(self, once: Callable[[str], Result]) -> Result:
        """Try each name node, several times: one may be on standby or not ready."""
        import urllib.error

        pauses = iter((1, 3, 6))
        while True:
            for url in self._urls:
                try:
                    return once(url)
                except urllib.error.HTTPError as error:
                    failure: OSError = error
                    if error.code == 404:
                        raise
                except OSError as error:
                    failure = error
            pause = next(pauses, 0)
            if not pause:
                raise failure
            time.sleep(pause)


# Lines of JSON

_writers: list[_Lines] = []


class _Lines:
    """Lines that a thread writes in order, so that the program never waits for a slow storage.

    Each line is written at once, and several in one call only if they fit. When too many are waiting, new
    ones are dropped and counted.
    """

    def __init__(self, kind: str, seconds: float) -> None:
        self._kind, self._seconds = kind, seconds
        self._waiting: collections.deque[Any] = collections.deque()
        self._reset()
        _writers.append(self)
        _at_end.append(self.flush)
        _watch_end()
        os.register_at_fork(after_in_child=self._reset)
        from multiprocessing import util

        util.register_after_fork(self, _Lines._flush_in_child)

    def _reset(self) -> None:
        """Start afresh in a forked process, where the thread is missing and the parent writes what waits."""
        self._waiting.clear()
        self._batch: list[Any] = []
        self._file: int | None = None
        self._failed = False
        self._lock, self._awake, self._is_awake = threading.RLock(), threading.Event(), False
        self._thread: threading.Thread | None = None
        self._dropped = self._reported = 0  # each is changed by one side only

    def _flush_in_child(self) -> None:
        """Flush at the end of a process of multiprocessing, which runs no other exit handlers."""
        from multiprocessing import util

        util.Finalize(self, self.flush, exitpriority=0)

    def put(self, item: Any) -> None:
        self._waiting.append(item)
        if not self._is_awake:
            self._wake()

    def drop(self) -> None:
        """Count a line that does not fit."""
        self._dropped += 1
        if not self._is_awake:
            self._wake()

    def _wake(self) -> None:
        self._is_awake = True
        self._awake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"pai-{self._kind}", daemon=True)
            with contextlib.suppress(RuntimeError):  # while the interpreter ends, flush() writes the rest
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._awake.wait()
            time.sleep(self._seconds)
            self._awake.clear()
            self._is_awake = False  # what was added before is flushed now, what comes later wakes again
            try:
                self.flush()
            except Exception:
                self._fail(traceback.format_exc(limit=-1))

    def flush(self) -> None:
        """Write all lines that are waiting now."""
        if not self._lock.acquire(timeout=STOP_SECONDS):
            return
        try:
            self._batch += [self._waiting.popleft() for _ in range(len(self._waiting))]
            dropped = self._dropped
            if self._batch or dropped > self._reported:
                self._write([*self.encode(self._batch), *self.report_dropped(dropped - self._reported)])
                self._reported = dropped
                self.written(self._batch)
                self._batch = []
        finally:
            self._lock.release()

    def _write(self, lines: list[str]) -> None:
        try:
            target = 2 if self._open() is None else self._file
            limit = 4096 if target == 2 else 1 << 16  # what a pipe takes without mixing it with others' lines
            for text in _joined(lines, limit):
                while text:
                    text = text[os.write(target or 2, text) :]
        except OSError as error:
            self._fail(f"cannot write {len(lines)} line{'s'[: len(lines) != 1]} of {self._kind}: {error}")

    def _open(self) -> int | None:
        if self._file is None:
            here = where()
            if here.output is None:
                return None
            folder = os.path.join(here.output, OWN, self._kind)
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"{here.label}-{here.attempt}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        return self._file

    def _fail(self, text: str) -> None:
        """Report the first failure; the program goes on."""
        if not self._failed:
            self._failed = True
            _warn(text)

    def encode(self, batch: list[Any]) -> list[str]:
        raise NotImplementedError

    def report_dropped(self, count: int) -> list[str]:
        raise NotImplementedError

    def written(self, batch: list[Any]) -> None:
        """Take note of what was written."""


def _joined(lines: Iterable[str], limit: int) -> Iterator[bytes]:
    """Join lines of ASCII to pieces of at most ``limit`` bytes; a longer line is a piece of its own."""
    piece: list[str] = []
    size = 0
    for line in lines:
        if piece and size + len(line) >= limit:
            yield "\n".join([*piece, ""]).encode()
            piece, size = [], 0
        piece.append(line)
        size += len(line) + 1
    if piece:
        yield "\n".join([*piece, ""]).encode()


# Logging


class _LogLines(_Lines):
    """Log lines, bounded by their size in memory."""

    def __init__(self) -> None:
        super().__init__("logs", 0.2)

    def _reset(self) -> None:
        super()._reset()
        self._added = self._done = 0  # each is changed by one side only
        here = where()
        self._source = {"job": here.job, "role": here.role, "index": here.index, "attempt": here.attempt}

    def add(self, line: dict[str, Any], more: dict[str, str]) -> None:
        """Add a line; the caller holds the handler's lock."""
        size = 200 + len(line["message"]) + sum(map(len, more.values()))
        if self._added - self._done + size > LOG_BYTES:
            self.drop()
            return
        self._added += size
        self.put((size, line, more))

    def encode(self, batch: list[Any]) -> list[str]:
        return [json.dumps({**line, **self._source, **more}) for _, line, more in batch]

    def report_dropped(self, count: int) -> list[str]:
        if not count:
            return []
        text = f"{count} log lines were dropped: they came faster than they could be written"
        line = {"time": time.time(), "level": "WARNING", "logger": "openpai_tasks.runtime", "message": text}
        return self.encode([(0, line, {})])

    def written(self, batch: list[Any]) -> None:
        self._done += sum(size for size, _, _ in batch)


class JsonHandler(logging.Handler):
    """A handler that writes records as lines of JSON, from a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = _LogLines()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = {
                "time": record.created,
                "level": record.levelname,
                "logger": record.name,
                "message": record.getMessage(),
            }
            more = {}
            if record.exc_info and record.exc_info[0]:
                more["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            self._lines.add(line, more)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self._lines.flush()


_handler: JsonHandler | None = None


def setup_logging(level: Any = "INFO", logger: str = "") -> JsonHandler:
    """Write the records of a logger (default: all) as lines of JSON to the job's output folder.

    Lines keep their order, and the program never waits for them: they wait in memory (32 MB) for a thread
    that writes them; beyond that, new lines are dropped and their number is logged. What was logged to the
    terminal before still is. Without an output folder, the lines go to stderr.
    """
    global _handler
    if _handler is None:
        _handler = JsonHandler()
    chosen = logging.getLogger(logger)
    chosen.setLevel(level)
    if _handler not in chosen.handlers:
        if where().output is not None and not chosen.hasHandlers():
            chosen.addHandler(logging.StreamHandler())  # the last resort of `logging` no longer applies
        chosen.addHandler(_handler)
    return _handler


# Metrics


class _Points(_Lines):
    """Points of metrics, and TensorBoard's event files where it is installed."""

    def __init__(self) -> None:
        super().__init__("metrics", 1.0)

    def _reset(self) -> None:
        super()._reset()
        here = where()
        self._source = {"role": here.role, "index": here.index, "attempt": here.attempt}
        self._board: Any = None

    def encode(self, batch: list[Any]) -> list[str]:
        return [
            json.dumps({"time": when, "name": name, "value": value, "step": step, **self._source})
            for when, name, value, step in batch
        ]

    def report_dropped(self, count: int) -> list[str]:
        if count:
            points = "1 point" if count == 1 else f"{count} points"
            _warn(f"{points} of metrics came faster than they could be written, and were dropped")
        return []

    def written(self, batch: list[Any]) -> None:
        try:
            if self._board is None:
                self._board = _open_board() or False
            if self._board:
                self._board(batch)
        except (OSError, ValueError) as error:
            self._fail(f"cannot write event files: {error}")


_points: _Points | None = None


def log_metric(name: str, value: Any, step: Any = None) -> None:
    """Record a number, such as ``log_metric("loss", 0.3, step=10)``; it is written within a second.

    NumPy's and PyTorch's scalars are numbers too.
    """
    global _points
    if type(name) is not str:
        raise TypeError(f"the name of a metric must be text, got {name!r}")
    point = (time.time(), name, _number(value, name), None if step is None else _number(step, "step"))
    if _points is None:
        _points = _Points()
    if len(_points._waiting) >= METRIC_POINTS:
        _points.drop()
    else:
        _points.put(point)


def _number(value: Any, name: str) -> Any:
    """Return a value as an int or float."""
    try:
        found = value.item() if hasattr(value, "item") else value
        if isinstance(found, (bool, int)):
            return int(found)
        if isinstance(found, (str, bytes)):
            raise TypeError("it is text")
        return float(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be one number, got {type(value).__name__}: {error}") from error


# TensorBoard's event files, written by hand: its own writer needs threads, which no longer start at the exit


def _open_board() -> Callable[[list[Any]], None] | None:
    """Return a function that adds points to an event file; None without TensorBoard or an output folder."""
    from importlib.util import find_spec

    here = where()
    if here.output is None or find_spec("tensorboard") is None:
        return None
    folder = os.path.join(here.output, "tensorboard", f"{here.label}-{here.attempt}")
    name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.0"

    def append(events: list[bytes]) -> None:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "ab") as file:
            file.write(b"".join(map(_record, events)))

    append([b"\x09" + struct.pack("<d", time.time()) + _field(3, b"brain.Event:2")])
    return lambda batch: append([_event(*point) for point in batch])


def _event(when: float, name: str, value: float, step: float | None) -> bytes:
    """Return the protocol buffer of an event with one value."""
    try:
        number = struct.pack("<f", value)
    except OverflowError:
        number = struct.pack("<f", math.copysign(math.inf, value))
    point = _field(1, name.encode("utf-8", "replace")) + b"\x15" + number
    head = b"\x09" + struct.pack("<d", when) + b"\x10" + _varint(int(step or 0))
    return head + _field(5, _field(1, point))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _record(event: bytes) -> bytes:
    """Return an event as a record: its size and the checksum of that, the event and its checksum."""
    size = struct.pack("<Q", len(event))
    return size + _mask_crc(_crc32c(size)) + event + _mask_crc(_crc32c(event))


def _mask_crc(crc: int) -> bytes:
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(text: bytes) -> int:
    crc, table = 0xFFFFFFFF, _crc32c_table()
    for byte in text:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.lru_cache(maxsize=1)
def _crc32c_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table
