"""Copy files into and out of a container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Conflict, PathError
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.containers.endpoints import Container, RunningJob
from openpai_tasks.sdk.files import operations
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.location import Location, has_empty_name, locate
from openpai_tasks.storage.sftp.store import SftpStore
from openpai_tasks.storage.store import join

MOST_TRIES = 4
"""Failed attempts in a row to restore a lost connection before giving up."""


class ContainerConnection:
    """A connection to one container that is restored when lost, as long as it is the same container."""

    def __init__(self, client: Backend, found: RunningJob, container: Container, settings: Settings) -> None:
        self._client, self._found, self._container, self._settings = client, found, container, settings
        self._remote: Remote | None = None
        self._failed = 0

    def renew(self) -> Remote:
        self.close()
        if self._failed >= MOST_TRIES:
            raise PathError(f"the connection to {self._container.label} is lost; run it again to continue")
        why = endpoints.describe_change(self._client, self._found, self._container) if self._failed else ""
        if why:
            raise Conflict(f"{why}: its files are different now", 409)
        self._failed += 1
        self._remote = endpoints.open_remote(self._client, self._found, self._container, self._settings)
        self._failed = 1  # the next one is a retry
        return self._remote

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None


@contextlib.contextmanager
def open_files(
    client: Backend, found: RunningJob, container: Container, settings: Settings
) -> Iterator[SftpStore]:
    """Open the container's files for a copy, and check at once that it can be reached."""
    connection = ContainerConnection(client, found, container, settings)
    store = SftpStore(endpoints.host_name(found.job, container), connection.renew)
    try:
        store.start_folder()
        yield store
    finally:
        store.close()
        connection.close()


def get(
    store: SftpStore, label: str, paths: Sequence[str], settings: Settings, rules: Rules, watch: Watch
) -> Copied:
    """Copy from the container: SOURCE... TARGET, or one source into the current folder."""
    *sources, target = paths if len(paths) > 1 else [*paths, "./"]
    start = store.start_folder()
    places = [locate_in_container(store, label, start, source) for source in sources]
    return operations.copy(places, locate(target, ClusterStorages(settings)), rules, watch)


def put(
    store: SftpStore, label: str, paths: Sequence[str], settings: Settings, rules: Rules, watch: Watch
) -> Copied:
    """Copy into the container: SOURCE... TARGET, or one source into the login's start folder."""
    *sources, target = paths if len(paths) > 1 else [*paths, "./"]
    book, start = ClusterStorages(settings), store.start_folder()
    return operations.copy(
        [locate(one, book) for one in sources], locate_in_container(store, label, start, target), rules, watch
    )


def locate_in_container(store: SftpStore, label: str, start: str, text: str) -> Location:
    """Return the location in the container; a relative path begins in the login's start folder."""
    if not text or "\0" in text:
        raise PathError(f"invalid path in {label}: {text!r}")
    path = text if text.startswith("/") else join(start, text)
    names = [name for name in path.split("/") if name]
    if ".." in names:
        raise PathError(f"{text!r}: '..' is not supported in a container; use an absolute path")
    clean = "/" + "/".join(name for name in names if name != ".")
    is_content = text.rstrip("/").rpartition("/")[2] == "." and text not in (".", "./")
    is_empty, is_home = has_empty_name(text), clean == start.rstrip("/")
    return Location(store, clean, f"{label}:{clean}", text.endswith("/"), is_content, is_empty, is_home)
