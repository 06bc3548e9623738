"""A Unix socket on this machine that leads to our server on another one, by the user's ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openpai_tasks import __version__
from openpai_tasks.errors import Denied, Unreachable
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.engines import ENGINES
from openpai_tasks.settings.home import locked
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.text.hints import command
from openpai_tasks.tunnel.openssh import SharedConnection
from openpai_tasks.tunnel.remote_server import RemoteServer, start_server, stop_server

PROGRAM = "remote_program"
"""The field of a cluster in clusters.yaml with the program to use on its machine."""
ENGINE = "engine"
"""The option of a cluster with the engine of its server; a type of that name stands for it."""


class Tunnel:
    """The way to the server of one cluster; commands that run at the same time share it."""

    def __init__(self, cluster: Cluster) -> None:
        self._alias, self._program = cluster.alias, str(cluster.extra.get(PROGRAM) or "")
        self._engine = cluster.kind if cluster.kind in ENGINES else cluster.options.get(ENGINE, "")
        self.ssh = SharedConnection(parse_ssh(cluster.uri))

    @property
    def socket(self) -> Path:
        """The socket here; another version looks at the server again, another program may use another one."""
        return self.ssh.folder / f"server{sha256(f'{__version__} {self._program}'.encode())[:8]}"

    def is_open(self) -> bool:
        """Whether its process runs; the server is not asked."""
        return self.ssh.is_open() and self.socket.exists()

    def restore(self, since: float) -> None:
        """Make the server answer again, unless that happened since then (seconds since 1970)."""
        with self._with_hint(), locked(self.socket):
            if self._connected_at() <= since or not self.is_open():
                self._connect()

    def log_in(self) -> RemoteServer:
        """Open the tunnel and return the user's login to the server."""
        with locked(self.socket):
            return self._connect(with_login=True)

    def check_refused(self) -> None:
        """Raise if ssh has logged that the machine does not let us through to the running server."""
        noted = ""
        with suppress(FileNotFoundError):
            noted = self.ssh.log.read_text(encoding="utf-8", errors="replace")
        if "open failed" in noted:
            hint = "does its sshd forward to Unix sockets (AllowStreamLocalForwarding)?"
            raise Unreachable(f"{self.ssh.address.label} does not let us through to the server; {hint}")

    def stop_server(self, keep_jobs: bool = False) -> None:
        """Stop the server and, unless they are kept, its jobs."""
        self.ssh.open(check=True)
        stop_server(self.ssh, self._alias, self._program, keep_jobs)

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
        server = start_server(self.ssh, self._alias, self._program, self._engine, with_login)
        if not self.socket.exists() or self._target() != server.socket:
            self.ssh.forward(self.socket, server.socket, replaces=is_kept)
        self._target_link.unlink(missing_ok=True)
        self._target_link.symlink_to(server.socket)
        with suppress(FileNotFoundError):
            os.truncate(self.ssh.log, 0)  # what it notes from now on is news
        return server

    def _target(self) -> str:
        """Return the socket there that ours leads to."""
        try:
            return os.readlink(self._target_link)
        except OSError:
            return ""

    def _connected_at(self) -> float:
        try:
            return self._target_link.lstat().st_mtime
        except OSError:
            return 0.0

    @property
    def _target_link(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.target")

    @contextmanager
    def _with_hint(self) -> Iterator[None]:
        """Add what to do to an error of ssh, which may want to ask something that it cannot ask here."""
        try:
            yield
        except (Denied, Unreachable) as err:
            if not str(err).startswith("ssh: "):
                raise
            line = f"{err}; run: {command('cluster.update', self._alias)}"
            raise Denied(line, 401) if isinstance(err, Denied) else Unreachable(line, err.is_outage) from err
