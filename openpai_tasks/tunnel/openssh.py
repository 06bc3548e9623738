"""One connection of OpenSSH to a machine, which runs in the background and which all commands share.

The user's own ssh decides how to log in: with its configuration, keys, agent, known hosts, second factors
and jump hosts.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.settings.home import connects, home, locked, socket_folder
from openpai_tasks.text.plain import last_line

CONNECT_SECONDS = 20
CHECK_SECONDS = 20.0
LOGIN_SECONDS = 60.0  # without a terminal to ask for a password
ALIVE_SECONDS, ALIVE_TRIES = 5, 3  # a connection that is dead ends after 15 seconds
FAILED = 255
"""Exit code of ssh itself."""

_FORGET_KEY = re.compile(r"""\s*(ssh-keygen -f (["'])[\w/. @~+-]+\2 -R (["'])[\w.:\[\]%-]+\3)\s*""")
"""The command that ssh suggests for a changed host key; the machine may have printed another one."""

_NO_EXTRAS = (
    "RemoteCommand=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "LogLevel=INFO",
)
_MASTER = (
    "ControlMaster=yes",
    "ControlPersist=no",  # it lives until it is ended, since it has no session
    "ClearAllForwardings=yes",  # those of the user's configuration are for other connections
    "ExitOnForwardFailure=yes",
    "StreamLocalBindMask=0177",
    "StreamLocalBindUnlink=yes",
    f"ConnectTimeout={CONNECT_SECONDS}",
    f"ServerAliveInterval={ALIVE_SECONDS}",
    f"ServerAliveCountMax={ALIVE_TRIES}",
)


@dataclass(frozen=True)
class RemoteResult:
    """What a command on the machine has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return _last_line(self.err)


class SharedConnection:
    """A connection to one machine; its control socket is in a folder that only the user can enter."""

    def __init__(self, address: SshAddress) -> None:
        self.address = address

    @functools.cached_property
    def folder(self) -> Path:
        name = self.address.label.replace(":", ",")  # a colon would end the path in options of ssh
        return socket_folder(home() / "ssh" / name)

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def log(self) -> Path:
        """What ssh has printed since the last login."""
        return self.folder / "log"

    def is_open(self) -> bool:
        """Whether its process runs; the network may be gone nevertheless."""
        return connects(self.control)

    def open(self, check: bool = False) -> bool:
        """Log in unless that was done; with ``check``, again if the connection carries nothing any more.

        Return whether the connection was there before.
        """
        if self.is_open() and not check:
            return True
        with locked(self.control):
            if self.is_open():
                if not check or self._is_usable():
                    return True
                self._control("exit")
            self._log_in()
        return False

    def _is_usable(self) -> bool:
        """Whether the connection carries anything: the network may have changed."""
        try:
            return self.run("true", CHECK_SECONDS).code == 0
        except (Denied, Unreachable):
            return False

    def _log_in(self) -> None:
        """Start the process; ssh asks for passwords and codes on the terminal."""
        for path in self.folder.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):  # of a process that was killed
                path.unlink()
        is_batch = not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())
        options = (*_MASTER, f"BatchMode={'yes' if is_batch else 'no'}")
        argv = [*self._argv(*options), "-f", "-N", "-E", str(self.log), *self.address.words]
        self.log.unlink(missing_ok=True)
        # not a pipe, which would stay open with the process
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            quiet, limit = subprocess.DEVNULL, LOGIN_SECONDS if is_batch else None
            done = self._run(argv, limit, stdin=quiet, stdout=quiet, stderr=handle)
        finally:
            os.close(handle)
        if done.returncode:
            raise login_error(self.address, self.log.read_text(encoding="utf-8", errors="replace"))

    def close(self) -> None:
        """End the process, if it runs."""
        with locked(self.control):
            if self.is_open():
                self._control("exit")
            self.control.unlink(missing_ok=True)

    def remove(self) -> None:
        """End the process, if it runs, and remove its files."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command: str, seconds: float, sent: bytes = b"") -> RemoteResult:
        """Run a command on the machine; raise Unreachable if the connection does not carry it."""
        argv = [*self.argv("BatchMode=yes"), *self.address.words, command]
        done = self._run(argv, seconds, input=sent, capture_output=True)
        out, errors = (one.decode("utf-8", "replace") for one in (done.stdout, done.stderr))
        if done.returncode == FAILED:
            raise login_error(self.address, errors)
        return RemoteResult(done.returncode, out, errors)

    def start(self, *flags: str, command: str = "", errors: int | None = None) -> socket.socket:
        """Start a session or a channel in another process, and return the pipe to it."""
        ours, theirs = socket.socketpair()
        argv = [*self.argv("BatchMode=yes"), *flags, *self.address.words, *([command] if command else [])]
        try:
            subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL if errors is None else errors,
                env=hidden_environment(),
                start_new_session=True,  # Ctrl-C is ours: cleaning up may need the session
            )
        except OSError as err:
            ours.close()
            raise _no_ssh(err) from err
        finally:
            theirs.close()
        return ours

    def forward(self, local: Path, remote: str, replaces: bool) -> None:
        """Make a Unix socket here lead to one on the machine."""
        if replaces:
            self._control("cancel", "-L", f"{local}:{remote}")
        local.unlink(missing_ok=True)
        done = self._control("forward", "-L", f"{local}:{remote}")
        if done.returncode:
            raise Unreachable(f"ssh: cannot forward to {self.address.label}: {_last_line(done.stderr)}")

    def argv(self, *options: str) -> list[str]:
        """Return the words of an ssh command that uses the connection, or logs in if it is closed."""
        return self._argv(
            "ControlMaster=no", "ClearAllForwardings=yes", f"ConnectTimeout={CONNECT_SECONDS}", *options
        )

    def _argv(self, *options: str) -> list[str]:
        words = [word for option in (*_NO_EXTRAS, *options) for word in ("-o", option)]
        return ["ssh", "-T", "-S", str(self.control).replace("%", "%%"), *words]

    def _control(self, verb: str, *more: str) -> subprocess.CompletedProcess[Any]:
        argv = [*self._argv(), "-O", verb, *more, *self.address.words]
        return self._run(
            argv, LOGIN_SECONDS, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )

    def _run(self, argv: list[str], seconds: float | None, **pipes: Any) -> subprocess.CompletedProcess[Any]:
        try:
            return subprocess.run(argv, env=hidden_environment(), timeout=seconds, check=False, **pipes)
        except subprocess.TimeoutExpired as err:
            raise Unreachable(f"ssh: {self.address.label} did not answer within {seconds:g} s") from err
        except OSError as err:
            raise _no_ssh(err) from err


def login_error(address: SshAddress, text: str) -> PaiError:
    """Return the error for what ssh has printed."""
    if "IDENTIFICATION HAS CHANGED" in text:
        found = next(filter(None, map(_FORGET_KEY.fullmatch, text.splitlines())), None)
        hint = f"; if that is expected: `{found[1]}`" if found else ""
        return Denied(
            f"ssh: the host key of {address.label} has changed: the connection may be intercepted{hint}", 403
        )
    if "Host key verification failed" in text:
        hint = f"`ssh {' '.join(address.words).replace('-- ', '')}` shows it and asks"
        return Denied(f"ssh: the host key of {address.label} is not known yet; {hint}", 403)
    last = _last_line(text) or f"cannot connect to {address.label}"
    if "Permission denied" in text:
        return Denied(f"ssh: {last}", 401)
    return Unreachable(f"ssh: {last}", is_outage=True)


def _last_line(text: str) -> str:
    return last_line(text).removeprefix("ssh: ")


def _no_ssh(err: OSError) -> ConfigError:
    return ConfigError(f"cannot run ssh: {err.strerror}; install OpenSSH's client")
