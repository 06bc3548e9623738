"""The GPUs of this machine that tasks have, and those that others use: people, notebooks, other servers."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.server.engines.base import GpuShortage
from openpai_tasks.server.engines.runner import gpu_locks
from openpai_tasks.text.plurals import counted, name_some

if TYPE_CHECKING:
    from _socket import socket

PROGRAM = "nvidia-smi"
CSV = "--format=csv,noheader,nounits"
FRESH_SECONDS = 5.0  # that an answer of nvidia-smi counts
HUNG_SECONDS = 10.0  # after which jobs no longer wait for its answer
SHOW_SECONDS = 2.0  # that a request for the resources waits for it
IDLE_MB = (
    1024  # that a GPU may use without a process: drivers reserve up to 600, a process with data uses more
)
MOST_PIDS = 1 << 31
MOST_PROCESSES = 3  # of a GPU that are named


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_mb: int


@dataclass(frozen=True)
class Claim:
    """The lock of a GPU until the runner of the task has its own."""

    task: str  # its uid
    lock: socket


class GpuPool:
    """The GPUs of tasks. A GPU that others use goes to no task."""

    def __init__(self, gpus: tuple[Gpu, ...], notify: Callable[[], None]) -> None:
        """``notify`` is called when it is known anew what others use."""
        self._gpus = {gpu.index: gpu for gpu in sorted(gpus, key=lambda gpu: gpu.index)}
        self._held: dict[str, tuple[int, ...]] = {}  # by uid of a task
        self._claims: dict[int, Claim] = {}
        self._watch = GpuWatch(self._held_uuids, notify)

    def hold(self, held: Mapping[str, tuple[int, ...]]) -> None:
        """Learn the GPUs of unfinished tasks, by uid; all others are not ours."""
        self._held = dict(held)
        for index, one in list(self._claims.items()):
            if index not in held.get(one.task, ()):
                self._claims.pop(index).lock.close()

    def has_claim(self, uid: str) -> bool:
        return any(one.task == uid for one in self._claims.values())

    def release_locks(self, uid: str) -> None:
        """Leave the locks of a task's GPUs to its runner."""
        for index, one in list(self._claims.items()):
            if one.task == uid:
                self._claims.pop(index).lock.close()

    def release(self, uid: str) -> None:
        """Forget a task that has ended."""
        self._held.pop(uid, None)
        self.release_locks(uid)

    def take(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Choose GPUs for several tasks, by uid: for all of them, or raise GpuShortage.

        Tasks that want more than the machine has share all of its GPUs.
        """
        own = [index for held in self._held.values() for index in held if index in self._gpus]
        wanted = min(sum(max(0, count) for count in counts.values()), len(self._gpus) - len(set(own)))
        locks = self._lock(wanted, own) if wanted else {}
        found: dict[str, tuple[int, ...]] = {}
        for uid, count in counts.items():
            chosen = sorted(sorted({*locks, *own}), key=own.count)[: max(0, count)]
            own += chosen
            found[uid] = self._held[uid] = tuple(sorted(chosen))
            for index in [one for one in chosen if one in locks]:
                self._claims[index] = Claim(uid, locks.pop(index))
        return found

    def uuids_to_lock(self, uid: str, gpus: Iterable[int]) -> list[str]:
        """Return the GPUs that the runner of a task locks: those that no earlier task shares with it."""
        claims = {index: self._claims.get(index) for index in gpus if index in self._gpus}
        return [self._gpus[index].uuid for index, one in claims.items() if one is None or one.task == uid]

    def taken(self) -> dict[int, str]:
        """Return who uses the GPUs that no task here has, as last known if nvidia-smi is slow."""
        if not self._gpus:
            return {}
        used = self._watch.look(SHOW_SECONDS)
        return self._taken(self._watch.found if used is None else used)

    def types(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many GPUs of each name there are, and how many of them nobody was last known to use."""
        names = {index: gpu.name for index, gpu in self._gpus.items()}
        own = {index for held in list(self._held.values()) for index in held}
        used = own | set(self._taken(self._watch.found))
        free = Counter(name for index, name in names.items() if index not in used)
        return Counter(names.values()), Counter({name: free[name] for name in names.values()})

    def close(self) -> None:
        self._watch.close()
        self.hold({})

    def _lock(self, wanted: int, own: Collection[int]) -> dict[int, socket]:
        """Lock this many GPUs that nobody uses."""
        used = self._watch.look(0)
        if used is None:
            raise GpuShortage("")  # it is known soon
        locks: dict[int, socket] = {}
        for index, gpu in self._gpus.items():
            if len(locks) < wanted and index not in own and gpu.uuid not in used:
                lock = gpu_locks.claim(gpu.uuid)
                locks |= {index: lock} if lock else {}
        if len(locks) < wanted:
            for lock in locks.values():
                lock.close()
            taken = self._taken(used)
            held = dict.fromkeys(own, "a job of this cluster")
            raise GpuShortage(_shortage(wanted, len(locks), {**taken, **held}) if taken else "")
        return locks

    def _taken(self, used: Mapping[str, str]) -> dict[int, str]:
        own = self._held_uuids()
        others = {index: gpu.uuid for index, gpu in self._gpus.items() if gpu.uuid not in own}
        found = {index: _lock_holder(uuid) or used.get(uuid, "") for index, uuid in others.items()}
        return {index: who for index, who in found.items() if who}

    def _held_uuids(self) -> set[str]:
        held = {index for gpus in list(self._held.values()) for index in gpus}
        return {self._gpus[index].uuid for index in held if index in self._gpus}


class GpuWatch:
    """Asks nvidia-smi who uses GPUs: only if somebody looks, and in a thread, as it may hang."""

    def __init__(self, held: Callable[[], set[str]], notify: Callable[[], None]) -> None:
        """``held`` returns the GPUs of our own tasks, whose processes do not count."""
        self._held = held
        self._notify = notify
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._fresh_until = 0.0
        self.found: dict[str, str] = {}

    def look(self, seconds: float) -> dict[str, str] | None:
        """Return who uses which GPU, by UUID; None if that is not known within this time, but soon.

        If nvidia-smi hangs, nobody is known to use one.
        """
        with self._lock:
            if self._is_fresh():
                return self.found
            if self._thread is None or not self._thread.is_alive():
                if shutil.which(PROGRAM) is None:
                    return {}
                self._thread = threading.Thread(target=self._ask, name=PROGRAM, daemon=True)
                self._began = time.monotonic()
                self._thread.start()
        self._thread.join(seconds)
        if self._is_fresh():
            return self.found
        return {} if time.monotonic() - self._began > HUNG_SECONDS else None

    def close(self) -> None:
        self._notify = lambda: None

    def _is_fresh(self) -> bool:
        return time.monotonic() < self._fresh_until

    def _ask(self) -> None:
        """Ask once. Processes on GPUs that a task of ours had meanwhile are taken for its own."""
        held = self._held()
        apps = output(PROGRAM, "--query-compute-apps=gpu_uuid,pid", CSV)
        memory = output(PROGRAM, "--query-gpu=uuid,memory.used,display_active", CSV)
        users = gpu_users(apps, memory)
        held |= self._held()
        self.found = {uuid: who for uuid, who in users.items() if uuid not in held}
        self._fresh_until = time.monotonic() + FRESH_SECONDS
        with contextlib.suppress(OSError):  # the server is closing
            self._notify()


def _shortage(wanted: int, free: int, users: Mapping[int, str]) -> str:
    words = [f"GPU {index} is used by {who}" for index, who in sorted(users.items())]
    is_free = f"{free or 'none'} {'are' if free > 1 else 'is'} free"
    return f"needs {counted(wanted, 'GPU')}; {is_free}: {', '.join(words)}"


def gpu_users(apps: str, memory: str) -> dict[str, str]:
    """Return who uses GPUs, by UUID, given nvidia-smi's lists of processes, and of the memory in use.

    Processes of other containers are in neither list nor /proc, but use memory. On a GPU with a screen, so do
    the programs on it.
    """
    found: dict[str, list[str]] = {}
    for uuid, pid in table(apps, 2):
        if (number := fields.count(pid)) < MOST_PIDS and (who := _process(number)):
            found.setdefault(uuid, []).append(who)
    for uuid, used, screen in table(memory, 3):
        if uuid not in found and screen != "Enabled" and fields.count(used) > IDLE_MB:
            found[uuid] = ["a process that is not visible here"]
    return {uuid: name_some(names, MOST_PROCESSES) for uuid, names in found.items()}


def table(listing: str, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a list of nvidia-smi; other lines are error messages."""
    rows = ([cell.strip() for cell in line.split(",")] for line in listing.splitlines())
    return (row for row in rows if len(row) == columns)


def output(program: str, *arguments: str) -> str:
    """Return the output of the program; empty if it is missing or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _process(pid: int) -> str:
    """Return the user and the program of a process; empty if it has ended."""
    try:
        user = _user(os.stat(f"/proc/{pid}").st_uid)
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            return f"{user} ({' '.join(file.read().split())}, pid {pid})"
    except OSError:
        return f"another user (pid {pid})" if _exists(pid) else ""


def _exists(pid: int) -> bool:
    """Whether there is such a process; the files of others' processes may be hidden."""
    try:
        os.kill(pid, 0)
    except OSError as err:
        return isinstance(err, PermissionError)
    return True


def _lock_holder(uuid: str) -> str:
    found = gpu_locks.holder(uuid)
    if found is None:
        return ""
    pid, uid = found
    return f"{_user(uid)} (a job of another server{f', pid {pid}' if pid else ''})"


@functools.lru_cache(maxsize=1000)  # a directory service may be slow
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}" if uid >= 0 else "another user"
