"""Runs one task and outlives the server: a script of its own that needs nothing but the standard library.

    python -I -S runner.py SHELL GRACE BELL BOOT [FOLDER]

With FOLDER it becomes the runner of that task. Without, it reads folders (each ended by a NUL) from
its input and forks a runner for each, which costs a millisecond where a new interpreter costs twenty;
it becomes a child of init and says its number on its output, and ends with its input; its runners do not.

In FOLDER, ``command`` is the script and ``environment`` its variables (``NAME=value``, each ended by a
NUL), which are added to those in the ``environment`` beside FOLDER. The runner holds a lock on ``lock`` as
long as it lives and makes ``started`` exactly once, so a task never runs twice; ``exit`` appears, whole,
when everything the task started is gone. TERM ends the task: its process group is asked, and after GRACE
seconds all that is left of it is killed. ``beside``, if it is there, holds the words (each ended by a NUL) of
a program that runs beside the task, with its variables, from its beginning to its end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

CHUNK = 1 << 18
LINGER = 1.0  # seconds to wait for output of processes that have left the group and cannot be found
MANY_VARIABLES = 300  # as many as make bash slow to start
GIVE_UP = 30.0  # seconds after which a process that cannot be killed is left behind
ATOMIC = 512  # bytes that any system writes into a pipe at once
RESTARTS = 3  # of what runs beside the task, when it was killed
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
F_SETPIPE_SZ = 1031
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
CHANGED = (*HANDLED, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)  # Python itself ignores the last two


class Options(NamedTuple):
    shell: str
    grace: float
    bell: str
    boot: str


def _find_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
        return found
    except (ImportError, OSError, AttributeError):
        return None


prctl = _find_prctl()


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def claim(text: str) -> bool:
    """Make ``started``, which only one process ever can."""
    try:
        handle = os.open("started", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    os.write(handle, text.encode())
    os.close(handle)
    return True


class Runner:
    """One task, from its first process to its last; the working directory is the task's folder."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.term = False  # a stop was asked for
        self.kill_at: float | None = None  # when the grace is over
        self.over_at: float | None = None  # when the killing began
        self.main = 0
        self.beside = 0
        self.restarts = RESTARTS
        self.status: int | None = None
        self.childless = False
        self.last_output = 0.0
        self.lost = 0
        self.logs: dict[int, int] = {}  # pipe -> its own log
        self.poller = select.poll()

    def listen(self) -> None:
        """From here on TERM is a request, and signals end a poll."""
        self.bell, ring = os.pipe()
        os.set_blocking(ring, False)
        os.set_blocking(self.bell, False)
        for number in HANDLED:
            signal.signal(number, self.on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        self.poller.register(self.bell, select.POLLIN)

    def on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.term = True

    def run(self) -> None:
        began = milliseconds()
        if prctl:
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.start()
        while not self.finished():
            for pipe, _ in self.poller.poll(self.patience()):
                self.copy(pipe)
            self.reap()
            self.advance()
        self.write_exit(began)

    def start(self) -> None:
        """Fork the shell, in a process group of its own, with a pipe for each output."""
        self.all = open_log("all")
        outputs = [os.pipe() for _ in range(2)]
        for name, (end, _) in zip(("stdout", "stderr"), outputs, strict=True):
            widen(end)
            self.logs[end] = open_log(name)
            self.poller.register(end, select.POLLIN)
        runner = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # one that comes now is for the shell, not lost
        self.start_beside(runner)
        self.main = os.fork()
        if self.main == 0:
            become_task(self.options.shell, runner, outputs[0][1], outputs[1][1])
        join_group(self.main)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        for _, end in outputs:
            os.close(end)
        write_whole("group", str(self.main))

    def start_beside(self, runner: int) -> None:
        """Fork what runs beside the task, if anything is to; it may fail without harm to the task."""
        words = read_words("beside")
        if words:
            self.beside = os.fork()
            if self.beside == 0:
                become_beside(words, runner)
            join_group(self.beside)

    def restart_beside(self, status: int) -> None:
        """Once more if it was killed; one that ended by itself had its reason."""
        self.beside = 0
        if os.WIFSIGNALED(status) and self.restarts and self.over_at is None:
            self.restarts -= 1
            self.start_beside(os.getpid())

    def copy(self, pipe: int) -> None:
        """Move what is there; a full disk costs output, never the task."""
        if pipe == self.bell:
            os.read(pipe, CHUNK)
            return
        data = os.read(pipe, CHUNK)
        if not data:
            self.poller.unregister(pipe)
            os.close(pipe)
            os.close(self.logs.pop(pipe))
            return
        self.last_output = time.monotonic()
        for log in (self.logs[pipe], self.all):
            try:
                write_all(log, data)
            except OSError:
                self.lost += len(data)

    def reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.main:
                    self.status = status
                elif pid == self.beside:
                    self.restart_beside(status)
        except ChildProcessError:
            self.childless = True

    def advance(self) -> None:
        """Ask the task to end, or make it, when it is time to."""
        if self.over_at is not None or self.is_time_to_kill():
            self.kill_rest()
        elif self.term and self.kill_at is None:
            self.kill_at = time.monotonic() + self.options.grace
            signal_group(self.main, signal.SIGTERM)

    def is_time_to_kill(self) -> bool:
        """Once the command has ended, or, when asked to stop, also all it started, or the grace is over."""
        if self.kill_at is None:
            return self.status is not None
        if time.monotonic() >= self.kill_at:
            return True
        return self.status is not None and not signal_group(self.main, 0)

    def kill_rest(self) -> None:
        """Kill the group, and what has left it; as a subreaper that is every child we find."""
        if self.over_at is None:
            self.over_at = time.monotonic()
        if self.childless and prctl:
            return
        signal_group(self.main, signal.SIGKILL)
        if self.beside:
            signal_group(self.beside, signal.SIGKILL)
        for pid in children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.reap()

    def finished(self) -> bool:
        if self.over_at is None or self.status is None:
            return False
        if self.childless and not self.logs:
            return True
        quiet_since = max(self.over_at, self.last_output)
        waited = time.monotonic() - (quiet_since if self.childless else self.over_at)
        return waited > (LINGER if self.childless else GIVE_UP)

    def patience(self) -> int | None:
        """Milliseconds until something must be done even if nothing happens."""
        if self.over_at is not None:
            return 20
        if self.kill_at is None:
            return None
        if self.status is not None:
            return 50
        return max(0, int((self.kill_at - time.monotonic()) * 1000)) + 1

    def write_exit(self, began: int) -> None:
        """Say how it ended; on a full disk, wait for room rather than lose the exit code."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        stopped = int(self.kill_at is not None)
        text = f"code {code}\nstopped {stopped}\nbegan {began}\nended {milliseconds()}\nlost {self.lost}\n"
        while True:
            try:
                write_whole("exit", text)
                return
            except OSError as err:
                if err.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                time.sleep(1)


def become_task(shell: str, runner: int, stdout: int, stderr: int) -> NoReturn:
    """Turn this fork into the task's shell."""
    try:
        leave(runner, stdout, stderr)
        variables = read_environment()
        script = os.path.abspath("command")
        strict = ["-eu"] if os.path.basename(shell) == "sh" else ["-eu", "-o", "pipefail"]
        if len(strict) > 1 and len(variables) > MANY_VARIABLES:
            hasten(variables)
        os.chdir("work")
        os.execve(shell, [shell, *strict, script], variables)
    except OSError as err:
        os.write(2, f"cannot run {shell}: {err.strerror}\n".encode())
    os._exit(126)


def become_beside(words: list[bytes], runner: int) -> NoReturn:
    """Turn this fork into what runs beside the task."""
    try:
        log = os.open("beside.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        leave(runner, log, log)
        os.execve(words[0], words, read_environment())
    except OSError as err:
        os.write(2, f"cannot run {os.fsdecode(words[0])}: {err.strerror}\n".encode())
    os._exit(126)


def leave(runner: int, stdout: int, stderr: int) -> None:
    """In a fork: be a process group that dies with the runner, with these outputs and the usual signals."""
    join_group(0)
    if prctl:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != runner:
            os._exit(137)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in CHANGED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def read_words(path: str) -> list[bytes]:
    """What ``path`` holds, or nothing where it is missing."""
    try:
        with open(path, "rb") as file:
            return file.read().split(b"\0")[:-1]
    except FileNotFoundError:
        return []


def read_environment() -> dict[bytes, bytes]:
    """What the task shares with all others of its attempt, and what is its own."""
    return {**shared_environment(os.path.abspath("..")), **read_variables("environment")}


def read_variables(path: str) -> dict[bytes, bytes]:
    with open(path, "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0") if entry)
        return {name: value for name, _, value in pairs}


known: tuple[object, dict[bytes, bytes]] = (None, {})
"""The last shared variables, with what tells whether they are still the same."""


def shared_environment(folder: str) -> dict[bytes, bytes]:
    """Read once for all tasks of an attempt, since each of very many has a few that all of them see."""
    global known
    path = os.path.join(folder, "environment")
    try:
        status = os.stat(path)
        mark = (path, status.st_mtime_ns, status.st_ino, status.st_size)
        if known[0] != mark:
            known = (mark, read_variables(path))
    except FileNotFoundError:
        return {}
    return known[1]


def hasten(variables: dict[bytes, bytes]) -> None:
    """Spare bash a step at its start that takes time with the square of the number of variables.

    It lists them all to find the locale, unless LC_ALL or LANG says it; the plain locale for LANG is
    what holds without it, and LC_ALL is gone again before the task's own script begins.
    """
    if b"LC_ALL" not in variables:
        write_whole("prologue", "unset LC_ALL BASH_ENV\n")
        prologue = os.fsencode(os.path.abspath("prologue"))
        variables.update({b"LC_ALL": b"C", b"BASH_ENV": prologue, b"LANG": variables.get(b"LANG") or b"C"})


def children() -> list[int]:
    """Our own child processes, where the system can tell."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [pid for pid in processes() if parent(pid) == me]


def processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def join_group(pid: int) -> None:
    """Both sides of a fork do this, so that neither has to wait for the other."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def signal_group(group: int, number: int) -> bool:
    """False when nobody is left in it."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def open_log(name: str) -> int:
    return os.open(f"logs/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def widen(pipe: int) -> None:
    """A larger pipe means fewer switches between a busy task and its runner."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, F_SETPIPE_SZ, 1 << 20)


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def write_whole(name: str, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{name}.new")  # the job may have put a pipe there
    handle = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(handle, text.encode())
    finally:
        os.close(handle)
    os.rename(f"{name}.new", name)


def ring(bell: str, folder: str) -> None:
    """Tell the server which task is over, if there is one now; it would find out a little later."""
    message = os.fsencode(folder) + b"\0"
    with contextlib.suppress(OSError):
        handle = os.open(bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(handle, message if len(message) <= ATOMIC else b"?\0")
        os.close(handle)


def run(folder: str, options: Options) -> None:
    """Be the runner of the task in ``folder``, unless there is or was one."""
    with contextlib.suppress(OSError):
        os.setsid()
    os.chdir(folder)
    runner = Runner(options)
    runner.listen()
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    if claim(f"{os.getpid()} {milliseconds()} {options.boot}\n"):
        runner.run()
        ring(options.bell, folder)


def run_apart(folder: str, options: Options) -> NoReturn:
    """In a fork: run, and leave a note when the runner itself fails."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        run(folder, options)
    except BaseException:
        os.dup2(os.open("runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def depart() -> None:
    """Leave the server, whose ancestors' variables are not for tasks; whoever waits learns our number."""
    if os.fork():
        os._exit(0)
    os.write(1, b"%d" % os.getpid())


def serve(options: Options) -> None:
    """Fork a runner for each folder that is named on the input."""
    depart()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the runners
    gc.disable()  # it would touch, and so copy, the memory that each fork shares with us
    rest = b""
    while data := os.read(0, CHUNK):
        *folders, rest = (rest + data).split(b"\0")
        for folder in map(os.fsdecode, folders):
            shared_environment(os.path.dirname(folder))
            if os.fork() == 0:
                run_apart(folder, options)


def main(arguments: list[str]) -> None:
    shell, grace, bell, boot, *folder = arguments
    options = Options(shell, float(grace), bell, boot)
    if folder:
        run(folder[0], options)
    else:
        serve(options)


if __name__ == "__main__":
    main(sys.argv[1:])
