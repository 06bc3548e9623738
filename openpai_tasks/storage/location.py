"""Parse what the user types for a file or folder into a store and a path in it.

``./x`` and ``/x`` are on this machine; ``pai://<cluster>/<storage>/<path>`` is on a cluster's storage;
some absolute paths (``/pfs/<datacenter>/home/…``) belong to a kind of cluster, other schemes to a kind of
storage (see ``kinds``). Paths of ``pai://`` are not decoded: ``%``, ``#`` and ``?`` are ordinary characters.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from openpai_tasks.errors import ConfigError, NoSuchPath, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage import kinds
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import (
    Digest,
    Entry,
    Hasher,
    ReadOnlyStore,
    StorageSpec,
    Store,
    base,
    check_name,
    is_name,
    join,
)

PAI = "pai://"
USER = "${PAI_USER_NAME}"
SELECTED = "0"
"""Name that stands for the selected storage, as in the older clients."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class Book(Protocol):
    """A source of clusters and their storages."""

    def storages(self, cluster: str) -> tuple[str, ...]:
        """Return the names of the user's storages on the cluster."""

    def opened(self, cluster: str, storage: str) -> tuple[StorageSpec, Store]:
        """Return the storage and its open store; ``0`` means the selected one."""

    def cluster_url(self, path: str) -> str:
        """Return the URL of an absolute path that belongs to a kind of cluster; "" for any other path."""


@dataclass(frozen=True)
class Location:
    """A path in a store, and how the user wrote it."""

    store: Store
    path: str
    url: str
    is_folder: bool = False
    """Whether it was written with a slash at its end, as a folder."""
    is_content: bool = False
    """Whether the contents of the folder are meant: it was written with ``.`` at its end."""
    has_empty_name: bool = False
    """Whether it was written with an empty name in it, as an empty variable leaves it."""
    is_home: bool = False
    """Whether it is the user's home folder, on this machine, on a storage or in a container."""

    @property
    def name(self) -> str:
        return base(self.path)

    @property
    def is_root(self) -> bool:
        return self.path == "/"

    @property
    def holds_copies(self) -> bool:
        """Whether a copy is put into it, and not in its place."""
        return self.is_folder or self.is_content or self.is_root or self.is_home

    @property
    def origin(self) -> str:
        """The part of the URL before the path (``pai://lab/home``); empty on this machine."""
        return self.url.removesuffix(self.path) if self.url.endswith(self.path) else ""

    def join(self, *names: str) -> Location:
        """Return a location below this one; raise for names that could point elsewhere."""
        for name in names:
            if not is_name(name):
                raise PathError(f"{name!r} cannot be a name in {self.url}")
        below = "/".join(names)
        return Location(self.store, join(self.path, below), join(self.url, below))


@contextlib.contextmanager
def naming(place: Location) -> Iterator[None]:
    """Put the storage in front of paths in error messages."""
    try:
        yield
    except PaiError as err:
        if place.origin and str(err).startswith("/") and not str(err).startswith(place.origin):
            err.args = (f"{place.origin}{err}", *err.args[1:])
        raise


def has_empty_name(text: str) -> bool:
    """Whether a name is empty: ``a//b`` is what ``a/$EMPTY/b`` becomes."""
    return "//" in _SCHEME.sub("", text)


def locate(text: str, book: Book) -> Location:
    """Return the location that ``text`` names."""
    return replace(_locate(text, book), has_empty_name=has_empty_name(text))


def _locate(text: str, book: Book) -> Location:
    if not text:
        raise PathError("the path is empty: is a variable empty?")
    if "\0" in text:
        raise PathError(f"a path cannot contain NUL: {text!r}")
    if text[: len(PAI)].lower() == PAI:
        return _on_cluster(PAI + text[len(PAI) :], book)
    if text.startswith("/") and (url := book.cluster_url(text)):
        return _on_cluster(url, book)
    scheme, mark, _ = text.partition("://")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return _here(text)
    kind = kinds.find_scheme(scheme)
    if kind is None:
        schemes = ("pai", *(name for kind in kinds.all_kinds() for name in kind.schemes))
        known = kinds.describe_known((*(f"{name}://" for name in schemes), "paths of this machine"))
        raise ConfigError(f"{text!r}: unknown kind of storage {scheme}://{known}")
    store, path = kind.open_url(text)
    clean, is_content = clean_path(path, text)
    return Location(store, clean, text[: len(text) - len(path)] + clean, text.endswith("/"), is_content)


def open_storage(spec: StorageSpec) -> Store:
    """Open a storage of a cluster, or one that the user added."""
    kind = kinds.find_type(spec.kind)
    if kind is None:
        known = kinds.describe_known(tuple(kind.name for kind in kinds.all_kinds()))
        raise ConfigError(f"{spec.title} is of type {spec.kind!r}, which is not supported{known}")
    return kind.open_store(spec)


def _here(text: str) -> Location:
    """Return a path on this machine; symlinks above the last name are followed, as the system does."""
    path = os.path.join(os.getcwd(), text)
    _check_parents(path, text)
    last = base(path)
    is_content = last in (".", "..")
    if is_content:
        full = os.path.realpath(path)
    else:
        folder, _, _ = path.rstrip("/").rpartition("/")
        full = join(os.path.realpath(folder or "/"), last) if last else "/"
    is_home = os.path.realpath(full) == os.path.realpath(os.path.expanduser("~"))
    return Location(LocalStore(), full, full, text.endswith("/"), is_content, is_home=is_home)


def _check_parents(path: str, text: str) -> None:
    """Raise for ``missing/../b`` and ``file/../b``, which are not ``b``."""
    names = path.split("/")
    for number, name in enumerate(names):
        if name == ".." and not os.path.isdir(above := "/".join(names[:number]) or "/"):
            raise PathError(f"{text!r}: '..' after {above}, which is not a folder")


def _on_cluster(text: str, book: Book) -> Location:
    cluster, _, rest = text.removeprefix(PAI).partition("/")
    if not cluster:
        raise PathError(f"{text!r} names no cluster: pai://<cluster>/<storage>/<path>")
    storage, _, path = rest.partition("/")
    if not storage:
        if path.strip("/"):
            raise PathError(f"{text!r} names no storage: is a variable empty?")
        return Location(ClusterStore(cluster, book.storages(cluster)), "/", f"{PAI}{cluster}/", True)
    place, store = book.opened(cluster, storage)
    clean, is_content = clean_path(_expand_user(path, place), text)
    url = f"{PAI}{cluster}/{place.name}{clean}"
    is_folder = text.endswith("/") or clean == "/"
    return Location(store, clean, url, is_folder, is_content, is_home=clean == place.home)


def clean_path(path: str, text: str) -> tuple[str, bool]:
    """Remove empty names and ``.`` from the path; return whether it ended with ``.``, and refuse ``..``."""
    names = [name for name in path.split("/") if name]
    if ".." in names:
        raise PathError(f"{text!r}: '..' is not allowed on a storage")
    return "/" + "/".join(name for name in names if name != "."), names[-1:] == ["."]


def _expand_user(path: str, place: StorageSpec) -> str:
    if USER not in path:
        return path
    if not place.user:
        raise ConfigError(f"{USER} is empty: the cluster {place.cluster!r} has no user name")
    return path.replace(USER, place.user)


class ClusterStore(ReadOnlyStore):
    """A read-only list of storages; files on them have their own URLs."""

    kind = "storages"
    knows_digests = False

    def __init__(self, cluster: str, names: Iterable[str]) -> None:
        self._cluster = cluster
        self._names = tuple(names)

    def address(self, path: str) -> str:
        return f"pai://{self._cluster}{path}"

    def stat(self, path: str) -> Entry | None:
        return Entry("", "/", True) if path == "/" else None

    def list(self, path: str) -> Iterator[Entry]:
        if path != "/":
            raise NoSuchPath(f"{self.address(path)}: no such folder")
        for name in self._names:
            yield Entry(check_name(name, self.address(path)), f"/{name}", True)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        raise self._refusal(path)

    def digest(self, path: str) -> Digest | None:
        return None

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return None

    def _refusal(self, path: str) -> PathError:
        known = ", ".join(self._names) or "none"
        return PathError(f"pai://{self._cluster}/ holds storages, not files; name one (known: {known})")
