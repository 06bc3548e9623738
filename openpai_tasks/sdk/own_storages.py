"""Storages of a person's own, beside those that a cluster grants: what is said of one, and where it leads.

A record holds what was typed and no secret; passwords and keys are in the credentials store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from openpai_tasks import credentials
from openpai_tasks.credentials import Credentials
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.problems import closest
from openpai_tasks.registry import Cluster, storage_key
from openpai_tasks.storage import location
from openpai_tasks.storage.store import Place

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SECRET_WORDS = re.compile(r"pass|secret|key|token|sas|pwd", re.IGNORECASE)
CLASSIC = re.compile(r"(configs|servers_data|servers_ext):")
"""What the older clients wrote before an option."""
LOGIN = re.compile(r"([A-Za-z][\w+.-]*:)?/*.*:.*@")
"""``user:password@``, behind ``https://`` or not."""
SECRET_VALUE = re.compile(r"(sig|pass|secret|key|token|pwd)[\w-]*=", re.IGNORECASE)

Data = dict[str, Any]


@dataclass(frozen=True)
class OwnStorage:
    """What a person says of a storage."""

    name: str
    type: str
    address: str = ""
    path: str = ""
    user: str = ""
    options: tuple[tuple[str, str], ...] = ()
    read_only: bool = False

    def option(self, name: str) -> str:
        return dict(self.options).get(name, "")

    @property
    def wants_secret(self) -> bool:
        """Whether somebody logs in there who has to prove it."""
        return bool(KINDS[self.type].secret and self.user)

    @property
    def secret_word(self) -> str:
        """What the secret is called there."""
        return KINDS[self.type].secret


@dataclass(frozen=True)
class Kind:
    """What a type of storage takes, and how a back end is told."""

    data: Callable[[OwnStorage, str], Data]
    needs: tuple[str, ...]
    options: tuple[str, ...] = ()
    secret: str = ""  # what it is called when it is asked for


def new(
    name: str, type: str, address: str, path: str, user: str, options: Iterable[str], read_only: bool
) -> OwnStorage:
    """What the flags say, checked as far as that goes without connecting."""
    if LOGIN.match(address) or SECRET_VALUE.search(address) or SECRET_VALUE.search(path.partition("?")[2]):
        hint = "it is asked for, or read from --password-file or OPENPAI_STORAGE_PASSWORD"
        raise ConfigError(f"the address has a password, a key or a signature in it; leave it out: {hint}")
    return _checked(name, type, address, path, user, options, read_only)


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
    return name, value


def record(own: OwnStorage) -> Data:
    """As it is kept; what was not said is left out."""
    said: Data = {key: getattr(own, key) for key in ("name", "type", "address", "path", "user", "read_only")}
    return {key: value for key, value in (said | {"options": dict(own.options)}).items() if value}


def owned(cluster: Cluster) -> dict[str, OwnStorage]:
    """The storages added to a cluster, by name; what a person may have written by hand is checked."""
    return {own.name: own for own in map(_from_record, cluster.own_storages)}


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
    )


def refuse_missing(own: OwnStorage) -> None:
    """A package that its secret would be of no use without."""
    if own.wants_secret and not own.option("mount"):
        location.refuse_missing(own.type)


def keep_secret(cluster: Cluster, own: OwnStorage, secret: str) -> str:
    """Keep the secret and say where."""
    return credentials.save(*storage_key(cluster.alias, record(own)), Credentials(password=secret))


def forget_secret(cluster: Cluster, own: OwnStorage) -> None:
    credentials.forget(*storage_key(cluster.alias, record(own)))


def kept_secret(cluster: Cluster, own: OwnStorage) -> str:
    if not KINDS[own.type].secret:
        return ""
    return credentials.load(*storage_key(cluster.alias, record(own))).password


def _local(own: OwnStorage, secret: str) -> Data:
    if not own.path.startswith("/"):
        raise ConfigError(f"--path: a folder of this machine is absolute, got {own.path!r}")
    return {"path": own.path}


def _nfs(own: OwnStorage, secret: str) -> Data:
    return {"server": own.address, "path": own.path}


def _hdfs(own: OwnStorage, secret: str) -> Data:
    """A url of a gateway, or one or several name nodes with commas between them."""
    scheme, mark, rest = own.address.partition("://")
    root = {"path": _rooted(own.path)}
    if scheme in ("http", "https") and mark:
        return {"webhdfs": own.address} | root
    hosts = (rest if mark else own.address).strip("/")
    if (mark and scheme not in ("hdfs", "webhdfs")) or "/" in hosts or not hosts.strip(","):
        raise ConfigError(f"--address: name nodes are HOST:PORT[,HOST:PORT] or a url, got {own.address!r}")
    return {"namenode": hosts} | root | dict(own.options)


def _samba(own: OwnStorage, secret: str) -> Data:
    host, share, below = _names(own.address.removeprefix("smb:").replace("\\", "/"), 2)
    if not share:
        host, share, below = _names(f"{host}/{own.path}", 2)
    else:
        below = (below + _rooted(own.path)).rstrip("/")
    if not host or not share:
        raise ConfigError(f"--address: a share is //HOST/SHARE, got {own.address!r}")
    login = {"username": own.user, "password": secret} if own.user else {}
    return {"address": f"//{host}/{share}", "rootPath": below} | login | _plain(own)


def _azurefile(own: OwnStorage, secret: str) -> Data:
    share, _, below = _names(own.path, 1)
    data = {"accountName": own.user, "shareName": share, "rootPath": below, "accountKey": secret}
    return data | ({"dataStore": own.address} if own.address else {}) | _plain(own)


def _azureblob(own: OwnStorage, secret: str) -> Data:
    container, _, below = _names(own.path, 1)
    key = "accountSASToken" if "sig=" in secret else "accountKey"
    data = {"accountName": own.user, "containerName": container, "path": below, key: secret}
    return data | ({"dataStore": own.address} if own.address else {}) | _plain(own)


def _s3(own: OwnStorage, secret: str) -> Data:
    bucket, _, below = _names(own.path, 1)
    login = {"accessKeyId": own.user, "secretAccessKey": secret} if own.user else {}
    data = {"bucket": bucket, "path": below} | ({"endpoint": own.address} if own.address else {})
    return data | login | _plain(own)


def _plain(own: OwnStorage) -> Data:
    return {name: value for name, value in own.options if name not in ("mount", "ca")}


def _rooted(path: str) -> str:
    return "/" + path.strip("/")


def _names(text: str, count: int) -> tuple[str, str, str]:
    """The first one or two names of a path, and the rest of it from its root."""
    names = [name for name in text.split("/") if name]
    first, second = (*names[:count], "", "")[:2]
    below = "/".join(names[count:])
    return first, second, _rooted(below) if below else ""


KINDS = {
    "hdfs": Kind(_hdfs, ("address",), ("port", "ca")),
    "local": Kind(_local, ("path",)),
    "nfs": Kind(_nfs, ("address", "path"), ("mount",)),
    "samba": Kind(_samba, ("address",), ("domain", "port", "mount"), "password"),
    "azurefile": Kind(_azurefile, ("user", "path"), ("mount",), "account key"),
    "azureblob": Kind(_azureblob, ("user", "path"), (), "account key or SAS token"),
    "s3": Kind(_s3, ("path",), (), "secret key"),
}
"""Type of a storage -> what it takes; the types are those of BACKENDS."""
