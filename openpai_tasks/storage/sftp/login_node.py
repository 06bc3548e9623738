"""A folder on a login node over SFTP, through the connection that the user's ssh keeps open."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import stat
from collections.abc import Iterator

import paramiko

from openpai_tasks.errors import ConfigError, Lost, PathError
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.storage.sftp.store import SftpStore
from openpai_tasks.storage.sftp.strict_client import StrictClient
from openpai_tasks.storage.store import Digest, StorageSpec, join
from openpai_tasks.tunnel.openssh import SharedConnection


class LoginNodeStore(SftpStore):
    """The files below a folder of the user's on the login node."""

    def __init__(self, ssh: SharedConnection, root: str, title: str) -> None:
        super().__init__(ssh.address.label, lambda: LoginNodeFiles(ssh, root, title))
        self._root = root

    def address(self, path: str) -> str:
        return super().address(_below(self._root, path))

    def digest(self, path: str) -> Digest | None:
        return super().digest(_below(self._root, path))


class LoginNodeFiles:
    """Sessions on the shared connection, each a process of ssh."""

    def __init__(self, ssh: SharedConnection, root: str, title: str) -> None:
        self._ssh, self._root, self._title = ssh, root, title
        self._is_lost = self._has_root = False
        logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it writes to stderr
        ssh.open()

    @property
    def is_open(self) -> bool:
        return not self._is_lost and self._ssh.is_open()

    def files(self) -> paramiko.SFTPClient:
        try:
            files = RootedClient(Pipe(fileno=self._ssh.start("-s", command="sftp").detach()), self._root)
        except (EOFError, OSError, paramiko.SFTPError, paramiko.SSHException) as err:
            if not self.is_open:
                raise Lost(f"the connection to {self._ssh.address.label} is lost") from err
            hint = "its sshd has no sftp-server, or a profile there prints something at every login"
            raise ConfigError(f"cannot copy files with {self._ssh.address.label}: {hint}") from err
        if not self._has_root:
            _make_root(files, self._title)
            self._has_root = True
        return files

    def session(self) -> ShellChannel:
        return ShellChannel(self._ssh)

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError, paramiko.SSHException) as err:
            self._is_lost = True
            raise Lost(f"the connection to {self._ssh.address.label} is lost") from err


class RootedClient(StrictClient):
    """A client for which the root is a folder of the server."""

    def __init__(self, pipe: Pipe, root: str) -> None:
        self._root = root
        super().__init__(pipe)

    def _adjust_cwd(self, path: str) -> bytes:
        return _below(self._root, path).encode()


class Pipe(socket.socket):
    """One end of a pair of sockets, with the methods of a channel that paramiko asks for."""

    def get_name(self) -> str:
        return "sftp"

    def recv_ready(self) -> bool:
        return bool(select.select([self], [], [], 0)[0])


class ShellChannel:
    """A command on the login node, with the methods of a channel that the store uses."""

    def __init__(self, ssh: SharedConnection) -> None:
        self._ssh, self._seconds = ssh, 0.0

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def exec_command(self, command: str) -> None:
        pipe = self._ssh.start(command=command)
        pipe.settimeout(self._seconds)
        self.sendall, self.recv = pipe.sendall, pipe.recv


def open_store(spec: StorageSpec) -> LoginNodeStore:
    """Open a folder that the user's own server on a login node names."""
    if not spec.is_own:
        raise ConfigError(f"cluster {spec.cluster!r} wants {spec.title} to be read by your ssh: refused")
    root = str(spec.data.get("path", ""))
    if not root.startswith("/"):
        raise ConfigError(f"{spec.title} does not say which folder it is")
    ssh = SharedConnection(parse_ssh(spec.cluster_uri))
    return LoginNodeStore(ssh, spec.users_folder(root), spec.title)


def describe_server(spec: StorageSpec) -> str:
    return f"{parse_ssh(spec.cluster_uri).label}:{spec.data.get('path', '')}"


def _make_root(files: paramiko.SFTPClient, title: str) -> None:
    """Create the user's folder if it is missing, accessible only to the user."""
    try:
        is_folder = stat.S_ISDIR(files.stat("/").st_mode or 0)
    except FileNotFoundError:
        try:
            files.mkdir("/", 0o700)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                files.stat("/")
                return  # another command was faster
            raise
        return
    if not is_folder:
        raise PathError(f"{title} is not a folder")


def _below(root: str, path: str) -> str:
    return join(root, path.strip("/")) if path.strip("/") else root
