"""The files of a task's folder, which is the working directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time

from . import FOLDERS

TYPE_CHECKING = False  # loading ``typing`` takes long
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

MANY_VARIABLES = 300  # enough to make bash slow to start
ATOMIC = 512  # bytes that every system writes to a pipe at once
F_SETPIPE_SZ = 1031
TIME_STEP = 100  # milliseconds of output with one record of its time
SHORTAGES = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
    errno.EAGAIN,  # too many processes
)
PACKAGES = "packages"  # as the steps before a job's commands name it


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def claim(text: str) -> int | None:
    """Create ``started``, locked and complete, and return its handle; only one process can succeed.

    After the end of the task, the server removes first the command, then ``started``.
    """
    name = f"started.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_all(handle, text.encode())
        os.link(name, "started")
    except OSError as err:
        os.close(handle)
        if isinstance(err, FileExistsError):
            return None
        raise
    finally:
        with contextlib.suppress(OSError):  # it may be claimed already: a second attempt would find it taken
            os.unlink(name)
    if not os.path.exists("command"):
        os.unlink("started")
        os.close(handle)
        return None
    return handle


def read_arguments(path: str) -> list[bytes]:
    """Return the arguments in a file; empty if it is missing."""
    try:
        return when_possible(lambda: _read(path)).split(b"\0")[:-1]
    except FileNotFoundError:
        return []


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_variables(path: str) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in _read(path).split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


class SharedVariables:
    """The variables that all tasks of an attempt share, read once for all of them."""

    def __init__(self) -> None:
        self._mark: object = None  # identifies the version of the file
        self._known: dict[bytes, bytes] = {}

    def read(self, folder: str) -> dict[bytes, bytes]:
        """Return the variables in a folder of tasks."""
        path = os.path.join(folder, "environment")
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return {}
        mark = (path, status.st_mtime_ns, status.st_ino, status.st_size)
        if self._mark != mark:
            self._mark, self._known = mark, read_variables(path)
        return self._known

    def read_all(self) -> dict[bytes, bytes]:
        """Return the shared variables and those of the task."""
        return {**self.read(os.path.abspath("..")), **read_variables("environment")}


def skip_locale_search(variables: dict[bytes, bytes]) -> None:
    """Spare bash a step at its start that takes time quadratic in the number of variables.

    It lists all of them to find the locale, unless LC_ALL and LANG are set. The C locale is what it would
    find without LANG, and LC_ALL is unset before the task's script begins.
    """
    if b"LC_ALL" not in variables:
        write_whole("prologue", "unset LC_ALL BASH_ENV\n")
        prologue = os.fsencode(os.path.abspath("prologue"))
        variables.update({b"LC_ALL": b"C", b"BASH_ENV": prologue, b"LANG": variables.get(b"LANG") or b"C"})


def make_folders() -> None:
    for name in (*FOLDERS, "logs"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700)


def open_log(name: str) -> int:
    return os.open(f"logs/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def wait_for_log(name: str) -> int:
    """Open a log; if the disk is full, wait, as the task has not begun yet."""
    return when_possible(lambda: open_log(name))


class OutputTimes:
    """Records when output came and from which stream, in ``logs/times``.

    Each record is three numbers of 8 bytes, little end first: the bytes of stdout and of stderr before it,
    and the time in milliseconds times two, plus one for stderr. Output of one stream within a tenth of a
    second has one record.
    """

    def __init__(self) -> None:
        self.handle = -1
        self._written = [0, 0]
        self._stream = -1
        self._time = 0

    def add(self, stream: int, size: int) -> bool:
        """Note that output is about to be written; return whether that could be recorded."""
        now = milliseconds()
        if stream != self._stream or not 0 <= now - self._time < TIME_STEP:
            self._stream, self._time = stream, now
            record = (*self._written, 2 * now + stream)
            try:
                if self.handle < 0:  # few files are left of a task without output
                    self.handle = open_log("times")
                write_all(self.handle, b"".join(number.to_bytes(8, "little") for number in record))
            except OSError:
                return False
        self._written[stream] += size
        return True


def enlarge_pipe(pipe: int) -> None:
    """Enlarge a pipe, to reduce switches between a busy task and its runner."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, F_SETPIPE_SZ, 1 << 20)


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def write_some(handle: int, data: bytes) -> tuple[bytes, bool]:
    """Write what can be; return the rest, and whether that is because the disk is full or broken."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(handle, view) :]
    except OSError as err:
        return bytes(view), err.errno in SHORTAGES
    return b"", False


def when_possible(action: Callable[[], T]) -> T:
    """Do something; while the disk is full or broken, or too much runs, try again every second."""
    while True:
        try:
            return action()
        except OSError as err:
            if err.errno not in SHORTAGES:
                raise
            time.sleep(1)


def write_whole(name: str, text: str) -> None:
    """Write a file atomically."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{name}.new")  # the job may have created a pipe there
    handle = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(handle, text.encode())
    finally:
        os.close(handle)
    os.rename(f"{name}.new", name)


def is_on_nfs(mounts: str, path: str) -> bool:
    """Whether the path is on NFS, which delays writes; ``mounts`` is the text of /proc/self/mounts."""
    best, kind = "", ""
    for line in mounts.split("\n"):
        words = line.split(" ")
        if len(words) > 2:
            point = words[1].replace("\\040", " ").rstrip("/")
            if f"{path}/".startswith(f"{point}/") and len(point) >= len(best):
                best, kind = point, words[2]
    return kind.startswith("nfs")


def remove_packages() -> None:
    """Remove the packages that the task installed for itself: they may be large, and of many tasks."""
    if os.path.isdir(PACKAGES):
        import shutil

        shutil.rmtree(PACKAGES, ignore_errors=True)


def notify(pipe: str, folder: str) -> None:
    """Tell a running server that a task has ended; otherwise it would notice a little later."""
    message = os.fsencode(folder) + b"\0"
    with contextlib.suppress(OSError):
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(handle, message if len(message) <= ATOMIC else b"?\0")
        os.close(handle)
