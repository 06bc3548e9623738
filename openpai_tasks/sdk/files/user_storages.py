"""Storages that the user adds to those of a cluster: from the flags of a command, and from records.

A record holds what was typed and no secret; passwords and keys are in the credentials store.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.amounts import parse_option
from openpai_tasks.sdk.clusters.user_clusters import choices_path
from openpai_tasks.settings import credentials
from openpai_tasks.settings.registry import Cluster, storage_destination
from openpai_tasks.storage import kinds
from openpai_tasks.storage.kinds import StorageKind, UserStorage
from openpai_tasks.storage.store import Mounts, StorageSpec
from openpai_tasks.text.hints import command

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SECRET_HINT = "it is asked for, or read from --password-file or OPENPAI_STORAGE_PASSWORD"
CLASSIC = re.compile(r"(configs|servers_data|servers_ext):")
"""Prefix of options in older clients."""
LOGIN = re.compile(r"[^:\n]*:[^@\n]*@")
"""``user:password@``, with or without ``https://`` before it."""
SECRET_VALUE = re.compile(r"(sig|pass|secret|key|token|pwd)[\w-]{0,40}=", re.IGNORECASE)


def parse_storage(
    name: str, type: str, address: str, path: str, user: str, options: Iterable[str], read_only: bool
) -> UserStorage:
    """The storage of these flags, checked as far as possible without connecting."""
    if LOGIN.match(address) or SECRET_VALUE.search(address) or SECRET_VALUE.search(path.partition("?")[2]):
        raise ConfigError(
            f"the address has a password, a key or a signature in it; leave it out: {SECRET_HINT}"
        )
    return _with_absolute_ca(_make_storage(name, type, address, path, user, options, read_only))


def _make_storage(
    name: str, type: str, address: str, path: str, user: str, options: Iterable[str], read_only: bool
) -> UserStorage:
    kind = _find_kind(type)
    if not NAME.fullmatch(name) or name == "0":
        raise ConfigError(f"the name {name!r} may have letters, digits, '.', '_' and '-' only, and is not 0")
    pairs = tuple(_option(text, kind) for text in options)
    storage = UserStorage(name, kind, address.strip(), path.strip(), user, pairs, read_only)
    for flag in kind.flags:
        if not getattr(storage, flag):
            raise ConfigError(f"a storage of type {kind.name!r} needs --{flag}")
    kind.make_data(storage, "")  # raises where the flags make no sense
    return storage


def _find_kind(type: str) -> StorageKind:
    """The kind of that type, if a storage of it can be added."""
    kind = kinds.find_type(type)
    if kind is not None and kind.data:
        return kind
    names = tuple(kind.name for kind in kinds.all_kinds() if kind.data)
    known = kinds.describe_known(names)
    if not type:
        raise ConfigError(f"give the type of the storage with --type{known}")
    raise ConfigError(f"unknown storage type {type!r}{closest(type, names) or known}")


def _option(text: str, kind: StorageKind) -> tuple[str, str]:
    owner = f"storages of type {kind.name!r}"
    name, value = parse_option(CLASSIC.sub("", text), kind.options, owner, SECRET_HINT)
    if name == "port":
        try:
            addresses.parse_port(value)
        except ValueError:
            last = addresses.LAST_PORT
            raise ConfigError(f"--option port must be a number from 1 to {last}, got {value!r}") from None
    return name, value


def _with_absolute_ca(own: UserStorage) -> UserStorage:
    """The storage with the absolute path of its certificate, as other commands run in other folders."""
    given = own.option("ca")
    if not given:
        return own
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isfile(path):
        raise ConfigError(f"--option ca: there is no file {given!r}")
    return dataclasses.replace(own, options=tuple((dict(own.options) | {"ca": path}).items()))


def record(own: UserStorage) -> dict[str, Any]:
    """The record to keep, without empty values."""
    keys = ("name", "type", "address", "path", "user", "read_only")
    values: dict[str, Any] = {key: getattr(own, key) for key in keys} | {"options": dict(own.options)}
    return {key: value for key, value in values.items() if value}


def owned(cluster: Cluster) -> dict[str, UserStorage]:
    """The storages that the user added to a cluster, by name, without those of ``record_errors``."""
    return {name: own for name, own in _parsed_records(cluster) if isinstance(own, UserStorage)}


def record_errors(cluster: Cluster) -> dict[str, ConfigError]:
    """The errors of invalid records, which users may have edited."""
    return {name: err for name, err in _parsed_records(cluster) if isinstance(err, ConfigError)}


def find(cluster: Cluster, name: str) -> UserStorage | None:
    """The storage of that name, if the user added it."""
    if name in (errors := record_errors(cluster)):
        raise errors[name]
    return owned(cluster).get(name)


def row_name(row: Mapping[str, Any]) -> str:
    """The name in a record."""
    return str(row.get("name") or "")


def _parsed_records(cluster: Cluster) -> Iterator[tuple[str, UserStorage | ConfigError]]:
    where = f"in {choices_path()}" if cluster.is_embedded else f"with `{command('cluster.edit')}`"
    for row in cluster.own_storages:
        name = row_name(row)
        try:
            yield name, _from_record(row)
        except ConfigError as err:
            what = f"the record of storage {name!r} of {cluster.alias!r} cannot be understood: {err}"
            yield (
                name,
                ConfigError(f"{what}; correct it {where}, or run `{command('storage.forget', name)}`"),
            )


def _from_record(row: Mapping[str, Any]) -> UserStorage:
    text = {key: str(row.get(key) or "") for key in ("name", "type", "address", "path", "user")}
    options = row.get("options")
    rows = [f"{key}={value}" for key, value in options.items()] if isinstance(options, dict) else []
    return _make_storage(**text, options=rows, read_only=bool(row.get("read_only")))


def make_spec(cluster: Cluster, own: UserStorage, mounts: Mounts, secret: str | None = None) -> StorageSpec:
    """Return what is needed to open the storage; its secret is that in the store unless it is given."""
    if secret is None:
        asks = own.kind.asks_for
        secret = credentials.load(storage_destination(cluster, record(own))).password if asks else ""
    mounted = own.option("mount")
    return StorageSpec(
        cluster=cluster.alias,
        name=own.name,
        kind=own.type,
        data=own.kind.make_data(own, secret),
        user=own.user if own.kind.acts_as_user and own.user else cluster.user,
        read_only=own.read_only,
        verify=own.option("ca") or True,
        mounts=((f"{cluster.alias}/{own.name}", mounted), *mounts) if mounted else mounts,
        is_own=True,
    )


def check_installed(own: UserStorage) -> None:
    """Refuse a storage whose packages are missing, before its secret is asked for."""
    if own.wants_secret and not own.option("mount"):
        own.kind.check_installed()
