"""One connection to one container; the one home of Fabric and paramiko.

Only the key we are told of is offered, and nothing of the user's own ssh settings is read. The host key that
a container shows first is kept under a name of its own, and another one under that name is refused.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError, Denied, Lost, PaiError, Unreachable
from openpai_tasks.home import home, locked

if TYPE_CHECKING:
    import fabric
    import paramiko

PORT = 22
BEAT, PATIENCE = 15.0, 30.0  # seconds between two questions whether it is still there, and for the answer
ANSWER = 60.0  # seconds for one answer about files
WINDOW = 1 << 24  # bytes on their way at once
REFUSED = (errno.ECONNREFUSED,)
NOWHERE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)
_HOST = re.compile(r"[A-Za-z0-9._:][A-Za-z0-9._:-]*")
_USER = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")


class NotListening(Unreachable):
    """The host is there, and nothing takes ssh at the port."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class KeyRefused(Denied):
    """The container does not know the key."""


class HostKeyChanged(Denied):
    """The container shows another host key than before."""


@dataclass(frozen=True)
class Gateway:
    """The host that a connection goes through."""

    host: str
    port: int
    user: str
    key: Path | None

    @property
    def place(self) -> str:
        return f"{self.user}@{self.host}:{self.port}" if self.user else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Target:
    """Where a container takes ssh, and with what."""

    host: str
    port: int
    user: str
    key: Path
    name: str  # what its host key is kept under
    known_hosts: Path
    label: str
    timeout: float = 15.0
    gateway: Gateway | None = None

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"


def is_host(text: str) -> bool:
    """Whether it is an address or a name: it comes from a server, and ssh reads more than that."""
    return bool(_HOST.fullmatch(text))


def is_user(text: str) -> bool:
    return bool(_USER.fullmatch(text))


def gateways_file() -> Path:
    """Where host keys of gateways are kept that ~/.ssh/known_hosts does not know."""
    return home() / "known_hosts" / ".gateways"


def users_file() -> Path:
    return Path.home() / ".ssh" / "known_hosts"


def gateway(settings: Settings) -> Gateway | None:
    """What the settings say about a host to go through."""
    text = settings.ssh_gateway
    if not text:
        return None
    user, _, place = text.rpartition("@")
    host, _, port = place.rpartition(":") if ":" in place else (place, "", str(PORT))
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
    if not is_port or not is_host(host) or (user and not is_user(user)):
        raise ConfigError(f"the setting ssh.gateway must be USER@HOST:PORT, got {text!r}")
    chosen = settings.ssh_gateway_key or settings.ssh_key
    key = Path(chosen).expanduser() if chosen else home() / "ssh" / "id_ed25519"
    return Gateway(host, int(port), user, key)


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


def watch_host_key(connection: fabric.Connection, file: Path, name: str) -> None:
    """Compare with what is known under the name; what is not known yet is kept."""
    client = connection.client
    client.set_missing_host_key_policy(FirstUse(file, name))
    for kind, key in known_keys(file, name).items():
        client.get_host_keys().add(_known_as(connection), kind, key)


def watch_gateway(connection: fabric.Connection) -> tuple[str, Path]:
    """The same with the user's own file before ours; which name in which file it is compared with."""
    name = _known_as(connection)
    with contextlib.suppress(OSError):
        connection.client.load_system_host_keys()
    watch_host_key(connection, gateways_file(), name)
    known = connection.client._system_host_keys.lookup(name)
    return name, users_file() if known else gateways_file()


def _known_as(connection: fabric.Connection) -> str:
    """What paramiko looks for."""
    host, port = connection.host, connection.port
    return str(host) if port == PORT else f"[{host}]:{port}"


class FirstUse:
    """Paramiko's policy for a host key that is not known: it is kept."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        line = f"{self._name} {key.get_name()} {key.get_base64()}\n"
        with locked(self._file):
            try:
                handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            except OSError as err:
                raise ConfigError(f"cannot write {self._file}: {err.strerror}") from err
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write(line)


def known_keys(file: Path, name: str) -> dict[str, paramiko.PKey]:
    """The host keys kept under the name, by their type."""
    import paramiko

    keys = paramiko.HostKeys()
    try:
        keys.load(str(file))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {file}: {err}") from err
    found = keys.lookup(name)
    return {kind: found[kind] for kind in found.keys()} if found else {}  # noqa: SIM118  (no real mapping)


@dataclass(frozen=True)
class Login:
    """What there is to say about a login that fails."""

    what: str
    place: str
    key: Path | None
    timeout: float
    name: str  # what the host key is kept under
    known_hosts: Path
    is_gateway: bool = False

    @property
    def hint(self) -> str:
        return (
            "is the setting ssh.gateway right?"
            if self.is_gateway
            else "is it behind a gateway (ssh.gateway)?"
        )


@contextlib.contextmanager
def told(login: Login) -> Iterator[None]:
    """What goes wrong while logging in, each in a line of its own."""
    import paramiko

    what, place, key, timeout = login.what, login.place, login.key, login.timeout
    try:
        yield
    except PaiError:
        raise
    except paramiko.BadHostKeyException as err:
        raise _changed(login, err) from err
    except paramiko.PasswordRequiredException as err:
        raise ConfigError(f"the key {key} has a passphrase: name one without in the setting ssh.key") from err
    except paramiko.AuthenticationException as err:
        if isinstance(err.__context__, TimeoutError) or "timeout" in str(err).lower():
            raise Unreachable(f"{what} at {place} does not answer within {timeout:g} s") from err
        knows = "it knows the keys that were given when the job was submitted"
        raise KeyRefused(
            f"{what} refuses the key {key}: {'set ssh.gateway-key' if login.is_gateway else knows}", 401
        ) from err
    except paramiko.ssh_exception.IncompatiblePeer as err:
        hint = "`container.ssh-config` lets the ssh of your system try"
        raise Unreachable(f"{what} at {place} speaks only ssh that is too old: {hint}") from err
    except paramiko.ChannelException as err:
        raise NotListening(f"nothing takes ssh at {place} ({what})", place) from err
    except (EOFError, paramiko.SSHException) as err:
        raise _no_ssh(what, place, key, timeout, err) from err
    except socket.gaierror as err:
        raise Unreachable(f"no host is named {place.rpartition(':')[0]!r} ({what})") from err
    except TimeoutError as err:
        raise Unreachable(f"{what}: no answer from {place} within {timeout:g} s; {login.hint}") from err
    except OSError as err:
        raise _no_way(login, err) from err


def _changed(login: Login, err: Any) -> HostKeyChanged:
    seen, before = err.key.fingerprint, err.expected_key.fingerprint
    words = f"{login.what} shows another host key ({seen}) than when it was first seen ({before})"
    way = f"`ssh-keygen -R '{login.name}' -f {shlex.quote(str(login.known_hosts))}` forgets the old one"
    return HostKeyChanged(f"{words}: somebody may be in between; if you know why, {way}", 403)


def _no_ssh(what: str, place: str, key: Path | None, timeout: float, err: BaseException) -> PaiError:
    said = str(err)
    if "private key" in said or "not a valid" in said or "checkints" in said:
        return ConfigError(f"the key {key} cannot be read as a private key")
    if "banner" in said or "No existing session" in said or isinstance(err, EOFError):
        return Unreachable(f"{what}: what listens at {place} said nothing that is ssh within {timeout:g} s")
    return Unreachable(f"{what}: no ssh with {place}: {said.splitlines()[0] if said else 'it hung up'}")


def _no_way(login: Login, err: OSError) -> PaiError:
    what, place = login.what, login.place
    errors = getattr(err, "errors", None) or {}
    first = next(iter(errors.values()), err)
    if first.errno in REFUSED:
        return NotListening(f"nothing takes ssh at {place} ({what})", place)
    if first.errno in NOWHERE:
        return Unreachable(f"{what}: no way to {place} ({os.strerror(first.errno).lower()}); {login.hint}")
    return Unreachable(f"{what}: no connection to {place}: {first.strerror or first}")
