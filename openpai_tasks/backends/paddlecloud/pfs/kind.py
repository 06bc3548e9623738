"""PFS: the endpoint, datacenter and user of a storage."""

from __future__ import annotations

from openpai_tasks.backends.paddlecloud.pfs.connection import PfsConnection
from openpai_tasks.backends.paddlecloud.pfs.store import PfsStore
from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.storage.store import StorageSpec, check_name


def open_store(spec: StorageSpec) -> PfsStore:
    """Open the files of a datacenter, as its cluster describes them."""
    data, endpoint = spec.data, server(spec)
    try:
        addresses.parse_url(endpoint)
    except ValueError as err:
        raise ConfigError(f"{spec.title} names an invalid endpoint {endpoint!r}: {err}") from err
    user = str(data.get("user") or spec.user)
    if not user:
        raise ConfigError(f"{spec.title} has no user name")
    datacenter = check_name(str(data.get("datacenter") or spec.cluster), spec.title)
    token = str(data.get("token") or "")
    connection = PfsConnection(endpoint, datacenter, token, spec.renew, spec.verify)
    return PfsStore(connection, check_name(user, spec.title), spec.read_only)


def server(spec: StorageSpec) -> str:
    return str(spec.data.get("endpoint") or "").rstrip("/")
