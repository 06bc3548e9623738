"""Types of storages that a person can add: what is said of one, and how its back end is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openpai_tasks.errors import ConfigError

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
        if own.option("port"):
            raise ConfigError(f"--option port: a url has its port in it: {scheme}://HOST:PORT")
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
