"""A Unix socket on this machine that leads to our server on a login node, by the user's ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openpai_tasks.errors import Denied, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import locked
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.tunnel.login_node import RemoteServer, start_server, stop_server
from openpai_tasks.tunnel.openssh import SharedConnection

PROGRAM = "remote_program"
"""The field of a cluster in clusters.yaml with the program to use on the login node."""


class Tunnel:
    """The way to the server of one cluster; commands that run at the same time share it."""

    def __init__(self, cluster: Cluster) -> None:
        self._alias, self._program = cluster.alias, str(cluster.extra.get(PROGRAM) or "")
        self._engine = cluster.kind
        self.ssh = SharedConnection(parse_ssh(cluster.uri))

    @property
    def socket(self) -> Path:
        """The socket here; another program there may use another server."""
        return self.ssh.folder / f"server{sha256(self._program.encode())[:8] if self._program else ''}"

    def is_open(self) -> bool:
        """Whether its process runs; the server is not asked."""
        return self.ssh.is_open() and self.socket.exists()

    def restore(self, since: float) -> None:
        """Make the server answer again, unless that happened since then (seconds since 1970)."""
        with self._hinting(), locked(self.socket):
            if self._connected_at() <= since or not self.is_open():
                self._connect()

    def log_in(self) -> RemoteServer:
        """Open the tunnel and return the user's login to the server."""
        with locked(self.socket):
            return self._connect(with_login=True)

    def explain(self) -> None:
        """Raise if ssh has noted that the login node does not let us through to the server, which runs."""
        noted = ""
        with suppress(FileNotFoundError):
            noted = self.ssh.log.read_text(encoding="utf-8", errors="replace")
        if "open failed" in noted:
            hint = "does its sshd forward to Unix sockets (AllowStreamLocalForwarding)?"
            raise Unreachable(f"{self.ssh.address.label} does not let us through to the server; {hint}")

    def stop_server(self) -> None:
        """Stop the server and its jobs."""
        self.ssh.open(check=True)
        stop_server(self.ssh, self._program)

    def close(self) -> None:
        """End the connection; the server continues."""
        with locked(self.socket):
            self.ssh.close()
            self.socket.unlink(missing_ok=True)

    def remove(self) -> None:
        """End the connection and remove its files."""
        self.close()
        self.ssh.remove()

    def _connect(self, with_login: bool = False) -> RemoteServer:
        is_kept = self.ssh.open(check=True)
        server = start_server(self.ssh, self._program, self._engine, with_login)
        if not self.socket.exists() or self._target() != server.socket:
            self.ssh.forward(self.socket, server.socket, replaces=is_kept)
        self._note(server.socket)
        with suppress(FileNotFoundError):
            os.truncate(self.ssh.log, 0)  # what it notes from now on is news
        return server

    def _note(self, socket: str) -> None:
        self._noted.unlink(missing_ok=True)
        self._noted.symlink_to(socket)

    def _target(self) -> str:
        """Return the socket there that ours leads to."""
        try:
            return os.readlink(self._noted)
        except OSError:
            return ""

    def _connected_at(self) -> float:
        try:
            return self._noted.lstat().st_mtime
        except OSError:
            return 0.0

    @property
    def _noted(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.target")

    @contextmanager
    def _hinting(self) -> Iterator[None]:
        """Add what to do to an error of ssh, which may want to ask something that it cannot ask here."""
        try:
            yield
        except (Denied, Unreachable) as err:
            if not str(err).startswith("ssh: "):
                raise
            line = f"{err}; run: {command('cluster.update', self._alias)}"
            raise Denied(line, 401) if isinstance(err, Denied) else Unreachable(line, err.is_outage) from err
