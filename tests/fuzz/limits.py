"""What no input may do: raise an error that is not ours, take a second, or take 200 MB."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import openpai_tasks
from openpai_tasks.errors import PaiError
from tests.fuzz.target import Target

SECONDS = 1.0  # of processor time
WAIT = 60.0  # seconds; the machine may be busy
MEMORY = 200 << 20
PACKAGE = Path(openpai_tasks.__file__).parent


class TooSlow(BaseException):
    """Raised in a parser that has used up its time; no parser catches it."""


@dataclass(frozen=True)
class Problem:
    kind: str  # the same for all inputs that fail alike
    text: str
    details: str  # a traceback


def problem(target: Target, data: bytes) -> Problem | None:
    """Parse an input, and return what is wrong with that."""
    began, used = time.monotonic(), time.process_time()
    try:
        with _limited():
            _parse(target, data)
        if time.process_time() - used > SECONDS:
            raise TooSlow("more than a second of processor time")
        if time.monotonic() - began > WAIT:
            raise TooSlow(f"a wait of more than {WAIT:.0f} s")
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        if isinstance(err, MemoryError):
            err = MemoryError("more than 200 MB").with_traceback(err.__traceback__)
        return _describe(err)
    return None


def _parse(target: Target, data: bytes) -> None:
    try:
        target.parse(data)
    except PaiError as err:
        str(err).encode()  # it can be printed


def _describe(err: BaseException) -> Problem:
    frames = traceback.extract_tb(err.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    where = f"{Path(ours[-1].filename).relative_to(PACKAGE)}:{ours[-1].name}" if ours else "the target"
    kind = f"{type(err).__name__} in {where}"
    text = f"{kind}: {err}"[:300].encode("utf-8", "backslashreplace").decode()
    return Problem(kind, text, "".join(traceback.format_exception(err)))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Limit processor time, and the address space to what is in use now and a bit more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = signal.signal(signal.SIGPROF, _stop)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooSlow("more than a second of processor time")
