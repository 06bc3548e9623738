"""The storages of the known clusters, and the stores behind them: list, select, add and forget them."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence

from openpai_tasks.backends import kinds as cluster_kinds
from openpai_tasks.backends.base import Backend, ClusterStorage, Say
from openpai_tasks.errors import ApiError, ConfigError, Conflict, Denied, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SSH
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.sdk import known_names
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.clusters.user_clusters import change_choices
from openpai_tasks.sdk.files import user_storages
from openpai_tasks.sdk.files.user_storages import owned
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings import credentials
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, Cluster, is_embedded, storage_destination
from openpai_tasks.storage import kinds
from openpai_tasks.storage.kinds import UserStorage
from openpai_tasks.storage.local import mounted
from openpai_tasks.storage.location import PAI, SELECTED, open_storage
from openpai_tasks.storage.store import Mounts, StorageSpec, Store, is_name
from openpai_tasks.text.hints import command

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
        self._client(cluster).forget_facts()
        theirs = [found.name for found in self._client(cluster).storages()]
        return tuple(dict.fromkeys([*theirs, *own]))

    def rows(self, cluster: str) -> list[StorageRow]:
        record = self.record(cluster)
        client, mounts = self._client(cluster), self._mounts
        client.forget_facts()  # a list shows what is true now
        found = with_defaults(client, client.storages())
        theirs = [place_of(client, detail, mounts) for detail in self._details(client, found)]
        own = [user_storages.make_spec(record, one, mounts, "") for one in owned(record).values()]
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
            return user_storages.make_spec(record, own, self._mounts)
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
    try:
        return client.storage(storage)
    except (NotFound, Denied):
        client.forget_facts()
        known = [found.name for found in client.storages()]
        if storage in known:
            raise
    names = ", ".join([*known, *own]) or "none"
    raise NotFound(f"no storage named {storage!r} on {client.cluster.alias!r} (known: {names})", 404)


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
    is_embedded = is_behind_ssh or is_here or _is_mounted(detail, client.user)
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
        certificate=client.cluster.certificate,
        mounts=mounts,
        is_own=is_embedded,
    )


def _is_mounted(detail: ClusterStorage, user: str) -> bool:
    """Whether this is a job with the user's folder of the storage mounted; any server could name a folder."""
    root = os.environ.get("PAI_MOUNT_ROOT")
    if not root or not detail.folder or not is_name(detail.name) or not is_name(user):
        return False
    folder = detail.folder if detail.share else os.path.join(detail.folder, user)
    mounted = f"{root}{MOUNTS}{detail.name}"
    return os.path.isdir(mounted) and os.path.isdir(folder) and os.path.samefile(mounted, folder)


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


# Selecting and adding storages: each is tried first and kept only if it works


@dataclass(frozen=True)
class Selection:
    """The result of `storage.select`."""

    cluster: str
    storage: str
    workspace: str
    url: str


def select_storage(
    settings: Settings, alias: str | None, storage: str, workspace: str, say: Say
) -> Selection:
    """Select the storage of the cluster and create the workspace on it, which also shows that it works."""
    alias = alias or settings.cluster_alias
    place, store = ClusterStorages(settings, say).opened(alias, storage)
    folder = workspace_folder(place, workspace)
    if place.read_only and workspace:
        raise Denied(f"storage {place.name!r} is read-only for you, so it cannot hold a workspace", 403)
    if not place.read_only and folder != "/":
        store.make_folder(folder)
    _check_listing(store, "/" if place.read_only else folder, place)
    kept = "" if place.read_only else folder
    change_choices(settings, alias, lambda now: dataclasses.replace(now, storage=place.name, workspace=kept))
    known_names.note_storages([place.name])
    return Selection(alias, place.name, kept, f"pai://{alias}/{place.name}{kept or '/'}")


def workspace_folder(place: StorageSpec, workspace: str) -> str:
    """Return ``/<user>/<workspace>``; without the user if each user has a separate root.

    Where the storage says which folder is the user's, it is that instead of ``/<user>``.
    """
    parts = [part for part in workspace.split("/") if part]
    if "//" in workspace or any(part in (".", "..") or "\0" in part for part in parts):
        raise PathError(f"invalid workspace {workspace!r}: expected a folder such as `experiments/first`")
    own = place.home.strip("/").split("/") if place.home else [place.user]
    is_whole = workspace.startswith("/") and parts[: len(own)] == own
    above = own if place.share and place.user and not is_whole else []
    return "/" + "/".join([*above, *parts])


def add_storage(settings: Settings, alias: str | None, own: UserStorage, secret: str, say: Say) -> StorageRow:
    """Connect to the storage and remember it."""
    alias = alias or settings.cluster_alias
    book = ClusterStorages(settings, say)
    record = book.record(alias)
    if own.name in map(user_storages.row_name, record.own_storages):
        raise Conflict(
            f"{alias!r} already has your storage {own.name!r}; run "
            f"`{command('storage.forget', own.name)}` first"
        )
    if own.name in book.storages(alias):
        raise Conflict(f"{alias!r} grants a storage named {own.name!r}; choose another name", 409)
    place = user_storages.make_spec(record, own, mounts(settings), secret)
    _check_listing(open_storage(place), "/", place, own.path)
    destination = storage_destination(record, user_storages.record(own))
    where = credentials.save(destination, Credentials(password=secret)) if secret else ""
    try:
        change_choices(settings, alias, lambda now: _with_storage(now, own))
    except PaiError:
        credentials.forget(destination)
        raise
    if where:
        say(f"the secret is stored in {where}")
    (row,) = [row for row in ClusterStorages(settings, say).rows(alias) if row.name == own.name]
    known_names.note_storages([own.name])
    return row


def forget_storages(settings: Settings, alias: str | None, wanted: Iterable[str], say: Say) -> None:
    """Forget storages that the user added, and their secrets; an unknown name forgets nothing."""
    alias, gone = alias or settings.cluster_alias, set(wanted)
    book = ClusterStorages(settings, say)
    own = [user_storages.row_name(row) for row in book.record(alias).own_storages]
    for name in sorted(gone - set(own)):
        known = ", ".join(own) or "none"
        raise NotFound(
            f"{alias!r} has no storage {name!r} that `{command('storage.add')}` added (known: {known})", 404
        )
    change_choices(settings, alias, lambda now: _without_storages(now, gone))


def _with_storage(cluster: Cluster, own: UserStorage) -> Cluster:
    rows = [row for row in cluster.own_storages if user_storages.row_name(row) != own.name]
    return dataclasses.replace(cluster, own_storages=(*rows, user_storages.record(own)))


def _without_storages(cluster: Cluster, gone: set[str]) -> Cluster:
    rows = tuple(row for row in cluster.own_storages if user_storages.row_name(row) not in gone)
    if cluster.storage in gone:
        cluster = dataclasses.replace(cluster, storage="", workspace="")
    return dataclasses.replace(cluster, own_storages=rows)


def _check_listing(store: Store, path: str, place: StorageSpec, shown: str = "") -> None:
    """Raise unless the storage can list the folder; one entry is enough."""
    found = store.stat(path)
    if found is None or not found.is_folder:
        raise PathError(f"storage {place.name!r} has no folder {shown or path}")
    next(iter(store.list(path)), None)


def no_storage_named(settings: Settings, alias: str | None, say: Say) -> ConfigError:
    """Return the error for a missing name, with the storages to select from."""
    alias = alias or settings.cluster_alias
    known = ", ".join(ClusterStorages(settings, say).storages(alias)) or "none"
    return ConfigError(f"name a storage of {alias!r}: `{command('storage.select')} STORAGE` (known: {known})")
