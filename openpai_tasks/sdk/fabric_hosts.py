"""Make Fabric know the hosts of jobs, by the ``~/.fabric.py`` that ``container.ssh-config`` writes.

Fabric then reads our hosts file, checks host keys as our own tasks do, and offers no agent keys to them.
"""

from __future__ import annotations

import functools
import socket
from pathlib import Path
from typing import Any

from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.sdk.ssh.host_blocks import GATEWAY, config_path
from openpai_tasks.sdk.ssh.host_keys import check_gateway_key, check_host_key
from openpai_tasks.sdk.ssh.login_errors import LoginAttempt, translate_errors
from openpai_tasks.settings.home import home
from openpai_tasks.text.hints import command


def include() -> None:
    """Make Fabric read our file before the user's, whose ``Include`` its parser ignores."""
    from fabric import Connection
    from fabric.config import Config

    read: Any = Config._load_ssh_files
    if getattr(read, "knows_jobs", False):
        return

    def read_both(config: Any) -> None:
        if config._runtime_ssh_path is None and config.load_ssh_configs:
            config._load_ssh_file(str(config_path()))
        read(config)

    read_both.knows_jobs = True  # type: ignore[attr-defined]
    Config._load_ssh_files = read_both
    _check_keys(Connection)


def tasks_of(folder: Path | None = None) -> dict[str, str]:
    """Return Fabric's setting to load tasks.py if there is no fabfile up to the root."""
    start = folder or Path.cwd()
    if _has(start, "fabfile") or not _has(start, "tasks"):
        return {}
    return {"collection_name": "tasks"}


def _has(start: Path, name: str) -> bool:
    places = [
        path / inner for path in (start, *start.parents) for inner in (f"{name}.py", f"{name}/__init__.py")
    ]
    return any(place.is_file() for place in places)


def _check_keys(connection: Any) -> None:
    """Make connections to our hosts check their host keys, as Fabric accepts any."""
    make, log_in = connection.__init__, connection.open

    def checked_init(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        place = _host_key_place(self)
        if place:
            self.connect_kwargs = {"look_for_keys": False, "allow_agent": False, **self.connect_kwargs}
            check_host_key(self, place[1], place[0])
        elif _is_gateway(self):
            check_gateway_key(self)

    def checked_open(self: Any) -> Any:
        if self.is_connected:
            return log_in(self)
        if _host_key_place(self) or _is_gateway(self):
            return _log_in(self, log_in)
        try:
            return log_in(self)
        except socket.gaierror as err:  # an unknown name, which may be meant to be a job's
            raise _no_such_host_class()(self.original_host, err) from err

    connection.__init__, connection.open = checked_init, checked_open


@functools.cache
def _no_such_host_class() -> Any:
    from invoke.exceptions import Exit

    class NoSuchHost(Exit, socket.gaierror):
        """Ends Invoke with one line, and is still a gaierror for code that expects one."""

        def __init__(self, host: str, err: socket.gaierror) -> None:
            hint = f"if it is a job's, write its names with `{command('container.ssh-config')} JOB`"
            Exit.__init__(self, f"error: unknown host {host!r}; {hint}", Unreachable.exit_code)
            self.errno, self.strerror = err.errno, err.strerror

    return NoSuchHost


def _log_in(connection: Any, log_in: Any) -> Any:
    """Log in, with one-line errors as in our own tasks."""
    from invoke.exceptions import Exit

    is_gateway = _is_gateway(connection)
    name, file = _host_key_place(connection) or check_gateway_key(connection)
    key = next(iter(connection.ssh_config.get("identityfile", ())), None)
    place = f"{connection.host}:{connection.port}"
    timeout = float(connection.connect_timeout or 0)
    login = LoginAttempt(connection.original_host, place, key and Path(key), timeout, name, file, is_gateway)
    try:
        with translate_errors(login):
            return log_in(connection)
    except PaiError as err:
        raise Exit(f"error: {err}", err.exit_code) from err


def _host_key_place(connection: Any) -> tuple[str, Path] | None:
    """Return the name and file of its host key, if it is one of our containers."""
    alias = connection.ssh_config.get("hostkeyalias")
    file = Path(connection.ssh_config.get("userknownhostsfile", "").strip('"').replace("%%", "%"))
    return (alias, file) if alias and file.parent == home() / "known_hosts" else None


def _is_gateway(connection: Any) -> bool:
    return str(connection.original_host).startswith(GATEWAY)
