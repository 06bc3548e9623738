"""Keep the first host key of each container under its own name, and refuse any other."""

from __future__ import annotations

import base64
import contextlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.ssh.target import PORT
from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import home, locked

if TYPE_CHECKING:
    import fabric
    import paramiko

_HASHED = "|1|"


def gateways_file() -> Path:
    """Return the file for gateways' host keys that ~/.ssh/known_hosts lacks."""
    return home() / "known_hosts" / ".gateways"


def users_file() -> Path:
    return Path.home() / ".ssh" / "known_hosts"


def check_host_key(connection: fabric.Connection, file: Path, name: str) -> None:
    """Make the connection check its host key under the name, and keep a new one."""
    _set_policy(connection, KeepFirstKey(file, name), known_keys(file, name))


def check_gateway_key(connection: fabric.Connection) -> tuple[str, Path]:
    """Do the same for a gateway, with the user's file before ours; return the name and the file used."""
    name, known = _paramiko_name(connection), dict[str, "paramiko.PKey"]()
    with contextlib.suppress(ConfigError):  # like OpenSSH, continue without an unreadable file
        known = known_keys(users_file(), name)
    file = users_file() if known else gateways_file()
    _set_policy(connection, KeepFirstKey(gateways_file(), name), known or known_keys(gateways_file(), name))
    return name, file


def _set_policy(connection: fabric.Connection, policy: KeepFirstKey, known: dict[str, paramiko.PKey]) -> None:
    connection.client.set_missing_host_key_policy(policy)
    for kind, key in known.items():
        connection.client.get_host_keys().add(_paramiko_name(connection), kind, key)


def _paramiko_name(connection: fabric.Connection) -> str:
    """Return the host name that paramiko looks up."""
    host, port = connection.host, connection.port
    return str(host) if port == PORT else f"[{host}]:{port}"


class KeepFirstKey:
    """Paramiko policy that keeps unknown host keys."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        line = f"{self._name} {key.get_name()} {key.get_base64()}\n"
        with locked(self._file):
            before = read(self._file)
            end = "" if before.endswith("\n") or not before else "\n"  # OpenSSH may leave half a line
            replace(self._file, f"{before}{end}{line}")


def known_keys(file: Path, name: str) -> dict[str, paramiko.PKey]:
    """Return the host keys under the name by type, the first of each; skip damaged lines."""
    found: dict[str, paramiko.PKey] = {}
    for names, key in _entries(read(file)):
        if any(_matches(name, one) for one in names):
            found.setdefault(key.get_name(), key)
    return found


def _entries(text: str) -> Iterator[tuple[list[str], paramiko.PKey]]:
    """Yield the names and key of each line; like OpenSSH, skip invalid ones."""
    import paramiko
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    for line in text.splitlines():
        words = line.split()[:3]
        if len(words) < 3 or words[0].startswith("#"):
            continue
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException, ValueError, ArithmeticError):
            entry = HostKeyEntry.from_line(" ".join(words))
            if entry and entry.key.asbytes() == base64.b64decode(words[2]):  # else it is truncated
                yield entry.hostnames, entry.key


def _matches(name: str, word: str) -> bool:
    if not word.startswith(_HASHED):
        return name == word
    with contextlib.suppress(ValueError):
        salt, digest = (base64.b64decode(part) for part in word.removeprefix(_HASHED).split("|"))
        return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
    return False
