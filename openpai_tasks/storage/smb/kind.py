"""Samba and Azure File, both by SMB: which server, share and folder a storage or a url means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.settings import credentials
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.store import Place, Store, check_name, join

if TYPE_CHECKING:
    from openpai_tasks.storage.smb.store import SmbStore

PORT = 445
PASSWORD = "OPENPAI_SMB_PASSWORD"
AZURE = "file.core.windows.net"
URL = "smb://USER@HOST/SHARE/PATH"


def open_store(place: Place) -> Store:
    """A storage of a cluster: where it is mounted if the mount map knows it, else by SMB."""
    if mounted.is_mounted(place):
        return mounted.open_store(place)
    return _azure_file(place) if place.kind.lower() == "azurefile" else _samba(place)


def open_url(url: str) -> tuple[SmbStore, str]:
    """``smb://[domain;]user@host[:port]/share/path``; the password is never a part of it."""
    from openpai_tasks.storage.smb import store  # noqa: F401  (without its package, no password helps)

    scheme, _, rest = url.partition("://")
    where, _, below = rest.partition("/")
    who, _, host = where.rpartition("@")
    share, slash, path = below.partition("/")
    domain, _, user = who.rpartition(";")
    if ":" in who:
        raise ConfigError(f"{scheme}:// with a password in it: leave it out, and set {PASSWORD}")
    if not (user and host and share):
        raise ConfigError(f"{url!r} names no user, server or share: {URL}")
    name, port = _host(host, url)
    where = f"smb://{host.lower()}"
    kept = credentials.Destination("smb", where, user, former=where)
    password = os.environ.get(PASSWORD) or credentials.load(kept).password
    if not password:
        raise ConfigError(f"no password for {user!r} on {name}: set {PASSWORD}")
    return _store(name, port, share, domain, user, password), slash + path or "/"


def _samba(place: Place) -> SmbStore:
    """``//host/share[/folder]``, or a host and a root path that begins with the share."""
    data = place.data
    address = f"{data.get('address') or ''}/{data.get('rootPath') or ''}".replace("\\", "/").removeprefix(
        "smb:"
    )
    names = [name for name in address.split("/") if name]
    if len(names) < 2:
        raise ConfigError(f"{_named(place)} does not say which share it is: its address is //HOST/SHARE")
    host, port = _host(names[0], _named(place), data.get("port"))
    user = _first(data, "username", "userName")
    password = _first(
        data, "password"
    )  # a password of the environment is for urls: nobody else's server gets it
    if not user or not password:
        lacking = "password" if user else "user name"
        raise ConfigError(f"{_named(place)} comes without a {lacking}; {_or_mount(place)}")
    root = _root("/".join(names[2:]), place)
    return _store(host, port, names[1], _first(data, "domain"), user, password, root, place)


def _azure_file(place: Place) -> SmbStore:
    """A share of a storage account, which is its user; Azure insists on encryption."""
    data = place.data
    account, key = _first(data, "accountName"), _first(data, "accountKey", "key")
    share = _first(data, "shareName", "fileShare")
    if not (account and key and share):
        raise ConfigError(f"{_named(place)} comes without its account, key or share; {_or_mount(place)}")
    told = _first(data, "dataStore") or f"{account}.{AZURE}"
    host, port = _host(told.rpartition("//")[2].strip("/"), _named(place))
    root = _root(_first(data, "rootPath", "path"), place)
    return _store(host, port, share, "", account, key, root, place, must_encrypt=True)


def _store(
    host: str,
    port: int,
    share: str,
    domain: str,
    user: str,
    password: str,
    root: str = "/",
    place: Place | None = None,
    must_encrypt: bool = False,
) -> SmbStore:
    from openpai_tasks.storage.smb.connection import Login
    from openpai_tasks.storage.smb.store import SmbStore

    login = Login(host, port, f"{domain}\\{user}" if domain else user, password, must_encrypt)
    read_only, is_own = (place.read_only, not place.share) if place else (False, False)
    return SmbStore(login, share, root, read_only, makes_root=is_own and not read_only)


def _host(text: str, where: str, port: object = None) -> tuple[str, int]:
    try:
        host, told = addresses.parse_server(text)
        return host.strip("[]").lower(), told or addresses.parse_port(str(port or PORT))
    except ValueError as err:
        name = f"{text}:{port}" if port else text
        raise ConfigError(f"{where}: {name!r} is no server: HOST or HOST:PORT") from err


def _root(below: str, place: Place) -> str:
    """The folder on the share, and in it the user's own where each one has their own."""
    root = "/" + below.strip("/")
    return root if place.share else join(root, check_name(place.user, f"storage {place.name!r}"))


def _first(data: Mapping[str, Any], *keys: str) -> str:
    return next((str(data[key]) for key in keys if data.get(key)), "")


def _named(place: Place) -> str:
    return f"storage {place.name!r} of {place.cluster!r}"


def _or_mount(place: Place) -> str:
    return f"mount it and tell where with `{mounted.hint(place)}`"
