"""A connection to one container. Only this module and those for host keys and logins use paramiko.

Only the given key is offered, and the user's ssh settings are not read.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError, Lost, PaiError, Unreachable
from openpai_tasks.sdk.ssh.host_keys import check_gateway_key, check_host_key
from openpai_tasks.sdk.ssh.login_errors import LoginAttempt, NotListening, translate_errors
from openpai_tasks.sdk.ssh.login_node_gateway import LoginNodeGateway
from openpai_tasks.sdk.ssh.target import Gateway, Target

if TYPE_CHECKING:
    import fabric
    import paramiko

KEEPALIVE_SECONDS = 15.0  # between two questions whether the connection is still there
KEEPALIVE_TIMEOUT = 30.0  # seconds for the answer
SFTP_SECONDS = 60.0  # for one SFTP answer
WINDOW = 1 << 24  # bytes in flight
LOOPBACK = "127.0.0.1"


class Remote:
    """A connection to a container, to be opened and closed."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._connections: list[fabric.Connection] = []
        self._closed = threading.Event()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> Remote:
        """Log in within the target's timeout."""
        logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it writes to stderr
        target = self.target
        try:
            through = self._open_gateway(target.gateway) if target.gateway else None
            connection = _connection(target, target.timeout, through)
            check_host_key(connection, target.known_hosts, target.name)
            login = (target.label, target.place, target.key, target.timeout)
            with translate_errors(LoginAttempt(*login, target.name, target.known_hosts)):
                self._open(connection)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._send_keepalives, daemon=True).start()
        return self

    def close(self) -> None:
        self._closed.set()
        while self._connections:
            connection = self._connections.pop()
            with contextlib.suppress(EOFError, OSError):
                connection.client.close()  # also if the login never finished

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set() and bool(self._connections) and self._connections[-1].is_connected

    def check(self) -> None:
        """Raise Lost unless the server answers: a breaking connection seems open when its channels end."""
        with self.losing():
            self._transport.global_request("keepalive@openssh.com", wait=True)
        if not self.is_open:
            raise Lost(f"the connection to {self.target.label} is lost")

    def session(self) -> paramiko.Channel:
        """Open a channel to run something in."""
        import paramiko

        try:
            with self.losing():
                return self._transport.open_session(window_size=WINDOW, timeout=self.target.timeout)
        except paramiko.ChannelException as err:
            raise Unreachable(f"{self.target.label} accepts no more sessions at once") from err

    def dial(self, host: str, port: int) -> paramiko.Channel:
        """Open a channel to an address as seen from the container; raise NotListening if nothing listens."""
        import paramiko

        try:
            with self.losing():
                place, origin = (host, port), (LOOPBACK, 0)
                return self._transport.open_channel(
                    "direct-tcpip", place, origin, window_size=WINDOW, timeout=self.target.timeout
                )
        except paramiko.ChannelException as err:
            where = f"{host}:{port}"
            raise NotListening(f"nothing listens at {where} in {self.target.label}", where) from err

    def listen(self, ports: Iterable[int], accept: Callable[[paramiko.Channel, int], object]) -> None:
        """Listen on ports of the container's loopback; ``accept`` gets each connection, in another thread.

        Raise ConfigError for a port that is in use, or if the container's ssh server does not allow it.
        """
        import paramiko

        def on_connection(
            channel: paramiko.Channel, origin: tuple[str, int], server: tuple[str, int]
        ) -> None:
            threading.Thread(target=accept, args=(channel, server[1]), daemon=True).start()

        for port in ports:
            try:
                self._transport.request_port_forward(LOOPBACK, port, on_connection)
            except paramiko.SSHException as err:
                raise self._refused_port(port) from err

    def _refused_port(self, port: int) -> PaiError:
        if not self.is_open:
            return Lost(f"the connection to {self.target.label} is lost")
        try:
            self.dial(LOOPBACK, port).close()
        except NotListening:
            why = "its ssh server does not allow it (on Kubernetes, the image needs python3)"
            return ConfigError(f"cannot listen on port {port} in {self.target.label}: {why}")
        return ConfigError(f"cannot listen on port {port} in {self.target.label}: it is in use there")

    def files(self) -> paramiko.SFTPClient:
        """Open a separate SFTP session, to be closed after use; try again if its server ends at once."""
        try:
            return self._open_sftp()
        except ConfigError:
            return self._open_sftp()

    def _open_sftp(self) -> paramiko.SFTPClient:
        import paramiko

        from openpai_tasks.storage.sftp.strict_client import StrictClient

        channel = self.session()
        channel.settimeout(max(SFTP_SECONDS, self.target.timeout))
        with self.losing():
            try:
                channel.invoke_subsystem("sftp")
                return StrictClient(channel)
            except (EOFError, paramiko.SSHException, paramiko.SFTPError) as err:
                channel.close()
                if not self.is_open:
                    raise Lost(f"the connection to {self.target.label} is lost") from err
                hint = "its sshd has no sftp-server, or its shell prints something at every login"
                raise ConfigError(f"cannot copy files with {self.target.label}: {hint}") from err

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """Translate the errors of a broken connection to Lost."""
        import paramiko

        try:
            yield
        except (paramiko.ChannelException, BrokenPipeError):  # the latter comes from our own output
            raise
        except TimeoutError as err:
            raise Lost(f"{self.target.label} no longer answers") from err
        except (EOFError, paramiko.SSHException, ConnectionError) as err:
            raise Lost(f"the connection to {self.target.label} is lost") from err
        except OSError as err:
            if self.is_open and str(err) != "Socket is closed":  # paramiko's message for a closed channel
                raise
            raise Lost(f"the connection to {self.target.label} is lost") from err

    @property
    def _transport(self) -> paramiko.Transport:
        transport = self._connections[-1].transport if self._connections else None
        if transport is None or not transport.is_active():
            raise Lost(f"the connection to {self.target.label} is lost")
        return transport

    def _open_gateway(self, gateway: Gateway) -> fabric.Connection | LoginNodeGateway:
        if gateway.is_login_node:
            return LoginNodeGateway(gateway, self.target.timeout)
        connection = _connection(gateway, self.target.timeout)
        what, place = f"the gateway {gateway.place}", f"{gateway.host}:{gateway.port}"
        kept = check_gateway_key(connection)
        try:
            with translate_errors(
                LoginAttempt(what, place, gateway.key, self.target.timeout, *kept, is_gateway=True)
            ):
                self._open(connection)
        except NotListening as err:
            hint = "check the setting ssh.gateway"
            raise Unreachable(f"no ssh server at {what}: {hint}") from err
        return connection

    def _open(self, connection: fabric.Connection) -> None:
        self._connections.append(connection)
        connection.open()
        sock = connection.transport.sock
        if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _send_keepalives(self) -> None:
        """Send keepalives and close the connection if one is not answered."""
        import paramiko

        transport = self._connections[-1].transport if self._connections else None
        while transport is not None and transport.is_active() and not self._closed.wait(KEEPALIVE_SECONDS):
            alarm = threading.Timer(KEEPALIVE_TIMEOUT, transport.close)
            alarm.daemon = True
            alarm.start()
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):  # it is closing
                transport.global_request("keepalive@openssh.com", wait=True)
            alarm.cancel()


def send_signal(channel: paramiko.Channel, name: str) -> None:
    """Send a signal such as INT to the channel's command, which paramiko does not support."""
    import paramiko
    from paramiko.common import cMSG_CHANNEL_REQUEST

    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(False)
    message.add_string(name)
    channel.transport._send_user_message(message)


def _connection(
    to: Target | Gateway, timeout: float, through: fabric.Connection | LoginNodeGateway | None = None
) -> fabric.Connection:
    """Return a connection without the user's settings for Fabric and ssh."""
    import fabric
    import paramiko

    config = fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())
    options: dict[str, Any] = {
        "key_filename": str(to.key) if to.key else None,
        "look_for_keys": False,
        "allow_agent": False,
        **dict.fromkeys(("timeout", "banner_timeout", "auth_timeout", "channel_timeout"), timeout),
    }
    user = to.user or None
    return fabric.Connection(to.host, user, to.port, config=config, gateway=through, connect_kwargs=options)
