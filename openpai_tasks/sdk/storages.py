"""The storages of the known clusters: which there are, and what a url leads to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from openpai_tasks.client import Client
from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.sdk import clusters
from openpai_tasks.sdk.signin import Say
from openpai_tasks.storage import mounted
from openpai_tasks.storage.location import SELECTED, open_place
from openpai_tasks.storage.store import Place, Store

HDFS = {"name": "hdfs", "type": "hdfs", "data": {}, "share": True, "default": True}
"""What a cluster from before there were storages has: the HDFS behind its own address."""


@dataclass(frozen=True)
class StorageRow:
    """What `storage.list` tells of a storage; never a key or a password."""

    cluster: str
    name: str
    type: str
    server: str
    mount_point: str
    permission: str
    default: bool
    share: bool
    url: str


class Clusters:
    """The storages of every known cluster, each cluster asked when it is first needed."""

    def __init__(self, settings: Settings, say: Say = lambda line: None) -> None:
        self._settings = settings
        self._client = functools.cache(lambda alias: clusters.connect(settings, alias, say))
        self.place = functools.cache(self._place)
        self.opened = functools.cache(self._opened)  # many paths on one storage share its connections

    def storages(self, cluster: str) -> tuple[str, ...]:
        return tuple(str(found["name"]) for found in granted(self._client(cluster)))

    def rows(self, cluster: str) -> list[StorageRow]:
        found = granted(self._client(cluster))
        places = [self.place(cluster, str(summary["name"])) for summary in found]
        return [
            _row(place, bool(summary.get("default"))) for place, summary in zip(places, found, strict=True)
        ]

    def _opened(self, cluster: str, storage: str) -> tuple[Place, Store]:
        place = self.place(cluster, storage)
        return place, open_place(place)

    def _place(self, cluster: str, storage: str) -> Place:
        client: Client = self._client(cluster)
        return _place(client, detail_of(client, storage), mounted.mount_map(self._settings.storage_mounts))


def granted(client: Client) -> list[dict[str, Any]]:
    """What the cluster grants this user, in short."""
    if not client.dialect.storages:
        return [HDFS]
    return [found for found in client.storages() if found.get("name")]


def detail_of(client: Client, storage: str) -> dict[str, Any]:
    """All about one storage; ``0`` is the selected one, else the default one, else the first."""
    if storage == SELECTED:
        storage = client.cluster.storage or _first(client)
    if not client.dialect.storages and storage == HDFS["name"]:
        return HDFS
    known = [str(found["name"]) for found in granted(client)]
    if storage not in known:
        names = ", ".join(known) or "none"
        raise NotFound(f"no storage named {storage!r} on {client.cluster.alias!r} (known: {names})", 404)
    return client.storage(storage)


def _first(client: Client) -> str:
    found = granted(client)
    if not found:
        raise ConfigError(f"cluster {client.cluster.alias!r} grants you no storage")
    return str(next((one for one in found if one.get("default")), found[0])["name"])


def listed(settings: Settings, alias: str | None, say: Say) -> list[StorageRow]:
    """The storages of a cluster."""
    return Clusters(settings, say).rows(alias or settings.cluster_alias)


def _place(client: Client, detail: dict[str, Any], mounts: tuple[tuple[str, str], ...]) -> Place:
    data = detail.get("data")
    return Place(
        cluster=client.cluster.alias,
        name=str(detail["name"]),
        kind=str(detail.get("type") or "unknown").lower(),
        data=data if isinstance(data, dict) else {},
        user=client.user,
        share=bool(detail.get("share", True)),
        read_only=bool(detail.get("readOnly")),
        cluster_uri=client.cluster.uri,
        verify=client.cluster.verify,
        mounts=mounts,
    )


def _row(place: Place, default: bool) -> StorageRow:
    return StorageRow(
        cluster=place.cluster,
        name=place.name,
        type=place.kind,
        server=_server(place),
        mount_point=f"/mnt/{place.name}" if place.kind != "hdfs" else "",
        permission="ro" if place.read_only else "rw",
        default=default,
        share=place.share,
        url=f"pai://{place.cluster}/{place.name}/",
    )


def _server(place: Place) -> str:
    """Where it is, for a person to read."""
    data = place.data
    if place.kind == "azureblob":
        return f"{data.get('accountName', '')}/{data.get('containerName', '')}"
    if place.kind == "hdfs":
        return str(data.get("namenode") or place.cluster_uri)
    return mounted.address(place) or str(data.get("path", ""))
