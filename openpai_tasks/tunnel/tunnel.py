"""A Unix socket on this machine that leads to our server on another one, by the user's ssh.

The server is started there if it does not run, with the program that is found on that machine.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path

from openpai_tasks import __version__
from openpai_tasks.errors import ApiError, ConfigError, Denied, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.engines import DEFAULT, ENGINES
from openpai_tasks.settings.home import locked
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.text.hints import command
from openpai_tasks.text.versions import is_compatible
from openpai_tasks.tunnel.openssh import RemoteResult, SharedConnection

PROGRAM = "remote_program"
"""The field of a cluster in clusters.yaml with the program to use on its machine."""
ENGINE = "engine"
"""The option of a cluster with the engine of its server; a type of that name stands for it."""
START_SECONDS = 120.0  # shared file systems are slow
NOT_INSTALLED = 67
VENV = "$HOME/.openpai/venv"
_MARK = "openpai-answer"
_SOCKET = re.compile(r"/[A-Za-z0-9._~@%+,=/-]+")
# Each is one line without exclamation marks and backslashes, since the user's shell may be csh or fish.
_FIND = (
    f'if [ -x "{VENV}/bin/pai" ]; then set -- "{VENV}/bin/pai"; '  # from --install
    "elif command -v pai >/dev/null 2>&1; then set -- pai; "
    'elif python3 -c "import openpai_tasks" 2>/dev/null; then set -- python3 -m openpai_tasks; '
    f"else exit {NOT_INSTALLED}; fi; "
)
_START = f'echo; echo "{_MARK} $(uname -n)"; "$@" cluster.start $engine -o json || exit $?; '
_LOGIN = f'echo; echo {_MARK}; "$@" cluster.credentials local -o json || exit $?; '
_END = f"echo; echo {_MARK}"


@dataclass(frozen=True)
class RemoteServer:
    """The running server, and the login to it if that was asked for."""

    socket: str
    engine: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


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
        script = '"$@" cluster.stop' + (" --keep-jobs" if keep_jobs else "")
        _run(self.ssh, self._alias, self._program, script)

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


def start_server(
    ssh: SharedConnection, alias: str, program: str, engine: str, with_login: bool = False
) -> RemoteServer:
    """Start the server unless it runs; secrets come over the connection and are written nowhere.

    Without an engine, the server has the one that it had before.
    """
    script = _choose_engine(engine) + _START + (_LOGIN if with_login else "") + _END
    try:
        return _server(ssh, alias, _run(ssh, alias, program, script), engine)
    except Unreachable as err:
        if engine or "cannot be used" not in str(err):
            raise
        raise Unreachable(f"{err}; add `--engine {DEFAULT}` to run jobs on that machine itself") from err


def _choose_engine(wanted: str) -> str:
    """Return the script that sets the variable ``engine``, for the first start to that of a login node."""
    if wanted:
        return f"engine={shlex.quote(f'--engine={wanted}')}; "
    found = "".join(
        f"command -v {kind.program} >/dev/null && engine=--engine={name}; "
        for name, kind in ENGINES.ours.items()
        if kind.is_on_login_nodes
    )
    return f'engine=; [ -e "${{OPENPAI_HOME:-$HOME/.openpai}}/local/start.json" ] || {{ {found}}}; '


def _run(ssh: SharedConnection, alias: str, program: str, script: str) -> RemoteResult:
    """Run a script in which ``$@`` is our program there."""
    find = f"set -- {_words(program)}; " if program else _FIND
    done = ssh.run(login_shell(find + script), START_SECONDS)
    where = ssh.address.label
    if done.code == NOT_INSTALLED or (program and done.code in (126, 127)):
        raise ConfigError(_not_installed(where, alias, program))
    if done.code:
        reason = done.last_line.removeprefix("error: ") or f"pai failed there with exit code {done.code}"
        raise Unreachable(f"{where}: {reason}{' there' if '`' in reason else ''}")  # a command is for there
    return done


def login_shell(script: str) -> str:
    """Return a command that runs a script with the paths and modules of a login."""
    # a system such as Alpine has no bash; profiles for it are read where it exists
    start = 'command -v bash >/dev/null && exec bash -lc "$0"; exec sh -lc "$0"'
    return f"exec sh -c {shlex.quote(start)} {shlex.quote(script)}"


def _words(program: str) -> str:
    try:
        words = shlex.split(program)
    except ValueError as err:
        raise ConfigError(f"invalid program {program!r}: {err}") from err
    if not words or re.search(r"[!\\\x00-\x1f\x7f]", program):
        raise ConfigError(f"invalid program {program!r}")
    home = [
        '"$HOME"/' + shlex.quote(word[2:]) if word.startswith("~/") else shlex.quote(word) for word in words
    ]
    return " ".join(home)


def _server(ssh: SharedConnection, alias: str, done: RemoteResult, wanted: str) -> RemoteServer:
    """Read the answers between the marks; what profiles print is in front of them."""
    where = ssh.address.label
    _, *answers = re.split(rf"^{_MARK}(.*)$", done.out, flags=re.M)
    hosts, texts = answers[::2], answers[1::2]
    try:
        status, login = json.loads(texts[0]), json.loads(texts[1] if len(texts) > 2 else "{}")
        if not (isinstance(status, dict) and isinstance(login, dict)):
            raise ValueError
    except (IndexError, ValueError, RecursionError) as err:
        raise ApiError(f"{where}: `pai cluster.start` printed something unexpected") from err
    engine, socket = str(status.get("engine")), str(status.get("socket") or "")
    version, host = str(status.get("version")), str(status.get("host") or "")
    if wanted and engine != wanted and engine in ENGINES:
        hint = "`pai cluster.stop` there ends it"
        raise ConfigError(f"{where}: a server runs there whose jobs run {ENGINES[engine].label}; {hint}")
    if not _SOCKET.fullmatch(socket) or not is_compatible(version):
        update = command("cluster.restart", alias, "--install")
        raise ConfigError(
            f"{where}: the server there is openpai-tasks {version}, this is {__version__}; "
            f"`{update}` updates it, and its jobs continue"
        )
    if host and host != hosts[0].strip():
        raise Unreachable(
            f"{where} is {hosts[0].strip()} now, but the server runs on {host}: use its name with --ssh"
        )
    login = {name: str(login.get(name) or "") for name in ("user", "password", "token")}
    return RemoteServer(socket, engine, **login)


def _not_installed(where: str, alias: str, program: str) -> str:
    if program:
        return f"{where}: there is no program {program!r}; check --remote-program"
    hint = (
        f"`{command('cluster.add', alias, '--ssh', where, '--install')}` installs it in ~/.openpai/venv there"
    )
    return f"{where}: openpai-tasks is not installed there; {hint}"
