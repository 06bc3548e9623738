"""Passwords and tokens of the clusters: in the system keyring when one works, else in a private file.

An entry belongs to one alias, address and user, so what was given for one server is never sent to another.
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
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.home import home, locked, write_private
from openpai_tasks.protocol.json_text import parse

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


def load(alias: str, uri: str, user: str) -> Credentials:
    """What is kept for this user of this cluster; empty when nothing is."""
    stored = _read_file().get((alias, uri, user))
    if stored is None:  # the keyring only when the file has none: saving there removes it from here
        stored = _read_keyring(alias, uri, user)
    return _credentials(stored or {})


def save(alias: str, uri: str, user: str, credentials: Credentials) -> str:
    """Keep the credentials and say where they went: ``the system keyring`` or the file."""
    if not credentials:
        forget(alias, uri, user)
        return "nowhere"
    if _write_keyring(alias, uri, user, credentials):
        _change_file((alias, uri, user), None)
        return "the system keyring"
    _change_file((alias, uri, user), credentials)
    return str(path())


def forget(alias: str, uri: str, user: str) -> None:
    """Remove the entry wherever it is; no entry is fine."""
    _change_file((alias, uri, user), None)
    name = _name(alias, uri, user)
    with _keyring() as ring:
        if ring is not None and ring.get_password(SERVICE, name) is not None:
            ring.delete_password(SERVICE, name)


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


Key = tuple[str, str, str]  # alias, uri, user


def _credentials(record: dict[str, Any]) -> Credentials:
    password, token = (str(record.get(name) or "") for name in ("password", "token"))
    return Credentials(password, token, bool(record.get("application")))


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
    return {
        (str(record.get("cluster_alias")), str(record.get("pai_uri")), str(record.get("user") or "")): record
        for record in records
    }


def _change_file(key: Key, credentials: Credentials | None) -> None:
    """Set or remove one entry; a file that needs no change is not touched."""
    import yaml

    if credentials is None and not path().exists():
        return
    with locked(path()):
        entries = _read_file()
        before = dict(entries)
        entries.pop(key, None)
        if credentials is not None:
            entries[key] = _record(key, credentials)
        if entries != before:
            write_private(path(), yaml.safe_dump(list(entries.values()), sort_keys=False, allow_unicode=True))


def _record(key: Key, credentials: Credentials) -> dict[str, Any]:
    record: dict[str, Any] = dict(zip(("cluster_alias", "pai_uri", "user"), key, strict=True))
    if credentials.password:
        record["password"] = credentials.password
    if credentials.token:
        record["token"] = credentials.token
    if credentials.application:
        record["application"] = True
    return record


def _name(alias: str, uri: str, user: str) -> str:
    return f"{alias} {user}@{uri}"


def _read_keyring(alias: str, uri: str, user: str) -> dict[str, Any] | None:
    text = None
    with _keyring() as ring:
        if ring is not None:
            text = ring.get_password(SERVICE, _name(alias, uri, user))
    try:
        record = json.loads(text or "null")
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _write_keyring(alias: str, uri: str, user: str, credentials: Credentials) -> bool:
    """True when the keyring really has it now: some take everything and keep nothing."""
    text = json.dumps(_record((alias, uri, user), credentials))
    kept = False
    with _keyring() as ring:
        if ring is not None:
            ring.set_password(SERVICE, _name(alias, uri, user), text)
            kept = ring.get_password(SERVICE, _name(alias, uri, user)) == text
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
