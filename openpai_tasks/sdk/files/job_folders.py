"""Folders for the files of a user's jobs: which storage, which path, and how a job reaches it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
import weakref

from openpai_tasks.backends.base import Backend, ClusterStorage
from openpai_tasks.errors import ApiError, ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import job_storage, scripts
from openpai_tasks.sdk.files import storages, user_storages
from openpai_tasks.sdk.files.storages import workspace_folder
from openpai_tasks.settings.home import home as home_folder
from openpai_tasks.settings.registry import LOCAL, Cluster
from openpai_tasks.storage import kinds
from openpai_tasks.storage.job_files.workspace import Workspace, WorkspaceLayout, clean_path, relative
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.store import Mounts as Mounts
from openpai_tasks.storage.store import StorageSpec, Store, join


@dataclass(frozen=True)
class Home:
    """A folder of a storage for the files of a user's jobs; the storage is opened when it is needed."""

    place: StorageSpec
    path: str
    note: str = ""  # why it is not on the storage that was selected

    @property
    def workspace(self) -> str:
        """The folder as it is written in a job's stamp."""
        return relative(self.path)

    @property
    def storage(self) -> str:
        return self.place.name

    @functools.cached_property
    def store(self) -> Store:
        return open_storage(self.place)

    @property
    def files(self) -> Workspace:
        return Workspace(self.path, self.store)

    @property
    def layout(self) -> WorkspaceLayout:
        return WorkspaceLayout(self.path)

    @property
    def url(self) -> str:
        return f"pai://{self.place.cluster}/{self.storage}{self.path}"

    def location(self, path: str) -> Location:
        return Location(self.store, path, f"pai://{self.place.cluster}/{self.storage}{path}")

    @functools.cached_property
    def is_within_reach(self) -> bool:
        """Whether this machine can write there; a job often can even if this machine cannot."""
        try:
            self.store.make_folder(self.layout.jobs)
        except PaiError:
            return False
        return True

    @functools.cached_property
    def seen(self) -> job_storage.Home:
        """The folder as a job sees it."""
        kind = kinds.find_type(self.place.kind)
        if kind and kind.job_folder:
            return kind.open_job_folder(self.store, self.path)
        return job_storage.MountedFolder(
            self.storage, join(f"{scripts.MOUNTS}{self.storage}", self.workspace)
        )


def home(client: Backend, workspace: str = "", mounts: Mounts = ()) -> Home | None:
    """Return the folder for this user's jobs: on the selected storage, else on the cluster's default one."""
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
    """Return the folder for this user's jobs; raise if there is no storage."""
    found = home(client, workspace, mounts)
    if found is None:
        _, why_not = _selected(client, mounts)
        also = f" ({why_not})" if why_not else ""
        raise ConfigError(
            f"cluster {client.cluster.alias!r} grants no storage, so it cannot store files{also}"
        )
    return found


def output_home(client: Backend, workspace: str, mounts: Mounts = ()) -> Home | None:
    """Return the folder for a job's output; None, with a warning, if the server has failed."""
    try:
        return home(client, workspace, mounts)
    except ApiError as err:
        if err.status >= 500:
            client.say(f"warning: the job has no folder for its output: {err}")
        return None


def at(client: Backend, storage: str, workspace: str, user: str, mounts: Mounts = ()) -> Home:
    """Return the folder that a job of the user was submitted with, from its stamp.

    A storage that was added here is used with the user name it was added with, not as the owner of the job.
    """
    own = user_storages.find(client.cluster, storage)
    if own is not None:
        return Home(user_storages.make_spec(client.cluster, own, mounts), clean_path(workspace))
    try:
        place = storages.place_of(client, storages.detail_of(client, storage), mounts)
    except NotFound as err:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(f"{where} grants you no storage {storage!r}, where the files are", 404) from err
    return Home(dataclasses.replace(place, user=user), clean_path(workspace))


def cluster_mark(cluster: Cluster) -> str:
    """Return the id of the cluster in a job's files; every machine has its own `local`."""
    if not cluster.is_embedded:
        return cluster.uri
    folder = hashlib.sha256(os.fsencode(home_folder())).hexdigest()
    return f"{LOCAL}@{socket.gethostname()}/{folder[:8]}"


def _selected(client: Backend, mounts: Mounts) -> tuple[StorageSpec | None, str]:
    """The selected storage, or why jobs cannot use it: a cluster mounts only those it grants."""
    name = client.cluster.storage
    if not name:
        return None, ""
    passed_over = f"the selected storage {name!r} is not used for jobs"
    own = user_storages.find(client.cluster, name)
    if own is None:
        place = storages.place_of(client, storages.detail_of(client, name), mounts)
    else:
        place = user_storages.make_spec(client.cluster, own, mounts)
        if not own.kind.job_folder:
            return None, f"{passed_over}, as the cluster cannot mount it"
    return (None, f"{passed_over}, as you may only read it") if place.read_only else (place, "")


_first_writable: weakref.WeakKeyDictionary[Backend, ClusterStorage | None] = weakref.WeakKeyDictionary()
"""Answers of ``_granted`` for the clients in use: a sweep asks a thousand times."""


def forget_storages(client: Backend) -> bool:
    """Forget which storages the cluster grants; return whether that was not asked for just now."""
    _first_writable.pop(client, None)
    return client.forget_facts()


def _granted(client: Backend) -> ClusterStorage | None:
    """Return the first default storage that is writable; each client asks its cluster once."""
    if client not in _first_writable:
        found = (client.storage(one.name) for one in client.storages(default=True) or client.storages())
        _first_writable[client] = next((storage for storage in found if not storage.read_only), None)
    return _first_writable[client]
