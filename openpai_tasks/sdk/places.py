"""Which storage a job's files lie on."""

from __future__ import annotations

import functools
from typing import Any

from openpai_tasks.client import Client
from openpai_tasks.errors import ApiError, ConfigError
from openpai_tasks.storage import workspace as workspaces
from openpai_tasks.storage.workspace import Storage


@functools.lru_cache(maxsize=32)  # a sweep asks a thousand times
def granted(client: Client) -> dict[str, Any] | None:
    """The storage that jobs of this user get their files from: the first default one that takes some."""
    for found in client.storages(default=True) or client.storages():
        detail = client.storage(found["name"])
        if not detail.get("readOnly"):
            return detail
    return None


def output_storage(client: Client) -> str | None:
    """The name of the storage for output; a cluster that cannot tell has none, and that is no failure."""
    try:
        detail = granted(client)
    except ApiError:
        return None
    return str(detail["name"]) if detail else None


def default_storage(client: Client) -> Storage:
    """The storage that sources go to."""
    detail = granted(client)
    if detail is None:
        raise ConfigError(f"cluster {client.cluster.alias!r} grants no storage, so sources cannot be sent")
    return workspaces.open_storage(detail, client.user)
