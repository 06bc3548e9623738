"""All that is written to stdout and stderr: no other module of the tasks writes there.

Text goes through the one filter; ``exact`` filters only for a terminal, and ``raw`` is for bytes that are
the data itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

from invoke.exceptions import Exit

from openpai_tasks.errors import PathError
from openpai_tasks.plain_text import keep_colours, one_line, plain


def put(text: str) -> None:
    """Print text of one or more lines as data."""
    with _writing():
        print(plain(text), file=_tolerant(sys.stdout))


def exact(text: str) -> None:
    """Print text for a file or a program as it is; a terminal gets it filtered."""
    if sys.stdout is None or sys.stdout.isatty():
        put(text.removesuffix("\n"))
    else:
        raw(sys.stdout, text.encode("utf-8", "surrogateescape"))


def raw(stream: TextIO | None, data: bytes) -> None:
    """Write bytes as they are, and at once."""
    if stream is None:  # closed by whoever started us
        return
    with _writing():
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()


def say(*lines: str) -> None:
    """Tell the person something, each text on its line; programs that read our output don't see it."""
    print(*map(one_line, lines), sep="\n", file=sys.stderr, flush=True)


def say_coloured(text: str) -> None:
    """Tell the person something in several lines, with colours."""
    print(keep_colours(text), file=sys.stderr, flush=True)


def draw(stream: TextIO, text: str, before: str = "") -> None:
    """Write text to a live view; ``before`` is what steers the terminal there, and is ours."""
    print(f"{before}{plain(text)}", file=stream, flush=True)


def steer(stream: TextIO, sequence: str) -> None:
    """Move the cursor of a live view, or clear it."""
    stream.write(sequence)
    stream.flush()


def prompt(text: str) -> None:
    """Ask a question, and stay on its line."""
    sys.stderr.write(one_line(text))
    sys.stderr.flush()


def ending(code: int, *lines: str) -> Exit:
    """The end of a command, with what is to be said of it."""
    return Exit("\n".join(map(one_line, lines)) or None, code=code)


def show_uncaught(kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error that nobody expected: what it quotes may come from a server."""
    import traceback

    print(plain("".join(traceback.format_exception(kind, err, trace))), end="", file=sys.stderr)


def flush() -> None:
    if sys.stdout is not None:  # closed by whoever started us
        with _writing():
            sys.stdout.flush()


def reader_left() -> bool:
    """Whether whoever read our output is gone; then nothing more is written, not even at the end."""
    out = sys.stdout.fileno()
    watch = select.poll()
    watch.register(out, 0)  # the ends of a pipe that are gone are always told
    if not watch.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return True


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Report a place that takes no more output; a reader that has gone is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PathError(f"cannot write the output: {err.strerror}") from err


def _tolerant(stream: Any) -> Any:
    """The stream, which from now on writes with backslashes what its encoding does not have."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
    return stream
