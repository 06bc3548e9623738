"""The storages of the known clusters: which there are, and what a url leads to."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, NotFound
from openpai_tasks.protocol.fields import mapping, text
from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.sdk import known_names
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.clusters.sign_in import Say
from openpai_tasks.sdk.files import user_storages
from openpai_tasks.sdk.files.user_storages import owned
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import LOCAL, Cluster
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.location import SELECTED, open_place
from openpai_tasks.storage.store import Place, Store, join

HDFS = {"name": "hdfs", "type": "hdfs", "data": {}, "share": True, "default": True}
"""What a cluster from before there were storages has: the HDFS behind its own address."""


AT_ONCE = 16  # storages that a cluster is asked about side by side

CLUSTER, OWN = "cluster", "own"
"""Who told of a storage: the cluster, or the user with `storage.add`."""


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
    selected: bool = False
    workspace: str = ""
    origin: str = CLUSTER


class ClusterStorages:
    """The storages of every known cluster, each cluster asked when it is first needed."""

    def __init__(self, settings: Settings, say: Say = lambda line: None) -> None:
        self._settings, self._say = settings, say
        self._client = functools.cache(lambda alias: clusters.connect(settings, alias, say))
        self.record = functools.cache(self._record)
        self.place = functools.cache(self._place)
        self._store = functools.cache(self._opened_store)  # many paths on one storage share its connections

    def storages(self, cluster: str) -> tuple[str, ...]:
        own = owned(self.record(cluster))
        theirs = [found["name"] for found in granted(self._client(cluster))]
        return tuple(dict.fromkeys([*theirs, *own]))

    def rows(self, cluster: str) -> list[StorageRow]:
        record = self.record(cluster)
        client, mounts = self._client(cluster), self._mounts
        found = with_defaults(client, granted(client))
        theirs = [place_of(client, detail, mounts) for detail in self._details(client, found)]
        own = [user_storages.place(record, one, "", mounts) for one in owned(record).values()]
        rows = [
            _row(place, bool(summary.get("default"))) for place, summary in zip(theirs, found, strict=True)
        ]
        rows += [dataclasses.replace(_row(place, False), mount_point="", origin=OWN) for place in own]
        return [_marked(row, record) for row in rows]

    def _details(self, client: Backend, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All about these storages, asked for side by side; in short of one that gives no answer."""

        def ask(summary: dict[str, Any]) -> dict[str, Any]:
            try:
                return _detail(client, summary["name"]) if client.dialect.storages else summary
            except ApiError as err:
                self._say(f"warning: storage {summary['name']}: {err}")
                return summary

        def give_up(summary: dict[str, Any]) -> dict[str, Any]:
            self._say(f"warning: storage {summary['name']}: {clusters.too_late(self._settings)}")
            return summary

        seconds = clusters.longest(self._settings)
        batches = (found[first : first + AT_ONCE] for first in range(0, len(found), AT_ONCE))
        return [one for batch in batches for one in map_parallel(ask, batch, seconds, give_up)]

    def opened(self, cluster: str, storage: str) -> tuple[Place, Store]:
        place = self.place(cluster, storage)
        return place, self._store(cluster, place.name)

    def _opened_store(self, cluster: str, storage: str) -> Store:
        return open_place(self.place(cluster, storage))

    def _record(self, cluster: str) -> Cluster:
        """What is kept of the cluster; only the embedded one has to run for it."""
        if cluster == LOCAL:
            return self._client(cluster).cluster
        return clusters.open_registry(self._settings).get(cluster)

    def _place(self, cluster: str, storage: str) -> Place:
        """Of one of the user's own, no cluster is asked."""
        record = self.record(cluster)
        wanted = (record.storage or SELECTED) if storage == SELECTED else storage
        own = user_storages.find(record, wanted)
        if own is not None:
            return user_storages.place(record, own, user_storages.kept_secret(record, own), self._mounts)
        client: Backend = self._client(cluster)
        return place_of(client, detail_of(client, wanted, tuple(owned(record))), self._mounts)

    @functools.cached_property
    def _mounts(self) -> tuple[tuple[str, str], ...]:
        return mounts(self._settings)


def granted(client: Backend) -> list[dict[str, Any]]:
    """What the cluster grants this user, in short; each has a name."""
    if not client.dialect.storages:
        return [HDFS]
    return named(client.storages())


def named(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "name": text(one.get("name"))} for one in found if text(one.get("name"))]


def with_defaults(client: Backend, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with what is default; servers before 1.1 tell it only by a list of those that are."""
    if client.dialect.generation != "0.18" or any("default" in one for one in found):
        return found
    default = {one["name"] for one in named(client.storages(default=True))}
    return [{**one, "default": one["name"] in default} for one in found]


def detail_of(client: Backend, storage: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """All about one storage; ``0`` is the selected one, else the default one, else the first."""
    if storage == SELECTED:
        storage = client.cluster.storage or _first(client)
    if not client.dialect.storages and storage == HDFS["name"]:
        return HDFS
    known = [found["name"] for found in granted(client)]
    if storage not in known:
        told = ", ".join([*known, *own]) or "none"
        raise NotFound(f"no storage named {storage!r} on {client.cluster.alias!r} (known: {told})", 404)
    return _detail(client, storage)


def _detail(client: Backend, storage: str) -> dict[str, Any]:
    return {**client.storage(storage), "name": storage}


def _first(client: Backend) -> str:
    found = with_defaults(client, granted(client))
    if not found:
        raise ConfigError(f"cluster {client.cluster.alias!r} grants you no storage")
    return next((text(one["name"]) for one in found if one.get("default")), text(found[0]["name"]))


def list_storages(settings: Settings, alias: str | None, say: Say) -> list[StorageRow]:
    """The storages of a cluster, those it grants first."""
    alias, book = alias or settings.cluster_alias, ClusterStorages(settings, say)
    rows = book.rows(alias)
    for wrong in user_storages.unclear(book.record(alias)).values():
        say(f"warning: {wrong}")
    known_names.note_storages(row.name for row in rows)
    return rows


def place_of(client: Backend, detail: dict[str, Any], mounts: tuple[tuple[str, str], ...]) -> Place:
    """What a back end needs to know of a storage that the cluster has told all about."""
    detail = _with_folder(client, detail)
    data = {key: text(value) for key, value in mapping(detail.get("data")).items() if text(value)}
    return Place(
        cluster=client.cluster.alias,
        name=detail["name"],
        kind=(text(detail.get("type")) or "unknown").lower(),
        data=data,
        user=client.user,
        share=bool(detail.get("share", True)),
        read_only=bool(detail.get("readOnly")),
        cluster_uri=client.cluster.uri,
        verify=client.cluster.verify,
        mounts=mounts,
        is_own=_is_embedded(client.cluster),
    )


def _is_embedded(cluster: Cluster) -> bool:
    """Whether it is the user's embedded cluster, maybe under an alias that was added for its address."""
    return cluster.alias == LOCAL or cluster.uri == getattr(embedded.running(), "uri", "")


def _with_folder(client: Backend, detail: dict[str, Any]) -> dict[str, Any]:
    """The detail with the folder that the embedded cluster names beside a type of OpenPAI's."""
    own = mapping(detail.get(OWN_FIELD)) if _is_embedded(client.cluster) else {}
    return {**detail, "type": own.get("type"), "data": {"path": own.get("path")}} if own else detail


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


def _marked(row: StorageRow, record: Cluster) -> StorageRow:
    is_selected = bool(record.storage) and row.name == record.storage
    return dataclasses.replace(row, selected=is_selected, workspace=record.workspace if is_selected else "")


def _server(place: Place) -> str:
    """Where it is, for a person to read."""
    data = place.data
    if place.kind == "azureblob":
        return f"{data.get('accountName', '')}/{data.get('containerName', '')}"
    if place.kind == "s3":
        return join(str(data.get("endpoint") or "s3:/"), str(data.get("bucket", "")))
    if place.kind == "hdfs":
        return str(data.get("namenode") or data.get("webhdfs") or place.cluster_uri)
    return mounted.address(place) or str(data.get("path", ""))


def mounts(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Storages that are mounted on this machine, as the settings list them."""
    return mounted.mount_map(settings.storage_mounts)
