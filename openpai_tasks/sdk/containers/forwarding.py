"""Ports of a container on this machine, for as long as the job runs: a broken connection is made again."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError, Denied, Lost, NotFound, PaiError
from openpai_tasks.interruptible import wait_for_event
from openpai_tasks.net.addresses import LAST_PORT
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.login_errors import NotListening

if TYPE_CHECKING:
    import paramiko

HERE = "127.0.0.1"
PIECE = 1 << 16
HOPELESS = (ConfigError, Denied, NotFound)  # what another try would not change
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
LOOK_UP = 0.2  # seconds between two looks whether the connection is there
WORD = "{there}:{here}"  # how container.forward is told a port

Say = Callable[[str], object]


@dataclass(frozen=True)
class Port:
    """A port of the container, and the one of this machine that leads to it; 0 is any that is free."""

    there: int
    here: int


def parse_port(text: str) -> Port:
    """``8888`` is the same port on both sides, ``8888:9999`` is 9999 here."""
    there, colon, here = text.partition(":")
    numbers = [int(word) if word.isdecimal() else -1 for word in (there, here if colon else there)]
    if not (0 < numbers[0] <= LAST_PORT and 0 <= numbers[1] <= LAST_PORT):
        raise ConfigError(f"a port is PORT or PORT:LOCAL, such as 8888 or 8888:9999, got {text!r}")
    return Port(*numbers)


class Forward:
    """Listens here and carries each connection to the container.

    ``connect`` makes the connection to the container, and again when it broke, unless ``over`` says why not.
    A cluster that does not answer meanwhile ends nothing. ``word`` is how another port is asked for.
    """

    def __init__(
        self,
        connect: Callable[[], Remote],
        ports: Sequence[Port],
        say: Say,
        over: Callable[[], str] = lambda: "",
        word: str = WORD,
    ) -> None:
        self._connect, self._say, self._over = connect, say, over
        self._ended = threading.Event()
        self._remote: Remote | None = None
        self._told: set[int] = set()
        self._listeners: list[tuple[socket.socket, int]] = []
        try:
            self._listeners = [(_listening(one, word), one.there) for one in ports]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def ports(self) -> tuple[Port, ...]:
        """With the numbers that were chosen for those that could be any."""
        return tuple(Port(there, listener.getsockname()[1]) for listener, there in self._listeners)

    def start(self) -> Forward:
        """Connect and take connections from now on."""
        self._remote = self._connect()
        for listener, there in self._listeners:
            threading.Thread(target=self._take, args=(listener, there), daemon=True).start()
        return self

    def serve(self) -> str:
        """Keep the connection until the job is over; why it ended."""
        pause = FIRST_PAUSE
        while not wait_for_event(self._ended, LOOK_UP):
            if self._remote is not None and self._remote.is_open:
                pause = FIRST_PAUSE
                continue
            why = self._why_over()
            if why:
                return why
            self._again(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return ""

    def close(self) -> None:
        self._ended.set()
        for listener, _ in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a visitor
            listener.close()
        if self._remote is not None:
            self._remote.close()

    def _why_over(self) -> str:
        try:
            return self._over()
        except PaiError:  # not known; who connects next is told what is wrong
            return ""

    def _again(self, pause: float) -> None:
        self._say("the connection is lost; trying again")
        try:
            self._remote = self._connect()
        except HOPELESS:
            raise
        except PaiError as err:
            self._say(f"{err}; trying again in {pause:g} s")
            wait_for_event(self._ended, pause)
        else:
            self._say("connected again")

    def _take(self, listener: socket.socket, there: int) -> None:
        while not self._ended.is_set():
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(visitor, there), daemon=True).start()

    def _carry(self, visitor: socket.socket, there: int) -> None:
        with visitor:
            try:
                channel = self._dialled(there)
            except NotListening as err:
                if there not in self._told:
                    self._told.add(there)
                    self._say(str(err))
                return
            except PaiError:
                return
            self._told.discard(there)
            with contextlib.closing(channel), contextlib.suppress(OSError, EOFError):
                visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _pump(visitor, channel, self._ended)

    def _dialled(self, there: int) -> paramiko.Channel:
        remote = self._remote
        if remote is None or not remote.is_open:
            raise Lost("the connection is lost")
        return remote.dial(HERE, there)


def _listening(wanted: Port, word: str) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HERE, wanted.here))
        listener.listen(64)
    except OSError as err:
        listener.close()
        next_one = wanted.here + 1 if wanted.here < LAST_PORT else 0
        other = f"take another one: {word.format(there=wanted.there, here=next_one)}"
        raise ConfigError(
            f"port {wanted.here} cannot be had here ({(err.strerror or str(err)).lower()}); {other}"
        ) from err
    return listener


def _pump(visitor: socket.socket, channel: paramiko.Channel, ended: threading.Event) -> None:
    """Both ways until both have nothing more to say."""
    out, back = True, True
    while (out or back) and not ended.is_set():
        watched = [visitor] * out + [channel] * back
        ready, _, _ = select.select(watched, [], [], 1.0)
        if visitor in ready:
            piece = visitor.recv(PIECE)
            if piece:
                channel.sendall(piece)
            else:
                channel.shutdown_write()
                out = False
        if channel in ready:
            piece = channel.recv(PIECE)
            if piece:
                visitor.sendall(piece)
            else:
                with contextlib.suppress(OSError):
                    visitor.shutdown(socket.SHUT_WR)
                back = False
                out = out and not channel.closed
