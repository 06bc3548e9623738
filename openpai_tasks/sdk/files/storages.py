"""The storages of the known clusters, and the stores behind them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from openpai_tasks.backends import kinds as cluster_kinds
from openpai_tasks.backends.base import Backend, ClusterStorage, Say
from openpai_tasks.errors import ApiError, ConfigError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SSH
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.sdk import known_names
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.files import user_storages
from openpai_tasks.sdk.files.user_storages import owned
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import LOCAL, Cluster, is_embedded
from openpai_tasks.storage import kinds
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.location import PAI, SELECTED, open_storage
from openpai_tasks.storage.store import Mounts, StorageSpec, Store

AT_ONCE = 16  # storages that a cluster is asked about side by side

CLUSTER, OWN = "cluster", "own"
"""Where a storage comes from: the cluster grants it, or the user added it."""


@dataclass(frozen=True)
class StorageRow:
    """A row of `storage.list`, without keys and passwords."""

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
    """The storages of all known clusters; each cluster is asked when it is first needed.

    With a ``client``, those of its cluster only, which need not be a known one.
    """

    def __init__(
        self, settings: Settings, say: Say = lambda line: None, client: Backend | None = None
    ) -> None:
        self._settings, self._say, self._only = settings, say, client
        self._client = functools.cache(lambda alias: client or clusters.connect(settings, alias, say))
        self.record = functools.cache(self._record)
        self.place = functools.cache(self._place)
        # many paths on one storage share its connections
        self._store = functools.cache(lambda cluster, storage: open_storage(self.place(cluster, storage)))

    def storages(self, cluster: str) -> tuple[str, ...]:
        own = owned(self.record(cluster))
        theirs = [found.name for found in self._client(cluster).storages()]
        return tuple(dict.fromkeys([*theirs, *own]))

    def rows(self, cluster: str) -> list[StorageRow]:
        record = self.record(cluster)
        client, mounts = self._client(cluster), self._mounts
        found = with_defaults(client, client.storages())
        theirs = [place_of(client, detail, mounts) for detail in self._details(client, found)]
        own = [user_storages.make_spec(record, one, "", mounts) for one in owned(record).values()]
        rows = [_row(place, summary) for place, summary in zip(theirs, found, strict=True)]
        rows += [dataclasses.replace(_row(place), origin=OWN) for place in own]
        return [
            dataclasses.replace(row, selected=True, workspace=record.workspace)
            if row.name == record.storage
            else row
            for row in rows
        ]

    def _details(self, client: Backend, found: Sequence[ClusterStorage]) -> list[ClusterStorage]:
        """The details of these storages, requested in parallel; the summary where there is no answer."""

        def ask(summary: ClusterStorage) -> ClusterStorage:
            try:
                return client.storage(summary.name)
            except ApiError as err:
                self._say(f"warning: storage {summary.name}: {err}")
                return summary

        def give_up(summary: ClusterStorage) -> ClusterStorage:
            self._say(f"warning: storage {summary.name}: {clusters.timeout_message(self._settings)}")
            return summary

        seconds = clusters.time_limit(self._settings)
        batches = (found[first : first + AT_ONCE] for first in range(0, len(found), AT_ONCE))
        return [one for batch in batches for one in map_parallel(ask, batch, seconds, give_up)]

    def opened(self, cluster: str, storage: str) -> tuple[StorageSpec, Store]:
        place = self.place(cluster, storage)
        return place, self._store(cluster, place.name)

    def cluster_url(self, path: str) -> str:
        if only := self._only:
            found = cluster_kinds.find_path(path, lambda: (only.cluster,), None)
        else:
            known = clusters.open_registry(self._settings).clusters
            found = cluster_kinds.find_path(path, known, lambda: self.record(LOCAL).user)
        return f"{PAI}{found}" if found else ""

    def _record(self, cluster: str) -> Cluster:
        """Return the record of the cluster; starts the embedded one."""
        if self._only or is_embedded(cluster):
            return self._client(cluster).cluster
        return clusters.open_registry(self._settings).get(cluster)

    def _place(self, cluster: str, storage: str) -> StorageSpec:
        """Return what is needed to open the storage; only for granted storages is the cluster asked."""
        record = self.record(cluster)
        wanted = (record.storage or SELECTED) if storage == SELECTED else storage
        own = user_storages.find(record, wanted)
        if own is not None:
            return user_storages.make_spec(record, own, user_storages.load_secret(record, own), self._mounts)
        client: Backend = self._client(cluster)
        return place_of(client, detail_of(client, wanted, tuple(owned(record))), self._mounts)

    @functools.cached_property
    def _mounts(self) -> Mounts:
        return mounts(self._settings)


def with_defaults(client: Backend, found: Sequence[ClusterStorage]) -> Sequence[ClusterStorage]:
    """Mark the storages that are defaults; some servers have a separate list of them."""
    if not found or any(one.default is not None for one in found):
        return found
    default = {one.name for one in client.storages(default=True)}
    return [dataclasses.replace(one, default=one.name in default) for one in found]


def detail_of(client: Backend, storage: str, own: tuple[str, ...] = ()) -> ClusterStorage:
    """The details of one storage; ``0`` is the selected one, else the default one, else the first."""
    if storage == SELECTED:
        storage = client.cluster.storage or _first(client)
    known = [found.name for found in client.storages()]
    if storage not in known:
        names = ", ".join([*known, *own]) or "none"
        raise NotFound(f"no storage named {storage!r} on {client.cluster.alias!r} (known: {names})", 404)
    return client.storage(storage)


def _first(client: Backend) -> str:
    found = with_defaults(client, client.storages())
    if not found:
        raise ConfigError(f"cluster {client.cluster.alias!r} grants you no storage")
    return next((one.name for one in found if one.default), found[0].name)


def list_storages(settings: Settings, alias: str | None, say: Say) -> list[StorageRow]:
    """The storages of a cluster, those it grants first."""
    alias, book = alias or settings.cluster_alias, ClusterStorages(settings, say)
    rows = book.rows(alias)
    for err in user_storages.record_errors(book.record(alias)).values():
        say(f"warning: {err}")
    known_names.note_storages(row.name for row in rows)
    return rows


def place_of(client: Backend, detail: ClusterStorage, mounts: Mounts) -> StorageSpec:
    """What is needed to open a storage, from the details that the cluster gives."""
    is_behind_ssh = client.cluster.uri.startswith(SSH)
    # the user's embedded cluster may have another alias for its address
    is_here = client.cluster.is_embedded or client.cluster.uri == embedded.embedded_uri()
    is_embedded = is_behind_ssh or is_here
    if is_embedded and detail.folder:  # beside a type that every client knows
        kind = "sftp" if is_behind_ssh else "local"
        detail = dataclasses.replace(detail, type=kind, data={"path": detail.folder})
    return StorageSpec(
        cluster=client.cluster.alias,
        name=detail.name,
        kind=(detail.type or "unknown").lower(),
        data=dict(detail.data),
        user=client.user,
        share=detail.share,
        home=detail.home,
        renew=lambda: client.renew(client.token()),
        read_only=detail.read_only,
        cluster_uri=client.cluster.uri,
        verify=client.cluster.verify,
        mounts=mounts,
        is_own=is_embedded,
    )


def mount_point(storage: ClusterStorage) -> str:
    """Return where tasks find the storage, as a shell in them reads it."""
    return storage.mount_point or MOUNTS + storage.name


def _row(place: StorageSpec, summary: ClusterStorage | None = None) -> StorageRow:
    kind = kinds.find_type(place.kind)
    return StorageRow(
        cluster=place.cluster,
        name=place.name,
        type=place.kind,
        server=kind.describe_server(place) if kind else str(place.data.get("path", "")),
        mount_point=mount_point(summary) if summary and not (kind and kind.job_folder) else "",
        permission="ro" if place.read_only else "rw",
        default=bool(summary and summary.default),
        share=place.share,
        url=f"pai://{place.cluster}/{place.name}/",
    )


def mounts(settings: Settings) -> Mounts:
    """Storages that are mounted on this machine, as the settings list them."""
    return mounted.mount_map(settings.storage_mounts)
