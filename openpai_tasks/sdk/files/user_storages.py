"""Storages of a person's own, beside those that a cluster grants: by the flags of a command, and as kept.

A record holds what was typed and no secret; passwords and keys are in the credentials store.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.clusters import choices
from openpai_tasks.sdk.files.user_storage_types import KINDS, Data, OwnStorage
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, Cluster, storage_destination
from openpai_tasks.storage import location
from openpai_tasks.storage.store import Place

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SECRET_WORDS = re.compile(r"pass|secret|key|token|sas|pwd", re.IGNORECASE)
CLASSIC = re.compile(r"(configs|servers_data|servers_ext):")
"""What the older clients wrote before an option."""
LOGIN = re.compile(r"([A-Za-z][\w+.-]*:)?/*.*:.*@")
"""``user:password@``, behind ``https://`` or not."""
SECRET_VALUE = re.compile(r"(sig|pass|secret|key|token|pwd)[\w-]*=", re.IGNORECASE)


def parse_storage(
    name: str, type: str, address: str, path: str, user: str, options: Iterable[str], read_only: bool
) -> OwnStorage:
    """What the flags say, checked as far as that goes without connecting."""
    if LOGIN.match(address) or SECRET_VALUE.search(address) or SECRET_VALUE.search(path.partition("?")[2]):
        hint = "it is asked for, or read from --password-file or OPENPAI_STORAGE_PASSWORD"
        raise ConfigError(f"the address has a password, a key or a signature in it; leave it out: {hint}")
    return _with_ca_here(_checked(name, type, address, path, user, options, read_only))


def _checked(
    name: str, type: str, address: str, path: str, user: str, options: Iterable[str], read_only: bool
) -> OwnStorage:
    kind = type.lower()
    if not kind:
        raise ConfigError(f"say what kind of storage it is: --type (known: {', '.join(KINDS)})")
    if kind not in KINDS:
        hint = closest(kind, KINDS) or f" (known: {', '.join(KINDS)})"
        raise ConfigError(f"no storage is of type {type!r}{hint}")
    if not NAME.fullmatch(name) or name == "0":
        raise ConfigError(f"the name {name!r} may have letters, digits, '.', '_' and '-' only, and is not 0")
    pairs = tuple(_option(text, kind) for text in options)
    made = OwnStorage(name, kind, address.strip(), path.strip(), user, pairs, read_only)
    for need in KINDS[kind].needs:
        if not getattr(made, need):
            raise ConfigError(f"a storage of type {kind!r} needs --{need}")
    KINDS[kind].data(made, "")  # what cannot be understood is refused here
    return made


def _option(text: str, kind: str) -> tuple[str, str]:
    name, equals, value = CLASSIC.sub("", text).partition("=")
    known = KINDS[kind].options
    if SECRET_WORDS.search(name):
        hint = "it is asked for, or read from --password-file or OPENPAI_STORAGE_PASSWORD"
        raise ConfigError(f"--option {name}: a secret does not go on the command line; {hint}")
    if not equals or not value:
        raise ConfigError(f"--option needs NAME=VALUE, got {text!r}")
    if name not in known:
        said = f"known: {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"--option {name}: not one of a storage of type {kind!r} ({said})")
    if name == "port":
        _refuse_no_port(value)
    return name, value


def _refuse_no_port(value: str) -> None:
    try:
        addresses.parse_port(value)
    except ValueError:
        raise ConfigError(f"--option port: a number from 1 to {addresses.LAST_PORT}, got {value!r}") from None


def _with_ca_here(own: OwnStorage) -> OwnStorage:
    """With the certificate's whole path: other commands are run in other folders."""
    given = own.option("ca")
    if not given:
        return own
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isfile(path):
        raise ConfigError(f"--option ca: there is no file {given!r}")
    return dataclasses.replace(own, options=tuple((dict(own.options) | {"ca": path}).items()))


def record(own: OwnStorage) -> Data:
    """As it is kept; what was not said is left out."""
    said: Data = {key: getattr(own, key) for key in ("name", "type", "address", "path", "user", "read_only")}
    return {key: value for key, value in (said | {"options": dict(own.options)}).items() if value}


def owned(cluster: Cluster) -> dict[str, OwnStorage]:
    """The storages added to a cluster, by name, but for those of ``unclear``."""
    return {name: own for name, own in _understood(cluster) if isinstance(own, OwnStorage)}


def unclear(cluster: Cluster) -> dict[str, ConfigError]:
    """What is wrong with records that cannot be understood, as a person may have written them by hand."""
    return {name: err for name, err in _understood(cluster) if isinstance(err, ConfigError)}


def find(cluster: Cluster, name: str) -> OwnStorage | None:
    """The storage of that name, if it is one that was added."""
    if name in (wrong := unclear(cluster)):
        raise wrong[name]
    return owned(cluster).get(name)


def named(said: Mapping[str, Any]) -> str:
    """The name in a record."""
    return str(said.get("name") or "")


def _understood(cluster: Cluster) -> Iterator[tuple[str, OwnStorage | ConfigError]]:
    file = choices.path() if cluster.alias == LOCAL else "clusters.yaml, with cluster.edit"
    for said in cluster.own_storages:
        name = named(said)
        try:
            yield name, _from_record(said)
        except ConfigError as err:
            what = f"the record of storage {name!r} of {cluster.alias!r} is not understood: {err}"
            yield name, ConfigError(f"{what}; mend it in {file}, or `storage.forget {shlex.quote(name)}`")


def _from_record(said: Mapping[str, Any]) -> OwnStorage:
    text = {key: str(said.get(key) or "") for key in ("name", "type", "address", "path", "user")}
    options = said.get("options")
    rows = [f"{key}={value}" for key, value in options.items()] if isinstance(options, dict) else []
    return _checked(**text, options=rows, read_only=bool(said.get("read_only")))


def place(cluster: Cluster, own: OwnStorage, secret: str, mounts: tuple[tuple[str, str], ...]) -> Place:
    """What a back end needs to know."""
    mounted = own.option("mount")
    return Place(
        cluster=cluster.alias,
        name=own.name,
        kind=own.type,
        data=KINDS[own.type].data(own, secret),
        user=own.user if own.type == "hdfs" and own.user else cluster.user,
        read_only=own.read_only,
        verify=own.option("ca") or True,
        mounts=((f"{cluster.alias}/{own.name}", mounted), *mounts) if mounted else mounts,
        is_own=True,
    )


def check_installed(own: OwnStorage) -> None:
    """A package that its secret would be of no use without."""
    if own.wants_secret and not own.option("mount"):
        location.refuse_missing(own.type)


def keep_secret(cluster: Cluster, own: OwnStorage, secret: str) -> str:
    """Keep the secret and say where."""
    return credentials.save(storage_destination(cluster, record(own)), Credentials(password=secret))


def forget_secret(cluster: Cluster, own: OwnStorage) -> None:
    credentials.forget(storage_destination(cluster, record(own)))


def kept_secret(cluster: Cluster, own: OwnStorage) -> str:
    if not KINDS[own.type].secret:
        return ""
    return credentials.load(storage_destination(cluster, record(own))).password
