"""Select a cluster's storage, and add storages: each is tried first and kept only if it works."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from openpai_tasks.backends.base import Say
from openpai_tasks.errors import ConfigError, Conflict, Denied, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk import known_names
from openpai_tasks.sdk.clusters.user_clusters import change_choices
from openpai_tasks.sdk.files import user_storages
from openpai_tasks.sdk.files.storages import ClusterStorages, StorageRow, mounts
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.kinds import UserStorage
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec, Store
from openpai_tasks.text.hints import command


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
    place = user_storages.make_spec(record, own, secret, mounts(settings))
    _check_listing(open_storage(place), "/", place, own.path)
    where = user_storages.keep_secret(record, own, secret) if secret else ""
    try:
        change_choices(settings, alias, lambda now: _with_storage(now, own))
    except PaiError:
        user_storages.forget_secret(record, own)
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
