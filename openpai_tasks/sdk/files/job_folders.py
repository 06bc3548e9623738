"""Where the jobs of a user keep their files: which storage, which folder, and how a job gets there."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import quote

from openpai_tasks.backends.base import Backend, ClusterStorage
from openpai_tasks.errors import ApiError, ConfigError, NotFound, PaiError
from openpai_tasks.protocol.document import job_storage, scripts
from openpai_tasks.sdk.files import storages, user_storages
from openpai_tasks.sdk.files.selecting import workspace_folder
from openpai_tasks.sdk.files.user_storage_types import OwnStorage
from openpai_tasks.settings.home import home as home_folder
from openpai_tasks.settings.registry import LOCAL, Cluster
from openpai_tasks.storage.job_files.workspace import Layout, Workspace, clean_path, relative
from openpai_tasks.storage.location import Location, open_place
from openpai_tasks.storage.store import Place, Store, join

Mounts = tuple[tuple[str, str], ...]
"""What is mounted on this machine: (address or cluster/storage, folder)."""

HDFS = "hdfs"


@runtime_checkable
class OnTheWeb(Protocol):
    """A store that others reach by urls of their own."""

    user: str

    def urls(self, path: str) -> tuple[str, ...]:
        """The addresses of the path; nothing in them is escaped."""


@dataclass(frozen=True)
class Home:
    """A folder of a storage for the files of a user's jobs; the storage is opened when it is needed."""

    place: Place
    path: str
    note: str = ""  # why it is not on the storage that was selected

    @property
    def workspace(self) -> str:
        """The folder as a job's stamp tells it."""
        return relative(self.path)

    @property
    def storage(self) -> str:
        return self.place.name

    @functools.cached_property
    def store(self) -> Store:
        return open_place(self.place)

    @property
    def files(self) -> Workspace:
        return Workspace(self.path, self.store)

    @property
    def layout(self) -> Layout:
        return Layout(self.path)

    @property
    def url(self) -> str:
        return f"pai://{self.place.cluster}/{self.storage}{self.path}"

    def location(self, path: str) -> Location:
        return Location(self.store, path, f"pai://{self.place.cluster}/{self.storage}{path}")

    @functools.cached_property
    def is_within_reach(self) -> bool:
        """Whether this machine can write there; a job often can where we cannot."""
        try:
            self.store.make_folder(self.layout.jobs)
        except PaiError:
            return False
        return True

    @functools.cached_property
    def seen(self) -> job_storage.Home:
        """The same folder from inside of a job."""
        if self.place.kind != HDFS:
            return job_storage.Mounted(self.storage, join(f"{scripts.MOUNTS}{self.storage}", self.workspace))
        store = self.store
        if not isinstance(store, OnTheWeb):
            raise ConfigError(f"storage {self.storage!r} is no HDFS that a job could reach")
        return job_storage.WebHdfs(tuple(map(_escaped, store.urls(self.path))), quote(store.user, safe=""))


def home(client: Backend, workspace: str = "", mounts: Mounts = ()) -> Home | None:
    """The one that jobs of this user get: what was selected, else the cluster's default storage."""
    place, why_not = _selected(client, mounts)
    chosen = client.cluster.workspace if place else ""
    if place is None:
        detail = _granted(client)
        if detail is None:
            return None
        place = storages.place_of(client, detail, mounts)
    folder = clean_path(workspace_folder(place, workspace) if workspace or not chosen else chosen)
    note = f"{why_not}; their files go to storage {place.name!r}" if why_not else ""
    return Home(place, folder, note)


def require_home(client: Backend, workspace: str = "", mounts: Mounts = ()) -> Home:
    """The same, where there must be one."""
    found = home(client, workspace, mounts)
    if found is None:
        _, why_not = _selected(client, mounts)
        also = f" ({why_not})" if why_not else ""
        raise ConfigError(
            f"cluster {client.cluster.alias!r} grants no storage, so no files can be kept{also}"
        )
    return found


def output_home(client: Backend, workspace: str, mounts: Mounts = ()) -> Home | None:
    """The same for a job's output; a cluster that cannot tell has none, and that is no failure."""
    try:
        return home(client, workspace, mounts)
    except ApiError:
        return None


def at(client: Backend, storage: str, workspace: str, user: str, mounts: Mounts = ()) -> Home:
    """The home that a job was submitted with, by what its stamp says."""
    own = user_storages.find(client.cluster, storage)
    if own is not None:
        place = _own_place(client, own, mounts)
    else:
        try:
            place = storages.place_of(client, storages.detail_of(client, storage), mounts)
        except NotFound as err:
            where = f"cluster {client.cluster.alias!r}"
            raise NotFound(f"{where} grants you no storage {storage!r}, where the files are", 404) from err
    return Home(dataclasses.replace(place, user=user), clean_path(workspace))


def cluster_mark(cluster: Cluster) -> str:
    """By what a job's files tell the cluster that it runs on; every machine has a `local` of its own."""
    if cluster.alias != LOCAL:
        return cluster.uri
    folder = hashlib.sha256(os.fsencode(home_folder())).hexdigest()
    return f"{LOCAL}@{socket.gethostname()}/{folder[:8]}"


def _selected(client: Backend, mounts: Mounts) -> tuple[Place | None, str]:
    """The storage that was selected; or why jobs cannot use it: the cluster mounts its own only."""
    name = client.cluster.storage
    if not name:
        return None, ""
    passed_over = f"the selected storage {name!r} is not used for jobs"
    own = user_storages.find(client.cluster, name)
    if own is None:
        place = storages.place_of(client, storages.detail_of(client, name), mounts)
    else:
        place = _own_place(client, own, mounts)
        if place.kind != HDFS:
            return None, f"{passed_over}, as the cluster cannot mount it"
    return (None, f"{passed_over}, as you may only read it") if place.read_only else (place, "")


def _own_place(client: Backend, own: OwnStorage, mounts: Mounts) -> Place:
    return user_storages.place(client.cluster, own, user_storages.kept_secret(client.cluster, own), mounts)


@functools.lru_cache(maxsize=32)  # a sweep asks a thousand times
def _granted(client: Backend) -> ClusterStorage | None:
    """The first default storage that takes files."""
    found = (client.storage(one.name) for one in client.storages(default=True) or client.storages())
    return next((storage for storage in found if not storage.read_only), None)


def _escaped(url: str) -> str:
    """The address with everything but its first part escaped."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{slash}{quote(path, safe='/')}"
