"""Samba and Azure File over SMB: the server, share and folder of a storage or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.settings import credentials
from openpai_tasks.storage.kinds import UserStorage, rooted, split_names
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.store import StorageSpec, Store

if TYPE_CHECKING:
    from openpai_tasks.storage.smb.store import SmbStore

PORT = 445
PASSWORD = "OPENPAI_SMB_PASSWORD"
AZURE = "file.core.windows.net"
URL = "smb://USER@HOST/SHARE/PATH"


def open_store(spec: StorageSpec) -> Store:
    """Open a Samba storage: where it is mounted if the mount map has it, else over SMB."""
    return mounted.open_if_mounted(spec, server(spec)) or _samba(spec)


def open_azure_file(spec: StorageSpec) -> Store:
    """Open an Azure File share, in the same way."""
    return mounted.open_if_mounted(spec, azure_server(spec)) or _azure_file(spec)


def open_url(url: str) -> tuple[SmbStore, str]:
    """Open ``smb://[domain;]user@host[:port]/share/path``; passwords are never part of the URL."""
    from openpai_tasks.storage.smb import store  # noqa: F401  (a missing package is reported before a password)

    scheme, _, rest = url.partition("://")
    where, _, below = rest.partition("/")
    who, _, host = where.rpartition("@")
    share, slash, path = below.partition("/")
    domain, _, user = who.rpartition(";")
    if ":" in who:
        raise ConfigError(f"{scheme}:// with a password in it: leave it out and set {PASSWORD}")
    if not (user and host and share):
        raise ConfigError(f"invalid address {url!r}: expected {URL}")
    name, port = _host(host, url)
    where = f"smb://{host.lower()}"
    kept = credentials.Destination("smb", where, user, former=where)
    password = os.environ.get(PASSWORD) or credentials.load(kept).password
    if not password:
        raise ConfigError(f"no password for {user!r} on {name}: set {PASSWORD}")
    return _store(name, port, share, domain, user, password), slash + path or "/"


def server(spec: StorageSpec) -> str:
    """Return the address of the share, as ``mount`` accepts it."""
    share = str(spec.data.get("address", "")).rstrip("/") + str(spec.data.get("rootPath", ""))
    return share.replace("\\", "/")


def azure_server(spec: StorageSpec) -> str:
    data = spec.data
    host = data.get("dataStore") or f"{data.get('accountName', '')}.{AZURE}"
    return f"//{host}/{data.get('shareName') or data.get('fileShare', '')}"


def make_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    host, share, below = split_names(storage.address.removeprefix("smb:").replace("\\", "/"), 2)
    if not share:
        host, share, below = split_names(f"{host}/{storage.path}", 2)
    else:
        below = (below + rooted(storage.path)).rstrip("/")
    if not host or not share:
        raise ConfigError(f"--address must be //HOST/SHARE, got {storage.address!r}")
    login = {"username": storage.user, "password": secret} if storage.user else {}
    return {"address": f"//{host}/{share}", "rootPath": below} | login | storage.server_options


def make_azure_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    share, _, below = split_names(storage.path, 1)
    data = {"accountName": storage.user, "shareName": share, "rootPath": below, "accountKey": secret}
    return data | ({"dataStore": storage.address} if storage.address else {}) | storage.server_options


def _samba(spec: StorageSpec) -> SmbStore:
    """Open ``//host/share[/folder]``, or a host and a root path that begins with the share."""
    data = spec.data
    address = f"{data.get('address') or ''}/{data.get('rootPath') or ''}".replace("\\", "/")
    names = [name for name in address.removeprefix("smb:").split("/") if name]
    if len(names) < 2:
        raise ConfigError(f"{spec.title} does not say which share it is: its address must be //HOST/SHARE")
    host, port = _host(names[0], spec.title, data.get("port"))
    user, password = _first(data, "username", "userName"), _first(data, "password")
    # OPENPAI_SMB_PASSWORD is only for URLs: servers that a cluster names never get it.
    if not user or not password:
        lacking = "password" if user else "user name"
        raise ConfigError(f"{spec.title} has no {lacking}; {_or_mount(spec)}")
    root = spec.users_folder(rooted("/".join(names[2:])))
    return _store(host, port, names[1], _first(data, "domain"), user, password, root, spec)


def _azure_file(spec: StorageSpec) -> SmbStore:
    """Open a share of a storage account, whose name is the user; Azure requires encryption."""
    data = spec.data
    account, key = _first(data, "accountName"), _first(data, "accountKey", "key")
    share = _first(data, "shareName", "fileShare")
    if not (account and key and share):
        raise ConfigError(f"{spec.title} has no account, key or share; {_or_mount(spec)}")
    given = _first(data, "dataStore") or f"{account}.{AZURE}"
    host, port = _host(given.rpartition("//")[2].strip("/"), spec.title)
    root = spec.users_folder(rooted(_first(data, "rootPath", "path")))
    return _store(host, port, share, "", account, key, root, spec, must_encrypt=True)


def _store(
    host: str,
    port: int,
    share: str,
    domain: str,
    user: str,
    password: str,
    root: str = "/",
    spec: StorageSpec | None = None,
    must_encrypt: bool = False,
) -> SmbStore:
    from openpai_tasks.storage.smb.connection import SmbLogin
    from openpai_tasks.storage.smb.store import SmbStore

    login = SmbLogin(host, port, f"{domain}\\{user}" if domain else user, password, must_encrypt)
    read_only, is_users = (spec.read_only, not spec.share) if spec else (False, False)
    return SmbStore(login, share, root, read_only, makes_root=is_users and not read_only)


def _host(text: str, where: str, port: object = None) -> tuple[str, int]:
    try:
        host, named = addresses.parse_server(text)
        return host.strip("[]").lower(), named or addresses.parse_port(str(port or PORT))
    except ValueError as err:
        name = f"{text}:{port}" if port else text
        raise ConfigError(f"{where}: invalid server {name!r}: expected HOST or HOST:PORT") from err


def _first(data: Mapping[str, Any], *keys: str) -> str:
    return next((str(data[key]) for key in keys if data.get(key)), "")


def _or_mount(spec: StorageSpec) -> str:
    return f"mount it, then say where with `{mounted.hint(spec)}`"
