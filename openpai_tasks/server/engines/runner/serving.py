"""Hand each requested folder to a runner whose task has ended, or fork a new one.

A new process copies each page of memory that it changes; one that is used again has done so already.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import NoReturn

from .files import SharedVariables
from .processes import prctl
from .task import CHUNK, RunnerOptions, run

MOST_PIPES = 64  # runners that can be used again; each takes a file descriptor
MOST_IDLE = 8
IDLE_MILLISECONDS = 60_000  # after which idle runners end
MOST_TASKS = 1000  # of one runner
NUMBER = 4  # bytes


class RunnerPool:
    """The runners that this process has forked; those with a pipe report when they are idle."""

    def __init__(self, options: RunnerOptions) -> None:
        self.options = options
        self.home = os.getcwd()
        self.shared = SharedVariables()
        self.rest = b""
        self.pipes: set[int] = set()  # one for each runner that reports
        self.idle: list[int] = []
        self.reports, self.report = os.pipe()
        self.poller = select.poll()
        for handle in (self.reports, 0):
            self.poller.register(handle, select.POLLIN)

    def serve(self) -> None:
        """Take requests until the input ends, and with it the idle runners."""
        while True:
            events = self.poller.poll(IDLE_MILLISECONDS if self.idle else None)
            if not events:
                for pipe in list(self.idle):
                    self.drop(pipe)
            for handle, _ in events:
                if handle == self.reports:
                    self.note_idle(os.read(handle, CHUNK))
                elif handle:
                    self.drop(handle)  # its runner has ended
                elif data := os.read(handle, CHUNK):
                    self.take(data)
                else:
                    return

    def take(self, data: bytes) -> None:
        *folders, self.rest = (self.rest + data).split(b"\0")
        for folder in folders:
            if not self.hand_over(folder):
                self.fork(os.fsdecode(folder))

    def hand_over(self, folder: bytes) -> bool:
        """Give the folder to an idle runner; return False if there is none."""
        while self.idle:
            pipe = self.idle.pop()
            try:
                os.write(pipe, folder + b"\0")
                return True
            except OSError:  # it was killed
                self.drop(pipe)
        return False

    def fork(self, folder: str) -> None:
        self.shared.read(os.path.dirname(folder))  # before the fork, which inherits them
        reports = prctl is not None and len(self.pipes) < MOST_PIPES  # only then are no processes left
        end, pipe = os.pipe() if reports else (-1, -1)
        if os.fork() == 0:
            for handle in (*self.pipes, self.reports):
                os.close(handle)
            self.run_in_fork(folder, end, pipe)
        if reports:
            os.close(end)
            self.pipes.add(pipe)
            self.poller.register(pipe, 0)

    def note_idle(self, numbers: bytes) -> None:
        for first in range(0, len(numbers), NUMBER):
            pipe = int.from_bytes(numbers[first : first + NUMBER], "big")
            if pipe in self.pipes:
                self.idle.append(pipe)
                if len(self.idle) > MOST_IDLE:
                    self.drop(pipe)

    def drop(self, pipe: int) -> None:
        """Close the pipe of a runner, which ends with it if it is idle."""
        if pipe in self.pipes:
            self.pipes.remove(pipe)
            self.poller.unregister(pipe)
            os.close(pipe)
        if pipe in self.idle:
            self.idle.remove(pipe)

    # In a fork

    def run_in_fork(self, folder: str, end: int, pipe: int) -> NoReturn:
        """Run the task and those that follow, and log a failure of the runner itself."""
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1):
                os.dup2(nothing, number)
            if pipe >= 0:
                os.close(pipe)
            previous = ""
            for _ in range(MOST_TASKS):
                if not run(folder, self.options, self.shared, previous) or pipe < 0:
                    break
                previous, folder = folder, self.next_folder(end, pipe)
                if not folder:
                    break
        except BaseException:
            os.dup2(os.open("runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def next_folder(self, end: int, pipe: int) -> str:
        """Report that this runner is idle, and wait for its next task; empty if there is none."""
        os.chdir(self.home)
        with contextlib.suppress(OSError):
            os.write(self.report, pipe.to_bytes(NUMBER, "big"))
            return os.fsdecode(os.read(end, CHUNK)[:-1])
        return ""
