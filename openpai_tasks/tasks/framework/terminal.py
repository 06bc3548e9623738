"""Everything that is written to stdout and stderr: no other module of the tasks writes there.

All text goes through the one filter; ``exact`` filters only for a terminal, and ``raw`` is for bytes that are
the data itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO

from invoke.exceptions import Exit

from openpai_tasks import exits, render
from openpai_tasks.text.plain import keep_colours, keep_redraws, one_line, plain
from openpai_tasks.text.wrapping import wrap

LONGEST_NOTE = 200  # characters of a notification
PROBLEMS = ("error", "failed")  # how the lines begin that are printed in any case
_is_quiet = False  # one per process, like the streams


class OutputBuffer(io.BufferedWriter):
    """The buffer of stdout: when it cannot be written, the command ends, and what follows is dropped.

    It is not the file that does this: a Ctrl-C while a ``write`` of ours returns would hide from the buffer
    that its text is written, and it would be written again.
    """

    end: Exit | None = None

    def write(self, data: Any) -> int:
        return len(data) if self.end else self._try(super().write, data)

    def flush(self) -> None:
        if not self.end:
            self._try(super().flush)

    def _try(self, act: Callable[..., Any], *args: Any) -> Any:
        try:
            return act(*args)
        except BrokenPipeError:
            self.end = Exit(code=exits.BROKEN_PIPE)
        except OSError as err:
            self.end = ending(exits.BAD_PATH, f"error: cannot write the output: {err.strerror}")
        raise self.end


class MessageBuffer(io.BufferedWriter):
    """The buffer of stderr: messages that cannot be written never end the command."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Decide what happens to output that cannot be written; replace streams that the parent has closed."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the file gets the lowest free number, which is the stream's
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if sys.stdout is sys.__stdout__:  # not that of a notebook or a test
        sys.stdout = _with_buffer(sys.stdout, OutputBuffer)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _with_buffer(sys.stderr, MessageBuffer)


def _with_buffer(stream: Any, kind: type[io.BufferedWriter]) -> TextIO:
    """Return a text stream for the same file, with a buffer of the given class."""
    stream.flush()
    buffer = kind(io.FileIO(stream.fileno(), "w", closefd=False))
    flags = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, **flags)


@contextlib.contextmanager
def output_flushed() -> Iterator[None]:
    """Write all output at the end of the block; an error of the block wins over one of writing."""
    try:
        yield
        flush()
    except BaseException as end:
        has_failed = getattr(end, "code", end)
        with contextlib.suppress(*[Exit] * bool(has_failed)):
            flush()
        raise


live_views: list[Callable[[str], None]] = []
"""For each live view on the terminal, what prints above it; messages are printed above the latest one."""


def put(text: str) -> None:
    """Print text of one or more lines as data."""
    print(plain(text), file=_tolerant(sys.stdout))


def put_coloured(stream: TextIO, text: str) -> None:
    """Print text of one or more lines with its colours."""
    print(keep_colours(text), file=_tolerant(stream), flush=True)


def exact(text: str) -> None:
    """Print text for a file or a program as it is; a terminal gets it filtered."""
    if sys.stdout.isatty():
        put(text.removesuffix("\n"))
    else:
        raw(sys.stdout, text.encode("utf-8", "surrogateescape"))


def raw(stream: TextIO, data: bytes) -> None:
    """Write bytes as they are, and at once."""
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def write_bytes(pieces: Iterable[bytes]) -> None:
    """Write bytes to stdout as they arrive, unchanged."""
    for piece in pieces:
        raw(sys.stdout, piece)


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
    text = wrapped(lines)
    if live_views and sys.stderr.isatty():
        live_views[-1](text)
    else:
        print(text, file=sys.stderr, flush=True)


def wrapped(lines: Iterable[str]) -> str:
    """Return lines for stderr: on a terminal, wrapped between words."""
    text = "\n".join(map(one_line, lines))
    return wrap(text, size(sys.stderr).columns) if sys.stderr.isatty() else text


def say_success(text: str, command: str) -> None:
    """Print that something succeeded and the command to continue with, marked where the stream can."""
    mark, dot = "✓", "·"
    try:
        f"{mark}{dot}".encode(sys.stderr.encoding)
    except (LookupError, UnicodeEncodeError):
        mark, dot = "OK:", "-"
    line = " ".join((mark, text, *((dot, command) if command else ())))
    if sys.stderr.isatty() and render.has_colours() and not (_is_quiet or live_views):
        put_coloured(sys.stderr, f"\x1b[32m{mark}\x1b[0m{one_line(line.removeprefix(mark))}")
    else:
        say(line)


def put_line(stream: TextIO, text: str) -> None:
    """Print text to a stream at once."""
    print(plain(text), file=stream, flush=True)


def redraw(stream: TextIO, text: str) -> None:
    """Write a part of a live view, with what moves the cursor and removes lines, at once."""
    _tolerant(stream).write(keep_redraws(text))
    stream.flush()


def size(stream: TextIO) -> os.terminal_size:
    """Return the size to fit to: COLUMNS and LINES, or else the terminal's."""
    real = _real_size(stream)
    columns, lines = (_wanted(name) for name in ("COLUMNS", "LINES"))
    return os.terminal_size((columns or real.columns or 80, lines or real.lines or 24))


def live_size(stream: TextIO) -> os.terminal_size:
    """Return the size of a live view: never more than the terminal has, as wrapped lines would stay."""
    wanted, real = size(stream), _real_size(stream)
    return os.terminal_size(
        (min(wanted.columns, real.columns or wanted.columns), min(wanted.lines, real.lines or wanted.lines))
    )


def _real_size(stream: TextIO) -> os.terminal_size:
    try:
        return os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return os.terminal_size((0, 0))


def _wanted(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 6 else 0


def notify(title: str, text: str, by_bell_only: bool) -> None:
    """Ring the terminal's bell and, where it may understand that, ask it for a desktop notification."""
    if not sys.stderr.isatty():
        return
    kind = os.environ.get("TERM", "")
    words = [one_line(word[:LONGEST_NOTE]).replace(";", ",") for word in (title, text)]
    if by_bell_only or kind in ("", "dumb", "unknown", "linux"):  # these print what they do not understand
        sequence = ""
    elif kind.startswith("rxvt") or "VTE_VERSION" in os.environ:
        sequence = f"\x1b]777;notify;{words[0]};{words[1]}\x07"
    else:
        sequence = f"\x1b]9;{words[0]}: {words[1]}\x07"
    sys.stderr.write(f"{sequence}\x07")
    sys.stderr.flush()


def prompt(text: str) -> None:
    """Print a question, without a newline."""
    sys.stderr.write(one_line(text))
    sys.stderr.flush()


def ending(code: int, *lines: str) -> Exit:
    """Return the end of a command, with the lines that are printed then."""
    return Exit(wrapped(lines) or None, code=code)


def show_uncaught(kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, filtered: it may quote a server."""
    print(plain("".join(traceback.format_exception(kind, err, trace))), end="", file=sys.stderr)


def flush() -> None:
    sys.stdout.flush()


def _tolerant(stream: Any) -> Any:
    """Make the stream write characters that its encoding lacks with backslashes."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
    return stream
