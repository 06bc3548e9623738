"""Files into and out of a container, by the one engine that copies everything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Conflict, PathError
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.containers.endpoints import Container, Reach
from openpai_tasks.sdk.files import operations
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.location import Location, has_empty_name, locate
from openpai_tasks.storage.sftp.store import SftpStore
from openpai_tasks.storage.store import join

TRIES = 4
"""How often in a row a lost connection is made again before all that is left is given up."""


class Line:
    """The connection to one container, made again when it is lost, as long as it is the same container."""

    def __init__(self, client: Backend, found: Reach, container: Container, settings: Settings) -> None:
        self._client, self._found, self._container, self._settings = client, found, container, settings
        self._remote: Remote | None = None
        self._failed = 0

    def renew(self) -> Remote:
        self.close()
        if self._failed >= TRIES:
            raise PathError(f"the connection to {self._container.label} is lost; run it again to go on")
        why = endpoints.has_moved(self._client, self._found, self._container) if self._failed else ""
        if why:
            raise Conflict(f"{why}: its files are others now", 409)
        self._failed += 1
        self._remote = endpoints.open_remote(self._client, self._found, self._container, self._settings)
        self._failed = 1  # from now on a new one is another try
        return self._remote

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None


@contextlib.contextmanager
def open_files(
    client: Backend, found: Reach, container: Container, settings: Settings
) -> Iterator[SftpStore]:
    """The files of the container for the time of a copy; it is tried at once whether it can be reached."""
    line = Line(client, found, container, settings)
    store = SftpStore(endpoints.host_name(found.job, container), line.renew)
    try:
        store.start_folder()
        yield store
    finally:
        store.close()
        line.close()


def get(
    store: SftpStore, label: str, paths: Sequence[str], settings: Settings, rules: Rules, watch: Watch
) -> Copied:
    """Copy from the container: SOURCE... TARGET, or one source into this folder."""
    *sources, target = paths if len(paths) > 1 else [*paths, "./"]
    start = store.start_folder()
    places = [place(store, label, start, source) for source in sources]
    return operations.copy(places, locate(target, ClusterStorages(settings)), rules, watch)


def put(
    store: SftpStore, label: str, paths: Sequence[str], settings: Settings, rules: Rules, watch: Watch
) -> Copied:
    """Copy into the container: SOURCE... TARGET, or one source into the folder that a login begins in."""
    *sources, target = paths if len(paths) > 1 else [*paths, "./"]
    book, start = ClusterStorages(settings), store.start_folder()
    return operations.copy(
        [locate(one, book) for one in sources], place(store, label, start, target), rules, watch
    )


def place(store: SftpStore, label: str, start: str, text: str) -> Location:
    """What is meant in the container; a relative path begins where a login does."""
    if not text or "\0" in text:
        raise PathError(f"{text!r} names no place in {label}")
    path = text if text.startswith("/") else join(start, text)
    names = [name for name in path.split("/") if name]
    if ".." in names:
        raise PathError(f"{text!r}: '..' is not followed in a container; write the path from / on")
    clean = "/" + "/".join(name for name in names if name != ".")
    is_content = text.rstrip("/").rpartition("/")[2] == "." and text not in (".", "./")
    is_folder = text.endswith("/") or text == "."
    return Location(store, clean, f"{label}:{clean}", is_folder, is_content, has_empty_name(text))
