"""Passwords and tokens of the clusters: in the system keyring when one works, else in a private file.

An entry belongs to what it is sent to: it is handed out for that alias, address, user and CA only.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.home import home, locked, write_private

SERVICE = "openpai-tasks"
FAILURES = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)
"""What the back ends of a keyring raise beside its own error when they are not well."""


@dataclass(frozen=True)
class Credentials:
    """How a user proves who they are; ``repr`` shows only what kind it is."""

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
    """What credentials are sent to, and so what they are kept for."""

    alias: str
    address: str  # scheme, host, port and path, in the form that is compared
    user: str
    ca: str = ""  # fingerprint of the CA file that the server is checked with; "" for the system's CAs
    former: str = field(default="", compare=False)
    """The address that older versions kept the entry under; "" where such entries must not be used."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Where to look for the entry, the current form first."""
        now = Key("address", self.alias, self.address, self.user)
        return (now, Key("pai_uri", self.alias, self.former, self.user)) if self.former else (now,)


class Key(NamedTuple):
    """Where an entry is filed; older versions named its address ``pai_uri``."""

    form: str
    alias: str
    address: str
    user: str

    @property
    def name(self) -> str:
        """Its name in a keyring; no two keys share one."""
        if self.form == "pai_uri":
            return f"{self.alias} {self.user}@{self.address}"
        return " ".join(quote(part, safe=":/@[]~") for part in (self.alias, self.address, self.user))


def load(destination: Destination) -> Credentials:
    """What is kept for the destination; empty when nothing is. An old entry is moved to the new form."""
    key, *former = destination.keys
    stored = _find(key)
    if stored is not None:
        is_meant = str(stored.get("ca") or "") == destination.ca
        return _credentials(stored) if is_meant else Credentials()
    found = next((_credentials(record) for record in map(_find, former) if record), Credentials())
    if found:
        with suppress(ConfigError):  # a home that cannot be written to is no reason to fail
            save(destination, found)
    return found


def save(destination: Destination, credentials: Credentials) -> str:
    """Keep the credentials and say where they went: ``the system keyring`` or the file."""
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
    """Remove the entry wherever it is and whatever its CA; no entry is fine."""
    for key in destination.keys:
        _forget(key)


def from_environment() -> Credentials:
    """What ``OPENPAI_PASSWORD`` and ``OPENPAI_TOKEN`` hold."""
    return Credentials(os.environ.get("OPENPAI_PASSWORD", ""), os.environ.get("OPENPAI_TOKEN", "").strip())


def read_secret(source: str) -> str:
    """The first line of a file, or of standard input for ``-``."""
    try:
        text = (
            sys.stdin.readline() if source == "-" else Path(source).expanduser().read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {source}: {getattr(err, 'strerror', None) or 'not text'}") from err
    secret = text.split("\n", 1)[0].rstrip("\r")
    if not secret:
        raise ConfigError(f"{'standard input' if source == '-' else source} has no password or token in it")
    return secret


def claims(token: str) -> dict[str, Any]:
    """What a token says about itself (user name, application or not, end), not verified; maybe nothing."""
    try:
        payload = token.split(".")[1]
        said = parse(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def path() -> Path:
    """The file that stands in for a keyring."""
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
    import yaml

    try:
        records = yaml.safe_load(path().read_text(encoding="utf-8")) or []
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise ConfigError(f"cannot read {path()}: {err.strerror}") from err
    except (yaml.YAMLError, UnicodeDecodeError) as err:  # the text of the error would show a part of the file
        raise ConfigError(f"{path()} is not valid YAML; mend it, or remove it and log in again") from err
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ConfigError(f"{path()} must be a list of entries; mend it, or remove it and log in again")
    return {_key(record): record for record in records}


def _key(record: dict[str, Any]) -> Key:
    form = "address" if "address" in record else "pai_uri"
    alias, address = str(record.get("cluster_alias")), str(record.get(form))
    return Key(form, alias, address, str(record.get("user") or ""))


def _change_file(key: Key, record: dict[str, Any] | None) -> None:
    """Set or remove one entry; a file that needs no change is not touched."""
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
    """True when the keyring really has it now: some take everything and keep nothing."""
    text = json.dumps(record)
    kept = False
    with _keyring() as ring:
        if ring is not None:
            ring.set_password(SERVICE, key.name, text)
            kept = ring.get_password(SERVICE, key.name) == text
    return kept


@contextmanager
def _keyring() -> Iterator[ModuleType | None]:
    """The ``keyring`` module or None; a keyring that fails inside the block counts as none."""
    broken: tuple[type[Exception], ...] = FAILURES
    try:
        ring: ModuleType | None = importlib.import_module("keyring")
        broken = (importlib.import_module("keyring.errors").KeyringError, *FAILURES)
    except FAILURES:
        ring = None
    with suppress(*broken):
        yield ring
