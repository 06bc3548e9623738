"""Everything that is written to stdout and stderr: no other module of the tasks writes there.

All text goes through the one filter; ``exact`` filters only for a terminal, and ``raw`` is for bytes that are
the data itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, Any, TextIO, cast

from invoke.exceptions import Exit

from openpai_tasks.errors import PathError
from openpai_tasks.plain_text import drawn, keep_colours, one_line, plain

PROBLEMS = ("error", "failed")  # how the lines begin that are printed in any case
_is_quiet = False  # one per process, like the streams


class LiveViews:
    """The live views that are drawn on the terminal; messages are printed above the latest one."""

    def __init__(self) -> None:
        self._printers: list[Callable[[str], None]] = []

    def add(self, print_above: Callable[[str], None]) -> None:
        self._printers.append(print_above)

    def remove(self, print_above: Callable[[str], None]) -> None:
        self._printers.remove(print_above)

    def print_above(self, text: str) -> bool:
        """Print the text above the latest view; False if nothing is drawn."""
        if not self._printers:
            return False
        self._printers[-1](text)
        return True


live_views = LiveViews()  # one per process, like the terminal: threads print messages, too


def put(text: str) -> None:
    """Print text of one or more lines as data."""
    with _writing():
        print(plain(text), file=_tolerant(sys.stdout))


def put_coloured(text: str) -> None:
    """Print text of one or more lines as data, with its colours, on a terminal."""
    with _writing():
        print(keep_colours(text), file=_tolerant(sys.stdout))


def exact(text: str) -> None:
    """Print text for a file or a program as it is; a terminal gets it filtered."""
    if sys.stdout is None or sys.stdout.isatty():
        put(text.removesuffix("\n"))
    else:
        raw(sys.stdout, text.encode("utf-8", "surrogateescape"))


def raw(stream: TextIO | None, data: bytes) -> None:
    """Write bytes as they are, and at once."""
    if stream is None:  # closed by the parent process
        return
    with _writing():
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()


def be_quiet() -> None:
    """Print only results, errors and questions from now on (`pai -q`)."""
    global _is_quiet
    _is_quiet = True


def is_quiet() -> bool:
    return _is_quiet


def say(*lines: str, always: bool = False) -> None:
    """Print lines for the user on stderr, above the live view if there is one on the same terminal."""
    if _is_quiet and not always:
        lines = tuple(line for line in lines if line.startswith(PROBLEMS))
        if not lines:
            return
    text = "\n".join(map(one_line, lines))
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not (is_terminal and live_views.print_above(text)):
        print(text, file=sys.stderr, flush=True)


def say_coloured(text: str) -> None:
    """Print text of one or more lines for the user on stderr, with its colours."""
    print(keep_colours(text), file=sys.stderr, flush=True)


def put_line(stream: TextIO, text: str) -> None:
    """Print text to a stream at once."""
    print(plain(text), file=stream, flush=True)


def canvas(stream: TextIO) -> IO[str]:
    """Return a stream for rich to draw on: what it writes is filtered."""
    return cast("IO[str]", _Canvas(stream))


class _Canvas:
    def __init__(self, stream: TextIO) -> None:
        self._stream = _tolerant(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        written: int = self._stream.write(drawn(text))
        return written


def prompt(text: str) -> None:
    """Print a question, without a newline."""
    sys.stderr.write(one_line(text))
    sys.stderr.flush()


def ending(code: int, *lines: str) -> Exit:
    """Return the end of a command, with the lines that are printed then."""
    return Exit("\n".join(map(one_line, lines)) or None, code=code)


def show_uncaught(kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, filtered: it may quote a server."""
    import traceback

    print(plain("".join(traceback.format_exception(kind, err, trace))), end="", file=sys.stderr)


def flush() -> None:
    if sys.stdout is not None:  # closed by the parent process
        with _writing():
            sys.stdout.flush()


def reader_left() -> bool:
    """Whether the reader of our output is gone; from then on, nothing is written to it."""
    out = sys.stdout.fileno()
    watch = select.poll()
    watch.register(out, 0)  # a closed end of a pipe is always reported
    if not watch.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return True


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Report output that cannot be written; a reader that is gone is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PathError(f"cannot write the output: {err.strerror}") from err


def _tolerant(stream: Any) -> Any:
    """Make the stream write characters that its encoding lacks with backslashes."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
    return stream
