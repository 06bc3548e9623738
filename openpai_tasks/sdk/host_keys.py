"""The host key that a container shows first is kept under a name of its own; another one is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError
from openpai_tasks.home import home, locked
from openpai_tasks.sdk.remote_target import PORT

if TYPE_CHECKING:
    import fabric
    import paramiko


def gateways_file() -> Path:
    """Where host keys of gateways are kept that ~/.ssh/known_hosts does not know."""
    return home() / "known_hosts" / ".gateways"


def users_file() -> Path:
    return Path.home() / ".ssh" / "known_hosts"


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
