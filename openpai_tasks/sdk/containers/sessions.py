"""A command or a shell in a container: its bytes both ways, its terminal, its exit code."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from openpai_tasks.errors import Lost, TimedOut, Unreachable
from openpai_tasks.sdk.ssh.connection import Remote, send_signal
from openpai_tasks.storage.copying.progress import Interrupted

if TYPE_CHECKING:
    import paramiko

Write = Callable[[bytes], object]

PIECE = 1 << 16
LOOK_UP = 0.5  # seconds between two looks at a session that says nothing
GRACE = 2.0  # seconds that a command has for its end after Ctrl-C
SIGNALLED = 255
"""The exit code of a command that a signal has ended, as ssh says it."""

GOES_ON = "the command may go on"

# All that was started by the same connection, but for this very session. A grep that reads beyond zero bytes
# finds them at once; to look at each process takes seconds on a busy machine.
_SIGNAL = r"""
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
_ASKS, _TELLS = "INT", "TERM HUP"  # first one may end as one likes, then one is told to


@dataclass(frozen=True)
class Limits:
    """When to give a command up: after so many seconds, or as soon as ``stop`` is set."""

    seconds: float = math.inf
    stop: threading.Event = field(default_factory=threading.Event)


def run(
    remote: Remote,
    command: str,
    out: Write,
    err: Write,
    stdin: int | None = None,
    limits: Limits | None = None,
) -> int:
    """Run a command; its exit code. Ctrl-C, and what else ends us, reaches it before."""
    channel = remote.session()
    with _ending(channel), remote.losing():
        channel.exec_command(command)
        try:
            return _Talk(remote, channel, out, err, limits).until_end(stdin)
        except (KeyboardInterrupt, SystemExit, TimedOut, Interrupted):
            if not _interrupted(remote, channel, out, err):
                err(f"{GOES_ON} in {remote.target.label}: INT, TERM and HUP did not end it\n".encode())
            raise


def shell(remote: Remote, stdin: int, out: Write, err: Write) -> int:
    """A shell on the terminal behind ``stdin``, in its size; without a terminal, one that reads the input."""
    channel, is_terminal = remote.session(), os.isatty(stdin)
    with _ending(channel), remote.losing():
        if is_terminal:
            channel.get_pty(os.environ.get("TERM", "vt100"), *_size(stdin))
        channel.invoke_shell()
        talk = _Talk(remote, channel, out, err)
        if not is_terminal:
            return talk.until_end(stdin)
        with _raw(stdin), _resizing() as bell:
            return talk.until_end(stdin, bell)


class _Talk:
    """Carries bytes between a channel and us, until the other side is done."""

    def __init__(
        self, remote: Remote, channel: paramiko.Channel, out: Write, err: Write, limits: Limits | None = None
    ) -> None:
        self._remote, self._channel, self._out, self._err = remote, channel, out, err
        self._limits = limits or Limits()
        self._waiting = b""  # read here and not sent yet

    def until_end(self, stdin: int | None, bell: int | None = None) -> int:
        """The exit code; ``bell`` can be read whenever the terminal has changed its size."""
        channel, source = self._channel, stdin
        limit = time.monotonic() + self._limits.seconds
        while True:
            asked = [one for one in (bell, None if self._waiting else source) if one is not None]
            ready, _, _ = select.select([channel, *asked], [], [], 0.02 if self._waiting else LOOK_UP)
            if bell in ready:
                os.read(cast(int, bell), PIECE)
                channel.resize_pty(*_size(stdin))
            if source in ready and not self._read(cast(int, source)):
                source = None
            if self._waiting and channel.send_ready():
                self._waiting = self._waiting[channel.send(self._waiting) :]
            if _drain(channel, self._out, self._err):
                continue
            if channel.closed or (channel.eof_received and channel.exit_status_ready()):
                return _exit_code(self._remote, channel)
            self._check(limit)

    def _read(self, source: int) -> bool:
        """Take what is typed; whether there may be more."""
        self._waiting = os.read(source, PIECE)
        if not self._waiting:
            self._channel.shutdown_write()
        return bool(self._waiting)

    def _check(self, limit: float) -> None:
        if self._limits.stop.is_set():
            raise Interrupted("interrupted")
        if time.monotonic() > limit:
            label, seconds = self._remote.target.label, self._limits.seconds
            raise TimedOut(f"{label} did not come to an end within {seconds:g} s")


def _drain(channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Pass on what has come; whether there was anything."""
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
    if not remote.is_open:
        raise Lost(f"the connection to {remote.target.label} is lost")
    return SIGNALLED


def _interrupted(remote: Remote, channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Tell the command that it is to end, and wait a little for what it has to say; whether it ended."""
    send_signal(channel, "INT")
    if _has_ended(channel, out, err, GRACE / 8):
        return True
    # An sshd passes no signals on to root's commands.
    return any(_signalled(remote, names, channel, out, err) for names in (_ASKS, _TELLS))


def _signalled(remote: Remote, names: str, channel: paramiko.Channel, out: Write, err: Write) -> bool:
    """Send the signals to all that the connection has started, by a session beside; whether it ended."""
    with contextlib.suppress(Unreachable):
        beside = remote.session()
        with _ending(beside):
            beside.exec_command(f"names='{names}'\n{_SIGNAL}")
            return _has_ended(channel, out, err, GRACE)
    return False


def _has_ended(channel: paramiko.Channel, out: Write, err: Write, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and not (channel.closed or channel.eof_received):
        if not _drain(channel, out, err):
            select.select([channel], [], [], 0.05)
    return bool(channel.closed or channel.eof_received)


@contextlib.contextmanager
def _ending(channel: paramiko.Channel) -> Iterator[None]:
    try:
        yield
    finally:
        channel.close()


def _size(terminal: int | None) -> tuple[int, int]:
    try:
        width, height = os.get_terminal_size(1 if terminal is None else terminal)
        return width, height
    except OSError:
        return 80, 24


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Every key goes to the other side, Ctrl-C too."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # what was typed already is kept
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizing() -> Iterator[int]:
    """What can be read whenever the window has changed its size."""
    bell, ring = os.pipe()
    os.set_blocking(ring, False)

    def changed(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(ring, b"!")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield bell
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(bell)
        os.close(ring)
