"""Azure Blob: the container of a storage or URL."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.storage.kinds import UserStorage, split_names
from openpai_tasks.storage.objects.store import ObjectStore
from openpai_tasks.storage.store import StorageSpec
from openpai_tasks.text.hints import command

CONTAINER = re.compile(r"[a-z0-9$](?:[a-z0-9-]{1,61}[a-z0-9])")


def open_store(spec: StorageSpec) -> ObjectStore:
    """Open a storage of a cluster, with the account and key that the cluster gives its users."""
    from openpai_tasks.storage.objects.azure.container import Account, BlobContainer

    data = spec.data
    name = str(data.get("containerName") or "")
    account = Account(
        str(data.get("accountName") or ""),
        _endpoint(str(data.get("dataStore") or ""), spec.title),
        str(data.get("accountKey") or data.get("key") or ""),
        str(data.get("accountSASToken") or ""),
    )
    if not CONTAINER.fullmatch(name) or not account.name:
        raise ConfigError(f"{spec.title} names no container of an account")
    if not account.key and not account.sas:  # this machine's Azure login is only used for URLs
        known = f"--user {shlex.quote(account.name)} --path {shlex.quote(name)}"
        raise ConfigError(
            f"{spec.title} has no key; add it with your own:"
            f" `{command('storage.add')} NAME --type azureblob {known}`"
        )
    root = spec.users_folder(str(data.get("path") or data.get("rootPath") or ""))
    return ObjectStore(BlobContainer(name, account), root, spec.read_only)


def open_url(url: str) -> tuple[ObjectStore, str]:
    """Open ``az://container/path`` or ``az://container@account.…/path`` with the usual Azure settings."""
    from openpai_tasks.storage.objects.azure.container import Account, BlobContainer

    where, slash, path = url.partition("://")[2].partition("/")
    name, _, host = where.partition("@")
    named = host.partition(".")[0]
    account = Account(
        named or _setting("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
        _endpoint(host.replace(".dfs.", ".blob."), url),
        _setting("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
        _setting("AZURE_STORAGE_SAS_TOKEN"),
        _setting("AZURE_STORAGE_CONNECTION_STRING") if not named else "",
    )
    if not CONTAINER.fullmatch(name):
        raise ConfigError(f"{url!r} names no container: expected az://CONTAINER/PATH")
    if not account.name and not account.connection:
        raise ConfigError(
            f"{url}: which account? Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and "
            "AZURE_STORAGE_ACCOUNT_KEY"
        )
    return ObjectStore(BlobContainer(name, account)), slash + path or "/"


def server(spec: StorageSpec) -> str:
    return f"{spec.data.get('accountName', '')}/{spec.data.get('containerName', '')}"


def make_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    container, _, below = split_names(storage.path, 1)
    key = "accountSASToken" if "sig=" in secret else "accountKey"
    data = {"accountName": storage.user, "containerName": container, "path": below, key: secret}
    return data | ({"dataStore": storage.address} if storage.address else {}) | storage.server_options


def _setting(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _endpoint(host: str, where: str) -> str:
    if not host:
        return ""
    url = host if "://" in host else f"https://{host}"
    try:
        addresses.parse_url(url)
    except ValueError as err:
        raise ConfigError(f"{where}: invalid server {host!r}: expected HOST or https://HOST") from err
    return url
