"""The host key that a container shows first is kept under a name of its own; another one is refused."""

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
    """Where host keys of gateways are kept that ~/.ssh/known_hosts does not know."""
    return home() / "known_hosts" / ".gateways"


def users_file() -> Path:
    return Path.home() / ".ssh" / "known_hosts"


def watch_host_key(connection: fabric.Connection, file: Path, name: str) -> None:
    """Compare with what is known under the name; what is not known yet is kept."""
    _watch(connection, FirstUse(file, name), known_keys(file, name))


def watch_gateway(connection: fabric.Connection) -> tuple[str, Path]:
    """The same with the user's own file before ours; which name in which file it is compared with."""
    name, known = _known_as(connection), dict[str, "paramiko.PKey"]()
    with contextlib.suppress(ConfigError):  # as OpenSSH, which goes on without a file that it cannot read
        known = known_keys(users_file(), name)
    file = users_file() if known else gateways_file()
    _watch(connection, FirstUse(gateways_file(), name), known or known_keys(gateways_file(), name))
    return name, file


def _watch(connection: fabric.Connection, policy: FirstUse, known: dict[str, paramiko.PKey]) -> None:
    connection.client.set_missing_host_key_policy(policy)
    for kind, key in known.items():
        connection.client.get_host_keys().add(_known_as(connection), kind, key)


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
            before = read(self._file)
            end = "" if before.endswith("\n") or not before else "\n"  # OpenSSH may have left half a line
            replace(self._file, f"{before}{end}{line}")


def known_keys(file: Path, name: str) -> dict[str, paramiko.PKey]:
    """The host keys kept under the name, by their type; of two the first, and no line that is damaged."""
    found: dict[str, paramiko.PKey] = {}
    for names, key in _entries(read(file)):
        if any(_is_meant(name, one) for one in names):
            found.setdefault(key.get_name(), key)
    return found


def _entries(text: str) -> Iterator[tuple[list[str], paramiko.PKey]]:
    """The names and the key of each line; as with OpenSSH, a line that is none is passed over."""
    import paramiko
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    for line in text.splitlines():
        words = line.split()[:3]
        if len(words) < 3 or words[0].startswith("#"):
            continue
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException, ValueError, ArithmeticError):
            entry = HostKeyEntry.from_line(" ".join(words))
            if entry and entry.key.asbytes() == base64.b64decode(words[2]):  # else zeros stand for its end
                yield entry.hostnames, entry.key


def _is_meant(name: str, word: str) -> bool:
    if not word.startswith(_HASHED):
        return name == word
    with contextlib.suppress(ValueError):
        salt, digest = (base64.b64decode(part) for part in word.removeprefix(_HASHED).split("|"))
        return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
    return False
