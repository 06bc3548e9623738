"""Run a command or a shell in a container: input, output, terminal and exit code."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from openpai_tasks.errors import TimedOut, Unreachable
from openpai_tasks.sdk.ssh.connection import Remote, send_signal
from openpai_tasks.storage.copying.progress import Interrupted

if TYPE_CHECKING:
    import paramiko

Write = Callable[[bytes], object]

PIECE = 1 << 16
POLL_SECONDS = 0.5  # between two looks at a silent session
GRACE_SECONDS = 2.0  # for a command to end after Ctrl-C
SEND_SECONDS = 10.0  # to send its signals before that, which takes a while on a busy machine
SIGNALLED = 255
"""Exit code of a command that a signal ended, as with ssh."""

STILL_RUNNING = "the command may still be running"

# Signals all processes of the same connection except this session. A grep that reads past zero bytes finds
# them at once; reading each process takes seconds on a busy machine.
_SIGNAL_SCRIPT = r"""
set -- /proc/[0-9]*/environ
if printf 'a\000b\n' | grep -qaF b 2>/dev/null; then
  set -- $(grep -laF "SSH_CONNECTION=$SSH_CONNECTION" "$@" 2>/dev/null)
fi
for place; do
  pid=${place#/proc/} pid=${pid%/environ}
  [ "$pid" != $$ ] && [ "$pid" != $PPID ] || continue
  tr '\0' '\n' <"$place" 2>/dev/null | grep -qxF "SSH_CONNECTION=$SSH_CONNECTION" || continue
  for name in $names; do kill -s "$name" "$pid" 2>/dev/null; done
done
"""
_POLITE, _FIRM = "INT", "TERM HUP"  # the second round follows if the first does not help


def run_command(
    remote: Remote,
    command: str,
    out: Write,
    err: Write,
    stdin: int | None = None,
    seconds: float = math.inf,
    stop: threading.Event | None = None,
) -> int:
    """Run a command and return its exit code; give up after ``seconds``, or once ``stop`` is set.

    Ctrl-C and whatever else ends us is passed on to the command.
    """
    channel = remote.session()
    with _closing(channel), remote.losing():
        channel.exec_command(command)
        try:
            return _Exchange(remote, channel, out, err, seconds, stop).until_end(stdin)
        except (KeyboardInterrupt, SystemExit, TimedOut, Interrupted):
            if not _interrupt(remote, channel, out, err):
                err(f"{STILL_RUNNING} in {remote.target.label}: INT, TERM and HUP did not end it\n".encode())
            raise


def ignore(data: bytes) -> None:
    """Drop output that nobody wants."""


def open_shell(remote: Remote, stdin: int, out: Write, err: Write) -> int:
    """Open a shell on the terminal ``stdin``; if that is not a terminal, the shell reads commands from it."""
    channel, is_terminal = remote.session(), os.isatty(stdin)
    with _closing(channel), remote.losing():
        if is_terminal:
            channel.get_pty(os.environ.get("TERM", "vt100"), *_size(stdin))
        channel.invoke_shell()
        exchange = _Exchange(remote, channel, out, err)
        if not is_terminal:
            return exchange.until_end(stdin)
        with _raw(stdin), _resizing() as resized:
            return exchange.until_end(stdin, resized)


class _Exchange:
    """Copies bytes between a channel and us until the other side is done."""

    def __init__(
        self,
        remote: Remote,
        channel: paramiko.Channel,
        out: Write,
        err: Write,
        seconds: float = math.inf,
        stop: threading.Event | None = None,
    ) -> None:
        self._remote, self._channel, self._out, self._err = remote, channel, out, err
        self._seconds, self._stop = seconds, stop
        self._waiting = b""  # read here and not sent yet

    def until_end(self, stdin: int | None, resized: int | None = None) -> int:
        """Return the exit code; ``resized`` becomes readable when the terminal is resized."""
        channel, source = self._channel, stdin
        limit = time.monotonic() + self._seconds
        while True:
            asked = [one for one in (resized, None if self._waiting else source) if one is not None]
            ready, _, _ = select.select([channel, *asked], [], [], 0.02 if self._waiting else POLL_SECONDS)
            if resized in ready:
                os.read(cast(int, resized), PIECE)
                channel.resize_pty(*_size(stdin))
            if source in ready and not self._read(cast(int, source)):
                source = None
            if self._waiting and channel.send_ready():
                self._waiting = self._waiting[channel.send(self._waiting) :]
            has_ended = channel.closed or (channel.eof_received and channel.exit_status_ready())
            if _drain(channel, self._out, self._err):
                continue
            if has_ended:  # before the look at its output, so there is no more
                return _exit_code(self._remote, channel)
            self._check(limit)

    def _read(self, source: int) -> bool:
        """Read input; return whether there may be more."""
        self._waiting = os.read(source, PIECE)
        if not self._waiting:
            self._channel.shutdown_write()
        return bool(self._waiting)

    def _check(self, limit: float) -> None:
        if self._stop and self._stop.is_set():
            raise Interrupted("interrupted")
        if time.monotonic() > limit:
            label = self._remote.target.label
            raise TimedOut(f"the command in {label} did not end within {self._seconds:g} s")


def _drain(channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Pass on output; return whether there was any."""
    moved = False
    if channel.recv_ready():
        out(channel.recv(PIECE))
        moved = True
    if channel.recv_stderr_ready():
        err(channel.recv_stderr(PIECE))
        moved = True
    return moved


def _exit_code(remote: Remote, channel: paramiko.Channel) -> int:
    if channel.exit_status_ready() and channel.exit_status >= 0:
        return int(channel.exit_status)
    remote.check()
    return SIGNALLED


def _interrupt(remote: Remote, channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Ask the command to end and pass on its last output; return whether it ended."""
    send_signal(channel, "INT")
    if _wait_for_end(channel, out, err, GRACE_SECONDS / 8):
        return True
    # An sshd passes no signals on to root's commands.
    return any(_send_signals(remote, names, channel, out, err) for names in (_POLITE, _FIRM))


def _send_signals(remote: Remote, names: str, channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Signal all processes of the connection from a second session; return whether the command ended."""
    with contextlib.suppress(Unreachable):
        beside = remote.session()
        with _closing(beside):
            beside.exec_command(f"names='{names}'\n{_SIGNAL_SCRIPT}")
            _wait_for_end(beside, ignore, ignore, SEND_SECONDS)
            return _wait_for_end(channel, out, err, GRACE_SECONDS)
    return False


def _wait_for_end(channel: paramiko.Channel, out: Write, err: Write, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        has_ended = channel.closed or channel.eof_received
        if not _drain(channel, out, err):
            if has_ended:
                return True
            select.select([channel], [], [], 0.05)
    return bool(channel.closed or channel.eof_received)


@contextlib.contextmanager
def _closing(channel: paramiko.Channel) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(OSError, EOFError):  # the connection is gone
            channel.close()


def _size(terminal: int | None) -> tuple[int, int]:
    try:
        width, height = os.get_terminal_size(1 if terminal is None else terminal)
        return width, height
    except OSError:
        return 80, 24


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Send every key to the other side, Ctrl-C included."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed already
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizing() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when the window is resized."""
    resized, wake = os.pipe()
    os.set_blocking(wake, False)

    def changed(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(wake, b"!")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield resized
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(resized)
        os.close(wake)
