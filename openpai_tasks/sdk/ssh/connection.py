"""One connection to one container; with its host keys and its login, the one home of Fabric and paramiko.

Only the key we are told of is offered, and nothing of the user's own ssh settings is read.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError, Lost, Unreachable
from openpai_tasks.sdk.ssh.host_keys import watch_gateway, watch_host_key
from openpai_tasks.sdk.ssh.login_errors import Login, NotListening, told
from openpai_tasks.sdk.ssh.target import Gateway, Target

if TYPE_CHECKING:
    import fabric
    import paramiko

BEAT, PATIENCE = 15.0, 30.0  # seconds between two questions whether it is still there, and for the answer
ANSWER = 60.0  # seconds for one answer about files
WINDOW = 1 << 24  # bytes on their way at once


class Remote:
    """A connection; ``open`` it, and ``close`` it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._connections: list[fabric.Connection] = []
        self._closed = threading.Event()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> Remote:
        """Log in, within the time there is for it."""
        logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it writes to stderr
        try:
            through = self._through(self.target.gateway) if self.target.gateway else None
            self._connect(_connection(self.target, through))
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._keep, daemon=True).start()
        return self

    def close(self) -> None:
        self._closed.set()
        while self._connections:
            connection = self._connections.pop()
            with contextlib.suppress(EOFError, OSError):
                connection.client.close()  # also one that never came to a login

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set() and bool(self._connections) and self._connections[-1].is_connected

    def session(self) -> paramiko.Channel:
        """A channel to run something in."""
        import paramiko

        try:
            with self.losing():
                return self._transport.open_session(window_size=WINDOW, timeout=self.target.timeout)
        except paramiko.ChannelException as err:
            raise Unreachable(f"{self.target.label} takes no more sessions at once") from err

    def dial(self, host: str, port: int) -> paramiko.Channel:
        """A channel to an address as the container sees it; NotListening where nothing takes it."""
        import paramiko

        try:
            with self.losing():
                place, origin = (host, port), ("127.0.0.1", 0)
                return self._transport.open_channel(
                    "direct-tcpip", place, origin, window_size=WINDOW, timeout=self.target.timeout
                )
        except paramiko.ChannelException as err:
            where = f"{host}:{port}"
            raise NotListening(f"nothing answers at {where} in {self.target.label}", where) from err

    def files(self) -> paramiko.SFTPClient:
        """A session of its own for files, to be closed after use."""
        import paramiko

        channel = self.session()
        channel.settimeout(max(ANSWER, self.target.timeout))
        with self.losing():
            try:
                channel.invoke_subsystem("sftp")
                return paramiko.SFTPClient(channel)
            except (EOFError, paramiko.SSHException, paramiko.SFTPError) as err:
                channel.close()
                if not self.is_open:
                    raise Lost(f"the connection to {self.target.label} is lost") from err
                hint = "its sshd has no sftp-server, or its shell says something at every login"
                raise ConfigError(f"{self.target.label} takes no files: {hint}") from err

    def read_ahead(self, file: paramiko.SFTPFile, size: int, requests: int) -> None:
        """Have the file ask for its bytes before they are wanted; who reads is told of what goes wrong."""
        import paramiko

        ask = file._prefetch_thread

        def ask_quietly(*args: Any) -> None:
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
                ask(*args)

        file._prefetch_thread = ask_quietly  # else a broken connection shows as a traceback of that thread
        file.prefetch(size, requests)

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """What a broken connection raises, in our words."""
        import paramiko

        try:
            yield
        except (paramiko.ChannelException, BrokenPipeError):  # the latter is of our own output
            raise
        except TimeoutError as err:
            raise Lost(f"{self.target.label} does not answer any more") from err
        except (EOFError, paramiko.SSHException, ConnectionError) as err:
            raise Lost(f"the connection to {self.target.label} is lost") from err
        except OSError as err:
            if self.is_open and str(err) != "Socket is closed":  # paramiko's words for a channel that ended
                raise
            raise Lost(f"the connection to {self.target.label} is lost") from err

    @property
    def _transport(self) -> paramiko.Transport:
        transport = self._connections[-1].transport if self._connections else None
        if transport is None or not transport.is_active():
            raise Lost(f"the connection to {self.target.label} is lost")
        return transport

    def _through(self, way: Gateway) -> fabric.Connection:
        connection = _gateway_connection(way, self.target.timeout)
        what, place = f"the gateway {way.place}", f"{way.host}:{way.port}"
        kept = watch_gateway(connection)
        try:
            with told(Login(what, place, way.key, self.target.timeout, *kept, is_gateway=True)):
                self._open(connection)
        except NotListening as err:
            hint = "is the setting ssh.gateway right?"
            raise Unreachable(f"nothing takes ssh at {what}: {hint}") from err
        return connection

    def _connect(self, connection: fabric.Connection) -> None:
        goal = self.target
        with told(Login(goal.label, goal.place, goal.key, goal.timeout, goal.name, goal.known_hosts)):
            self._open(connection)

    def _open(self, connection: fabric.Connection) -> None:
        self._connections.append(connection)
        connection.open()
        sock = connection.transport.sock
        if isinstance(sock, socket.socket):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _keep(self) -> None:
        """Ask now and then whether it is there; without an answer it is closed: nobody waits for ever."""
        import paramiko

        transport = self._connections[-1].transport if self._connections else None
        while transport is not None and transport.is_active() and not self._closed.wait(BEAT):
            alarm = threading.Timer(PATIENCE, transport.close)
            alarm.daemon = True
            alarm.start()
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):  # it ends just now
                transport.global_request("keepalive@openssh.com", wait=True)
            alarm.cancel()


def send_signal(channel: paramiko.Channel, name: str) -> None:
    """Send a signal such as INT to what runs in the channel; paramiko itself has no way to do it."""
    import paramiko
    from paramiko.common import cMSG_CHANNEL_REQUEST

    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(False)
    message.add_string(name)
    channel.transport._send_user_message(message)


def _connection(goal: Target, through: fabric.Connection | None) -> fabric.Connection:
    import fabric

    connection = fabric.Connection(
        goal.host,
        goal.user,
        goal.port,
        config=_plain_config(),
        gateway=through,
        connect_kwargs=_options(goal.key, goal.timeout),
    )
    watch_host_key(connection, goal.known_hosts, goal.name)
    return connection


def _gateway_connection(way: Gateway, timeout: float) -> fabric.Connection:
    import fabric

    options = _options(way.key, timeout)
    user = way.user or None
    return fabric.Connection(way.host, user, way.port, config=_plain_config(), connect_kwargs=options)


def _plain_config() -> fabric.Config:
    """Fabric without the user's own settings for it, and without those for ssh."""
    import fabric
    import paramiko

    return fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())


def _options(key: Path | None, timeout: float) -> dict[str, Any]:
    limits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout", "channel_timeout"), timeout)
    return {"key_filename": str(key) if key else None, "look_for_keys": False, "allow_agent": False, **limits}
