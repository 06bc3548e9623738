"""Passwords and tokens, kept in the system keyring or, without one, in a private file.

An entry is bound to where it is sent: it is returned only for that alias, address, user and CA.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.home import home, locked, write_private

SERVICE = "openpai-tasks"
VARIABLES = ("OPENPAI_PASSWORD", "OPENPAI_TOKEN", "OPENPAI_STORAGE_PASSWORD", "OPENPAI_SMB_PASSWORD")
"""The environment variables with logins."""
FAILURES = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)
"""Exceptions that broken keyring back ends raise besides KeyringError."""


@dataclass(frozen=True)
class Credentials:
    """A user's password or token; ``repr`` shows only which of them is set."""

    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    application: bool = False

    def __bool__(self) -> bool:
        return bool(self.password or self.token)

    def __repr__(self) -> str:
        held = [name for name in ("password", "token") if getattr(self, name)]
        return f"Credentials({', '.join(held) or 'none'}, application={self.application})"


@dataclass(frozen=True)
class Destination:
    """The server that credentials are sent to; they are stored for exactly this destination."""

    alias: str
    address: str  # scheme, host, port and path, in the form that is compared
    user: str
    ca: str = ""  # fingerprint of the CA file that the server is checked with; "" for the system's CAs
    former: str = field(default="", compare=False)
    """The address that older versions kept the entry under; "" where such entries must not be used."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys to look for, the current form first."""
        now = Key("address", self.alias, self.address, self.user)
        return (now, Key("pai_uri", self.alias, self.former, self.user)) if self.former else (now,)


class Key(NamedTuple):
    """The key of an entry; older versions named its address ``pai_uri``."""

    form: str
    alias: str
    address: str
    user: str

    @property
    def name(self) -> str:
        """The unique name of the entry in a keyring."""
        if self.form == "pai_uri":
            return f"{self.alias} {self.user}@{self.address}"
        return " ".join(quote(part, safe=":/@[]~") for part in (self.alias, self.address, self.user))


def load(destination: Destination) -> Credentials:
    """Return the credentials for the destination, or empty ones; old entries are migrated."""
    key, *former = destination.keys
    stored = _find(key)
    if stored is not None:
        is_meant = str(stored.get("ca") or "") == destination.ca
        return _credentials(stored) if is_meant else Credentials()
    found = next((_credentials(record) for record in map(_find, former) if record), Credentials())
    if found:
        with suppress(ConfigError):  # the entry can still be used if the home folder is read-only
            save(destination, found)
    return found


def save(destination: Destination, credentials: Credentials) -> str:
    """Store the credentials and return where: ``the system keyring`` or the file."""
    if not credentials:
        forget(destination)
        return "nowhere"
    key, *former = destination.keys
    record = _record(destination, credentials)
    in_keyring = _write_keyring(key, record)
    _change_file(key, None if in_keyring else record)
    for old in former:
        _forget(old)
    return "the system keyring" if in_keyring else str(path())


def forget(destination: Destination) -> None:
    """Remove the entry, if there is one, whatever its CA."""
    for key in destination.keys:
        _forget(key)


def from_environment() -> Credentials:
    """Return the credentials in ``OPENPAI_PASSWORD`` and ``OPENPAI_TOKEN``."""
    return Credentials(os.environ.get("OPENPAI_PASSWORD", ""), os.environ.get("OPENPAI_TOKEN", "").strip())


def hidden_environment() -> dict[str, str]:
    """Return the environment for programs that need no login of ours: git, ssh, docker, an editor."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


def read_secret(source: str) -> str:
    """Return the first line of a file, or of standard input for ``-``."""
    try:
        text = (
            sys.stdin.readline() if source == "-" else Path(source).expanduser().read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {source}: {getattr(err, 'strerror', None) or 'not text'}") from err
    secret = text.split("\n", 1)[0].rstrip("\r")
    if not secret:
        raise ConfigError(f"no password or token in {'standard input' if source == '-' else source}")
    return secret


def token_claims(token: str) -> dict[str, Any]:
    """Return the claims in a token (user name, application, expiry), unverified; empty if it has none."""
    try:
        payload = token.split(".")[1]
        found = parse(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def path() -> Path:
    """Return the file that is used without a keyring."""
    return home() / "credentials.yaml"


def _credentials(record: dict[str, Any]) -> Credentials:
    password, token = (str(record.get(name) or "") for name in ("password", "token"))
    return Credentials(password, token, bool(record.get("application")))


def _find(key: Key) -> dict[str, Any] | None:
    stored = _read_file().get(key)
    return _read_keyring(key) if stored is None else stored  # saving in the keyring removes it from the file


def _forget(key: Key) -> None:
    _change_file(key, None)
    with _keyring() as ring:
        if ring is not None and ring.get_password(SERVICE, key.name) is not None:
            ring.delete_password(SERVICE, key.name)


def _read_file() -> dict[Key, dict[str, Any]]:
    try:
        text = path().read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise ConfigError(f"cannot read {path()}: {err.strerror}") from err
    from openpai_tasks.protocol.yaml import limited

    try:
        records = limited.load(text.decode()) or []
    except ValueError as err:  # its text would show a part of the file
        raise ConfigError(f"{path()} is not valid YAML; fix it, or remove it and log in again") from err
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ConfigError(f"{path()} must be a list of entries; fix it, or remove it and log in again")
    return {_key(record): record for record in records}


def _key(record: dict[str, Any]) -> Key:
    form = "address" if "address" in record else "pai_uri"
    alias, address = str(record.get("cluster_alias")), str(record.get(form))
    return Key(form, alias, address, str(record.get("user") or ""))


def _change_file(key: Key, record: dict[str, Any] | None) -> None:
    """Set or remove one entry, writing the file only if it changes."""
    import yaml

    if record is None and not path().exists():
        return
    with locked(path()):
        entries = _read_file()
        before = dict(entries)
        entries.pop(key, None)
        if record is not None:
            entries[key] = record
        if entries != before:
            write_private(path(), yaml.safe_dump(list(entries.values()), sort_keys=False, allow_unicode=True))


def _record(destination: Destination, credentials: Credentials) -> dict[str, Any]:
    record: dict[str, Any] = {
        "cluster_alias": destination.alias,
        "address": destination.address,
        "user": destination.user,
        "ca": destination.ca,
        "password": credentials.password,
        "token": credentials.token,
        "application": credentials.application,
    }
    return {name: value for name, value in record.items() if value or name == "user"}


def _read_keyring(key: Key) -> dict[str, Any] | None:
    text = None
    with _keyring() as ring:
        if ring is not None:
            text = ring.get_password(SERVICE, key.name)
    try:
        record = json.loads(text or "null")
    except ValueError:
        return None
    return record if isinstance(record, dict) and _key(record) == key else None


def _write_keyring(key: Key, record: dict[str, Any]) -> bool:
    """Store the record and return whether the keyring really kept it: some silently drop it."""
    text = json.dumps(record)
    kept = False
    with _keyring() as ring:
        if ring is not None:
            ring.set_password(SERVICE, key.name, text)
            kept = ring.get_password(SERVICE, key.name) == text
    return kept


@contextmanager
def _keyring() -> Iterator[ModuleType | None]:
    """Yield the ``keyring`` module or None; its failures inside the block are ignored."""
    broken: tuple[type[Exception], ...] = FAILURES
    try:
        ring: ModuleType | None = importlib.import_module("keyring")
        broken = (importlib.import_module("keyring.errors").KeyringError, *FAILURES)
    except FAILURES:
        ring = None
    with suppress(*broken):
        yield ring
