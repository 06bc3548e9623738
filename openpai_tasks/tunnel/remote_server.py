"""Our server on another machine: find the program there, start the server, and read the login to it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import field
from typing import Any

from openpai_tasks import __version__
from openpai_tasks.errors import ApiError, ConfigError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.engines import DEFAULT, ENGINES
from openpai_tasks.text.hints import command
from openpai_tasks.text.versions import is_compatible
from openpai_tasks.tunnel.openssh import RemoteResult, SharedConnection

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


def stop_server(ssh: SharedConnection, alias: str, program: str, keep_jobs: bool = False) -> None:
    """Stop the server and, unless they are kept, its jobs."""
    _run(ssh, alias, program, '"$@" cluster.stop' + (" --keep-jobs" if keep_jobs else ""))


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
        status, login = (
            _mapping(text) for text in ((texts[0], texts[1]) if len(texts) > 2 else (texts[0], "{}"))
        )
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


def _mapping(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError
    return found


def _not_installed(where: str, alias: str, program: str) -> str:
    if program:
        return f"{where}: there is no program {program!r}; check --remote-program"
    hint = (
        f"`{command('cluster.add', alias, '--ssh', where, '--install')}` installs it in ~/.openpai/venv there"
    )
    return f"{where}: openpai-tasks is not installed there; {hint}"
