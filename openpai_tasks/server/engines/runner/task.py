"""One task, from its first process to its last."""

from __future__ import annotations

import contextlib
import os
import resource  # noqa: F401  # of wait4: loaded here, it is not loaded again in every fork
import select
import signal
import sys
import time
from collections.abc import Mapping

from . import files, memory, processes, usage
from .files import SharedVariables
from .processes import HANDLED, prctl, signal_group

TYPE_CHECKING = False  # loading ``typing`` takes long
if TYPE_CHECKING:
    import _socket

CHUNK = 1 << 18
LINGER = 1.0  # seconds to wait for output of processes that have left the group and cannot be found
LOCK_PAUSE = 500  # milliseconds between attempts to lock a GPU
GIVE_UP = 30.0  # seconds after which a process that cannot be killed is left behind
FLUSH_SECONDS = 0.3  # that output may stay on this machine
MOST_HELD = 1 << 20  # bytes of each log that are kept while the disk is full
HOLD_PAUSE = 0.5  # seconds between attempts to write them
HOLD_SECONDS = 60.0  # that the end of a task waits for them
SIDECAR_RESTARTS = 3
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
LINK = "link"  # a file with the path of a link at the root
STOP = "stop"  # a file that the server creates before it sends CONT


class RunnerOptions:
    def __init__(self, shell: str, grace: float, pipe: str, boot: str, flush: bool = False) -> None:
        """``flush`` if others read the logs on a file system that holds writes back."""
        self.shell, self.grace, self.pipe, self.boot, self.flush = shell, grace, pipe, boot, flush


class Runner:
    """Runs the task whose folder is the working directory."""

    def __init__(self, options: RunnerOptions, shared: SharedVariables) -> None:
        self.options = options
        self.shared = shared
        self.term = False  # a stop was requested
        self.kill_at: float | None = None  # when the grace period is over
        self.over_at: float | None = None  # when the killing began
        self.started = -1  # the handle whose lock shows that the task runs
        self.main = 0
        self.sidecar = 0
        self.restarts = SIDECAR_RESTARTS
        self.status: int | None = None
        self.childless = False
        self.last_output = 0.0
        self.lost = 0
        self.peak = 0  # bytes of its largest process
        self.cpu = 0.0  # seconds of all its processes
        self.group: memory.MemoryGroup | None = None
        self.cgroup = -1  # the handle through which processes join the group
        self.usage = usage.UsageRecorder()
        self.meter: usage.TaskMeter | None = None
        self.logs: dict[int, int] = {}  # pipe -> its own log
        self.unflushed: set[int] = set()  # logs
        self.flush_at: float | None = None
        self.held: dict[int, bytes] = {}  # by log, what the disk did not take yet
        self.retry_at: float | None = None
        self.times: files.OutputTimes | None = files.OutputTimes()
        self.unfinished = -1  # the pipe from which the last line of all output came, if it has no end yet
        self.gpus: dict[int, _socket.socket] = {}  # locks, by their handles
        self.poller = select.poll()

    def listen(self) -> None:
        """Treat TERM as a stop request, and let signals end a poll."""
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)
        for number in HANDLED:
            signal.signal(number, self.on_signal)
        signal.signal(signal.SIGCONT, self.check_stop_file)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        self.poller.register(self.wake_read, select.POLLIN)

    def on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.term = True

    def check_stop_file(self, _number: int, _frame: object) -> None:
        """Stop if the server has asked for it: some platforms can only signal all processes of a task."""
        if os.path.exists(STOP):
            self.term = True

    def run(self) -> int:
        began = files.milliseconds()
        if prctl:
            prctl(processes.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.lock_gpus()
        if self.status is None:
            self.start()
        while self.main and not self.finished():
            self.copy_ready([pipe for pipe, _ in self.poller.poll(self.poll_timeout())])
            self.reap()
            self.advance()
            self.write_held()
            self.flush()
            self.usage.advance()
        self.usage.end()
        self.finish_logs()
        return self.write_exit(began)

    def lock_gpus(self) -> None:
        """Lock the task's GPUs, which its server has reserved; after a crash of the server, wait for them.

        All runners do it in the same order, so that none waits for one that waits.
        """
        uuids = sorted(map(os.fsdecode, files.read_arguments("gpus")))
        if not uuids:
            return
        from . import gpu_locks  # few tasks need it

        for uuid in uuids:
            while (lock := gpu_locks.take(uuid, gpu_locks.RUNNING)) is None:
                for pipe, _ in self.poller.poll(LOCK_PAUSE):
                    os.read(pipe, CHUNK)
                if self.term:
                    self.status = signal.SIGTERM
                    return
            self.gpus[lock.fileno()] = lock
        for handle in self.gpus:
            self.poller.register(handle, select.POLLIN)

    def start(self) -> None:
        """Start the shell in a new process group, with a pipe for each output."""
        for path in files.read_arguments(LINK):
            from . import own_root  # few tasks need it

            own_root.enter(os.getcwd(), os.fsdecode(path))
        files.when_possible(files.make_folders)
        self.all = files.wait_for_log("all")
        outputs = [os.pipe() for _ in range(2)]
        for name, (end, _) in zip(("stdout", "stderr"), outputs, strict=True):
            files.enlarge_pipe(end)
            self.logs[end] = files.wait_for_log(name)
            self.poller.register(end, select.POLLIN)
        self.stderr = outputs[1][0]
        variables = files.when_possible(self.shared.read_all)
        self.group = files.when_possible(lambda: memory.group_of("."))
        if self.group:
            self.cgroup = files.when_possible(self.group.create)
        # What its users start joins the group, see ssh/enter.py.
        files.when_possible(lambda: self.start_sidecar(variables))
        shell = self.options.shell
        strict = ["-eu"] if os.path.basename(shell) == "sh" else ["-eu", "-o", "pipefail"]
        if len(strict) > 1 and len(variables) > files.MANY_VARIABLES:
            files.when_possible(lambda: files.skip_locale_search(variables))
        arguments = [shell, *strict, os.path.abspath("command")]
        ends = outputs[0][1], outputs[1][1]
        self.main = files.when_possible(
            lambda: processes.start_process(arguments, variables, "work", *ends, self.cgroup)
        )
        for _, end in outputs:
            os.close(end)
        with contextlib.suppress(OSError):  # the disk is full
            os.write(self.started, f"{self.main}\n".encode())
        if os.path.isdir("runtime"):  # which its container mounts
            self.meter = usage.ContainerMeter(variables.get(processes.UID, b""))
        else:
            self.meter = usage.TaskMeter(lambda: self.cpu, lambda: {self.sidecar}, self.group)
        if devices := variables.get(b"CUDA_VISIBLE_DEVICES"):
            self.meter.gpus = usage.GpuReader(os.fsdecode(devices), variables)
        self.usage.begin(self.meter.read)

    def start_sidecar(self, variables: Mapping[bytes, bytes]) -> None:
        """Start the sidecar, if there is one; its failure does not affect the task."""
        arguments = files.read_arguments("sidecar")
        if arguments:
            log = os.open("sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self.sidecar = processes.start_process(arguments, variables, ".", log, log)
            finally:
                os.close(log)

    def restart_sidecar(self, status: int) -> None:
        """Start the sidecar again if it was killed, but not if it ended by itself."""
        self.sidecar = 0
        if os.WIFSIGNALED(status) and self.restarts and self.over_at is None:
            self.restarts -= 1
            with contextlib.suppress(OSError):  # the disk is full
                self.start_sidecar(self.shared.read_all())

    def copy_ready(self, ready: list[int]) -> None:
        """Copy output such that a line ends, if it can, before one of the other output begins."""
        rests = [(pipe, self.copy(pipe)) for pipe in sorted(ready, key=lambda one: one != self.unfinished)]
        for pipe, rest in rests:
            if rest:
                self.write_merged(pipe, rest)
                self.unfinished = pipe

    def copy(self, pipe: int) -> bytes:
        """Copy output to the logs; return its last line if it has no end, which is not in ``all`` yet."""
        if pipe in self.gpus:
            from . import gpu_locks

            gpu_locks.answer(self.gpus[pipe])
            return b""
        data = os.read(pipe, CHUNK)
        if pipe == self.wake_read:
            return b""
        if not data:
            self.poller.unregister(pipe)
            os.close(pipe)
            log = self.logs.pop(pipe)
            if log not in self.held:
                self.unflushed.discard(log)
                os.close(log)
            return b""
        self.last_output = time.monotonic()
        self.write(self.logs[pipe], data)
        end = data.rfind(b"\n") + 1
        if end:
            self.write_merged(pipe, data[:end])
            self.unfinished = -1
        return data[end:]

    def write_merged(self, pipe: int, data: bytes) -> None:
        """Write to the log of both outputs, and record when; after lost output, no places are known."""
        if self.times and (self.lost or not self.times.add(pipe == self.stderr, len(data))):
            self.times = None
        if self.times and self.options.flush:
            self.unflushed.add(self.times.handle)
        self.write(self.all, data)

    def write(self, log: int, data: bytes) -> None:
        """Write to a log; what a full disk does not take is held, or lost if it is too much."""
        data = self.held.pop(log, b"") + data
        rest, is_full = files.write_some(log, data)
        if rest:
            self.held[log] = rest[: MOST_HELD if is_full else 0]
            self.lost += len(rest) - len(self.held[log])
            self.retry_at = time.monotonic() + HOLD_PAUSE
        if self.options.flush:
            self.unflushed.add(log)
            self.flush_at = self.flush_at or time.monotonic() + FLUSH_SECONDS

    def write_held(self) -> None:
        """Write what was held, if it is time to."""
        if self.retry_at is not None and time.monotonic() >= self.retry_at:
            self.retry_at = None
            for log in list(self.held):
                self.write(log, b"")

    def finish_logs(self) -> None:
        """Write what is still held; on a full disk, wait a while."""
        end = time.monotonic() + HOLD_SECONDS
        while any(self.held.values()) and time.monotonic() < end:
            time.sleep(HOLD_PAUSE)
            self.write_held()
        self.lost += sum(map(len, self.held.values()))

    def flush(self) -> None:
        """Send written output to the file server, if it is time to; otherwise that takes half a minute."""
        if self.flush_at is not None and time.monotonic() >= self.flush_at:
            for log in self.unflushed:
                with contextlib.suppress(OSError):
                    os.fdatasync(log)
            self.unflushed, self.flush_at = set(), None

    def reap(self) -> None:
        try:
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.sidecar:
                    self.restart_sidecar(status)
                    continue
                if self.meter and self.meter.is_own(pid):
                    continue
                if pid == self.main:
                    self.status = status
                    self.usage.due = None  # a later sample would see no process
                self.peak = max(self.peak, used.ru_maxrss * RSS_UNIT)
                self.cpu += used.ru_utime + used.ru_stime
        except ChildProcessError:
            self.childless = True

    def advance(self) -> None:
        """Stop or kill the task when it is time to."""
        if self.over_at is not None or self.is_time_to_kill():
            self.kill_rest()
        elif self.term and self.kill_at is None:
            self.kill_at = time.monotonic() + self.options.grace
            signal_group(self.main, signal.SIGTERM)

    def is_time_to_kill(self) -> bool:
        """Whether the command or, after a stop, all its processes have ended, or the grace period has."""
        if self.kill_at is None:
            return self.status is not None
        if time.monotonic() >= self.kill_at:
            return True
        return self.status is not None and not signal_group(self.main, 0)

    def kill_rest(self) -> None:
        """Kill the group and the processes that left it; for a subreaper these are all child processes."""
        if self.over_at is None:
            self.over_at = time.monotonic()
        if self.childless and prctl:
            return
        signal_group(self.main, signal.SIGKILL)
        if self.sidecar:
            signal_group(self.sidecar, signal.SIGKILL)
        for pid in processes.children():
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

    def poll_timeout(self) -> int | None:
        """Return the milliseconds until there is something to do even without an event."""
        found = self.until_next_step()
        times = [one for one in (self.flush_at, self.retry_at, self.usage.due) if one is not None]
        if not times:
            return found
        left = max(0, int((min(times) - time.monotonic()) * 1000)) + 1
        return left if found is None else min(left, found)

    def until_next_step(self) -> int | None:
        if self.over_at is not None:
            return 20
        if self.kill_at is None:
            return None
        if self.status is not None:
            return 50
        return max(0, int((self.kill_at - time.monotonic()) * 1000)) + 1

    def write_exit(self, began: int) -> int:
        """Write the exit of the task, and return its code; on a full disk, wait rather than lose it."""
        for lock in self.gpus.values():
            lock.close()  # the server may give the GPU to the next task as soon as it sees the exit
        code = os.waitstatus_to_exitcode(self.status or 0)
        stopped = int(self.kill_at is not None or (self.term and code == -signal.SIGTERM))
        ended = files.milliseconds()
        text = f"code {code}\nstopped {stopped}\nbegan {began}\nended {ended}\nlost {self.lost}\n"
        text += f"peak {self.peak}\ncpu {round(self.cpu * 1000)}\n"
        if self.group:
            os.close(self.cgroup)
            if kills := self.group.kills():
                text += f"kills {kills}\nlimit {self.group.limit}\nreached {self.group.peak()}\n"
            self.group.remove()
        files.when_possible(lambda: files.write_whole("exit", text))
        return code


def run(folder: str, options: RunnerOptions, shared: SharedVariables) -> int:
    """Run the task in ``folder``, unless it has or had a runner; return its exit code."""
    with contextlib.suppress(OSError):
        os.setsid()
    os.chdir(folder)
    runner = Runner(options, shared)
    runner.listen()
    text = f"{os.getpid()} {files.milliseconds()} {options.boot}\n"
    started = files.when_possible(lambda: files.claim(text))
    if started is None:
        return 0
    runner.started = started
    code = runner.run()
    files.notify(options.pipe, folder)
    files.remove_packages()
    return code
