"""Forward ports to a container, and back, while the job runs; reconnect when the connection breaks."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from openpai_tasks.backends.base import Backend
from openpai_tasks.compat import wait_for_event
from openpai_tasks.errors import ConfigError, Denied, InvalidOption, NotFound, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.addresses import LAST_PORT
from openpai_tasks.protocol.document.ports import listening_ports
from openpai_tasks.protocol.fields import whole
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.containers.endpoints import Container, RunningJob
from openpai_tasks.sdk.ssh.connection import LOOPBACK, Remote
from openpai_tasks.sdk.ssh.login_errors import NotListening
from openpai_tasks.settings.config import Settings

if TYPE_CHECKING:
    import paramiko

PIECE = 1 << 16
PERMANENT = (ConfigError, Denied, NotFound)  # not worth another try
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
DIAL_SECONDS = 15.0  # to connect to an address that the container asked for
POLL_SECONDS = 0.2  # between two checks of the connection
PORT_ARGUMENT = "{there}:{here}"  # how container.forward takes a port

Say = Callable[[str], object]


@dataclass(frozen=True)
class Port:
    """A port of the container and the local port that leads to it; 0 is any free port."""

    there: int
    here: int
    label: str = ""  # instead of ``there``, until the job is known
    is_preferred: bool = False  # whether another local port is used if this one is taken


def parse_port(text: str) -> Port:
    """Parse ``8888``, the same port on both sides, or ``8888:9999``, with 9999 on this machine.

    The label of a port, as in ``web`` and ``web:9999``, stands for its number.
    """
    there, colon, here = text.partition(":")
    label = there if there.isidentifier() else ""
    words = ("1" if label else there, here if colon else "0" if label else there)
    first, second = (int(word) if word.isdecimal() else -1 for word in words)
    if not (0 < first <= LAST_PORT and 0 <= second <= LAST_PORT):
        how = "expected PORT or PORT:LOCAL, such as 8888, 8888:9999 or the label of a port"
        raise ConfigError(f"invalid port {text!r}: {how}")
    return Port(first, second, label, is_preferred=bool(label) and not colon)


@dataclass(frozen=True)
class ReversePort:
    """A port of the container's loopback that leads to an address as seen from this machine."""

    there: int
    host: str
    here: int


def parse_reverse_ports(texts: Sequence[str]) -> tuple[ReversePort, ...]:
    """Parse ports, each of which may be given once."""
    found = {one.there: one for one in map(_parse_reverse_port, texts)}
    if len(found) < len(texts):
        raise InvalidOption("reverse", f": a port is given twice in {', '.join(texts)}")
    return tuple(found.values())


def _parse_reverse_port(text: str) -> ReversePort:
    """Parse ``9000``, ``9000:9001``, or ``9000:HOST:9001`` as OpenSSH's ``-R`` takes it."""
    there, colon, rest = text.partition(":")
    host, _, here = rest.rpartition(":")
    first, second = (
        int(word) if word.isdecimal() and len(word) < 6 else 0 for word in (there, here if colon else there)
    )
    if not (0 < first <= LAST_PORT and 0 < second <= LAST_PORT):
        how = "expected PORT, PORT:LOCAL or PORT:HOST:LOCAL, such as 9000 or 9000:localhost:9001"
        raise InvalidOption("reverse", f": invalid port {text!r}: {how}")
    return ReversePort(first, host.strip("[]") or "localhost", second)


def find_ports(
    client: Backend, job: JobInfo, role: str, index: int, wanted: Sequence[Port]
) -> tuple[Port, ...]:
    """Return the ports with the numbers of labels: where the program listens, or else as assigned."""
    if not any(one.label for one in wanted):
        return tuple(wanted)
    task = next(task for task in job.tasks if (task.role, task.index) == (role, index))
    assigned = {label: whole(text.partition(",")[0]) or 0 for label, text in task.ports.items()}
    known = {**assigned, **listening_ports(client.job_document(job.key), role)}
    return tuple(_numbered(one, known, job) if one.label else one for one in wanted)


def _numbered(port: Port, known: Mapping[str, int], job: JobInfo) -> Port:
    if not 0 < known.get(port.label, 0) <= LAST_PORT:
        labels = ", ".join(known) or "none"
        raise ConfigError(f"job {job.name!r} has no port labelled {port.label!r} (it has: {labels})")
    there = known[port.label]
    return dataclasses.replace(port, there=there, here=there if port.is_preferred else port.here)


class Forward:
    """Listens on this machine and forwards each connection to the container.

    ``connect`` connects to the container, also after a break unless ``over`` returns a reason to end. A
    cluster that does not answer is no such reason. ``word`` is the format of a port argument, for hints.
    """

    def __init__(
        self,
        connect: Callable[[], Remote],
        ports: Sequence[Port],
        say: Say,
        over: Callable[[], str] = lambda: "",
        word: str = PORT_ARGUMENT,
        reverse: Sequence[ReversePort] = (),
    ) -> None:
        self._connect, self._say, self._over = connect, say, over
        self._reverse = {one.there: one for one in reverse}
        self._ended = threading.Event()
        self._remote: Remote | None = None
        self._reported: set[object] = set()  # ports where nothing listens
        self._listeners: list[tuple[socket.socket, int]] = []
        try:
            for one in ports:
                self._listeners.append((_listen(one, word), one.there))
        except BaseException:
            self.close()
            raise
        self.ports = tuple(Port(there, one.getsockname()[1]) for one, there in self._listeners)
        """The ports, with the numbers chosen for any free port."""

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> Forward:
        """Connect, and begin to accept connections."""
        self._remote = self._open()
        for listener, there in self._listeners:
            threading.Thread(target=self._accept, args=(listener, there), daemon=True).start()
        return self

    def serve(self) -> str:
        """Keep the connection until the job ends; return why it ended."""
        pause = FIRST_PAUSE
        while not wait_for_event(self._ended, POLL_SECONDS):
            if self._remote is not None and self._remote.is_open:
                pause = FIRST_PAUSE
                continue
            with contextlib.suppress(PaiError):  # unknown; the next attempt to connect reports the problem
                if why := self._over():
                    return why
            self._reconnect(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return ""

    def serve_in_background(self) -> None:
        """Keep the connection in a thread, until ``close`` or the end of the job."""
        threading.Thread(target=self._serve_and_report, name="forward", daemon=True).start()

    def close(self) -> None:
        """Disconnect, and stop listening."""
        self._ended.set()
        for listener, _ in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            listener.close()
        if self._remote is not None:
            self._remote.close()

    def _serve_and_report(self) -> None:
        try:
            why = self.serve()
        except PaiError as err:
            why = str(err)
        if not self._ended.is_set():
            self._say(f"{why}: forwarding has ended")
            self.close()

    def _open(self) -> Remote:
        """Connect, and listen on the ports that lead here."""
        remote = self._connect()
        try:
            remote.listen(self._reverse, self._accept_reverse)
        except ConfigError as err:
            remote.close()
            if self._remote is None:
                raise
            raise Unreachable(str(err)) from err  # the lost connection may still have the port
        except BaseException:
            remote.close()
            raise
        return remote

    def _reconnect(self, pause: float) -> None:
        self._say("connection lost; reconnecting")
        try:
            self._remote = self._open()
        except PERMANENT:
            raise
        except PaiError as err:
            self._say(f"{err}; trying again in {pause:g} s")
            wait_for_event(self._ended, pause)
        else:
            self._say("reconnected")

    def _accept(self, listener: socket.socket, there: int) -> None:
        while not self._ended.is_set():
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(visitor, there), daemon=True).start()

    def _forward(self, visitor: socket.socket, there: int) -> None:
        with visitor:
            remote = self._remote
            if remote is None or not remote.is_open:
                return
            try:
                channel = remote.dial(LOOPBACK, there)
            except NotListening as err:
                self._report(there, str(err))
                return
            except PaiError:
                return
            self._reported.discard(there)
            self._exchange(visitor, channel)

    def _accept_reverse(self, channel: paramiko.Channel, there: int) -> None:
        wanted = self._reverse.get(there)
        if wanted is None:  # nobody has asked the container for this port
            channel.close()
            return
        try:
            visitor = socket.create_connection((wanted.host, wanted.here), DIAL_SECONDS)
        except OSError as err:
            channel.close()
            why = (err.strerror or str(err)).lower()
            self._report(wanted, f"cannot connect to {wanted.host}:{wanted.here} from this machine ({why})")
            return
        visitor.settimeout(None)
        self._reported.discard(wanted)
        with visitor:
            self._exchange(visitor, channel)

    def _report(self, port: object, line: str) -> None:
        """Say what is wrong with a port, once until it works again."""
        if port not in self._reported:
            self._reported.add(port)
            self._say(line)

    def _exchange(self, visitor: socket.socket, channel: paramiko.Channel) -> None:
        with contextlib.closing(channel), contextlib.suppress(OSError, EOFError):
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _pump(visitor, channel, self._ended)


def forward_ports(
    client: Backend,
    found: RunningJob,
    container: Container,
    settings: Settings,
    ports: Sequence[Port],
    reverse: Sequence[ReversePort],
    say: Say,
) -> Forward:
    """Return a forward that looks up the container for every connection: it may have been restarted."""

    def connect() -> Remote:
        now = endpoints.reach(client, found.job.key, settings)
        same = endpoints.first_running(now, container.role, container.index)
        return endpoints.open_remote(client, now, same, settings)

    def over() -> str:
        return endpoints.explain_end(client, found, container)

    wanted = find_ports(client, found.job, container.role, container.index, ports)
    return Forward(connect, wanted, say, over, reverse=reverse)


def _listen(wanted: Port, word: str) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, wanted.here))
        except OSError:
            if not wanted.is_preferred:
                raise
            listener.bind((LOOPBACK, 0))
        listener.listen(64)
    except OSError as err:
        listener.close()
        next_one = wanted.here + 1 if wanted.here < LAST_PORT else 0
        other = f"use another one: {word.format(there=wanted.there, here=next_one)}"
        raise ConfigError(
            f"cannot listen on local port {wanted.here} ({(err.strerror or str(err)).lower()}); {other}"
        ) from err
    return listener


def _pump(visitor: socket.socket, channel: paramiko.Channel, ended: threading.Event) -> None:
    """Copy bytes in both directions until both ends are done."""
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
