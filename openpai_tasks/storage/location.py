"""What a person types for a place, turned into a store and a path in it.

``./x`` and ``/x`` are here; ``pai://<cluster>/<storage>/<path>`` is on a cluster's storage; ``hdfs://`` and
``webhdfs://`` lead to a name node directly, ``smb://`` to a share. Behind ``pai://`` nothing is decoded:
``%``, ``#`` and ``?`` are letters like others.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from openpai_tasks.errors import ConfigError, PaiError, PathError
from openpai_tasks.storage.cluster_folders import StoragesStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import Place, Store, base, join

PAI = "pai://"
USER = "${PAI_USER_NAME}"
SELECTED = "0"
"""The name of a storage that stands for the selected one, as in the older clients."""

BACKENDS = {
    "local": "openpai_tasks.storage.local.store:open_store",
    "nfs": "openpai_tasks.storage.local.mounted:open_store",
    "samba": "openpai_tasks.storage.smb.kind:open_store",
    "azurefile": "openpai_tasks.storage.smb.kind:open_store",
    "other": "openpai_tasks.storage.local.mounted:open_store",
    "hdfs": "openpai_tasks.storage.hdfs.kind:open_store",
    "azureblob": "openpai_tasks.storage.objects.azure.kind:open_store",
    "s3": "openpai_tasks.storage.objects.s3.kind:open_store",
}
"""Type of a storage (small letters) -> ``factory(place: Place) -> Store``, imported when first used."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
SCHEMES = {
    "hdfs": "openpai_tasks.storage.hdfs.kind:open_url",
    "webhdfs": "openpai_tasks.storage.hdfs.kind:open_url",
    "smb": "openpai_tasks.storage.smb.kind:open_url",
    "s3": "openpai_tasks.storage.objects.s3.kind:open_url",
    "az": "openpai_tasks.storage.objects.azure.kind:open_url",
    "abfs": "openpai_tasks.storage.objects.azure.kind:open_url",
}
"""Scheme of a url -> ``factory(url: str) -> tuple[Store, str]`` (the store, and the path in it)."""

EXTRAS = {
    "openpai_tasks.storage.smb.kind": "smb",
    "openpai_tasks.storage.objects.s3.kind": "s3",
    "openpai_tasks.storage.objects.azure.kind": "azure",
}
"""Module of a back end -> the extra of this package that brings what it needs."""
USED = {"openpai_tasks.storage.smb.kind": "openpai_tasks.storage.smb.store"}
"""Module of a back end -> the one that imports what it needs, if that is another one."""


class Book(Protocol):
    """Who knows the clusters and their storages."""

    def storages(self, cluster: str) -> tuple[str, ...]:
        """The names of what the cluster grants this user."""

    def opened(self, cluster: str, storage: str) -> tuple[Place, Store]:
        """What is known of a storage, and its store; ``0`` is the selected one."""


@dataclass(frozen=True)
class Location:
    """A path in a store, and how it was written."""

    store: Store
    path: str
    url: str
    is_folder: bool = False
    """It was written as a folder: with a slash at its end."""
    is_content: bool = False
    """What is in the folder is meant, not the folder: it was written with ``.`` at its end."""
    has_empty_name: bool = False
    """It was written with an empty name in it, which is what an empty variable leaves."""

    @property
    def name(self) -> str:
        return base(self.path)

    @property
    def is_root(self) -> bool:
        return self.path == "/"

    @property
    def origin(self) -> str:
        """What its url has before a path of the store (``pai://lab/home``); nothing on this machine."""
        return self.url.removesuffix(self.path) if self.url.endswith(self.path) else ""

    def join(self, *names: str) -> Location:
        """The place below this one; a name that could lead elsewhere is refused."""
        for name in names:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise PathError(f"{name!r} cannot be a name in {self.url}")
        below = "/".join(names)
        return Location(self.store, join(self.path, below), join(self.url, below))


@contextlib.contextmanager
def naming(place: Location) -> Iterator[None]:
    """What goes wrong with a path of its store is told with the storage before it."""
    try:
        yield
    except PaiError as err:
        if place.origin and str(err).startswith("/"):
            err.args = (f"{place.origin}{err}", *err.args[1:])
        raise


def has_empty_name(text: str) -> bool:
    """``a//b`` is what ``a/$EMPTY/b`` becomes."""
    return "//" in _SCHEME.sub("", text)


def locate(text: str, book: Book) -> Location:
    """The place that ``text`` names."""
    return replace(_located(text, book), has_empty_name=has_empty_name(text))


def _located(text: str, book: Book) -> Location:
    if not text:
        raise PathError("an empty path names no place: is a variable empty?")
    if "\0" in text:
        raise PathError(f"a path cannot hold a NUL: {text!r}")
    if text[: len(PAI)].lower() == PAI:
        return _on_cluster(PAI + text[len(PAI) :], book)
    scheme, mark, _ = text.partition("://")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return _here(text)
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{name}://" for name in ("pai", *SCHEMES))
        raise ConfigError(f"no storage behind {scheme}:// (known: {known}, and paths of this machine)")
    store, path = made(SCHEMES[scheme.lower()], scheme, text)
    clean, is_content = _clean(path, text)
    return Location(store, clean, text[: len(text) - len(path)] + clean, text.endswith("/"), is_content)


def open_place(place: Place) -> Store:
    """The store behind a storage of a cluster."""
    backend = BACKENDS.get(place.kind.lower())
    if backend is None:
        raise ConfigError(
            f"storage {place.name!r} of {place.cluster!r} is of type {place.kind!r}, "
            f"which cannot be reached from here (known: {', '.join(BACKENDS)})"
        )
    store: Store = made(backend, place.kind, place)
    return store


def made(row: str, kind: str, given: Place | str) -> Any:
    """What the factory of a row makes; a missing package ends in one line that says what to install."""
    module, _, name = row.partition(":")
    with _told_missing(module, kind):
        return getattr(importlib.import_module(module), name)(given)


def refuse_missing(kind: str) -> None:
    """The same for a kind of storage, before anything is asked for that it needs."""
    module = BACKENDS[kind].partition(":")[0]
    with _told_missing(module, kind):
        importlib.import_module(USED.get(module, module))


@contextlib.contextmanager
def _told_missing(module: str, kind: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as err:
        missing = (err.name or "").partition(".")[0]
        if missing == __package__.partition(".")[0]:
            raise  # one of our own modules: a bug
        extra = EXTRAS.get(module)
        what = f"'openpai-tasks[{extra}]'" if extra else missing
        raise ConfigError(f"{kind!r} storage needs the package {missing!r}: pip install {what}") from err


def _here(text: str) -> Location:
    """A path of this machine; links above the last name are followed, as the system does."""
    path = os.path.join(os.getcwd(), text)
    _refuse_up_from_nothing(path, text)
    last = base(path)
    is_content = last in (".", "..")
    if is_content:
        full = os.path.realpath(path)
    else:
        folder, _, _ = path.rstrip("/").rpartition("/")
        full = join(os.path.realpath(folder or "/"), last) if last else "/"
    return Location(LocalStore(), full, full, text.endswith("/"), is_content)


def _refuse_up_from_nothing(path: str, text: str) -> None:
    """``missing/../b`` is not ``b``, and neither is ``file/../b``."""
    names = path.split("/")
    for number, name in enumerate(names):
        above = "/".join(names[:number]) or "/"
        if name == ".." and not os.path.isdir(above):
            raise PathError(f"{text!r}: '..' behind {above}, which is no folder")


def _on_cluster(text: str, book: Book) -> Location:
    cluster, _, rest = text.removeprefix(PAI).partition("/")
    if not cluster:
        raise PathError(f"{text!r} names no cluster: pai://<cluster>/<storage>/<path>")
    storage, _, path = rest.partition("/")
    if not storage:
        if path.strip("/"):
            raise PathError(f"{text!r} names no storage: is a variable empty?")
        return Location(StoragesStore(cluster, book.storages(cluster)), "/", f"{PAI}{cluster}/", True)
    place, store = book.opened(cluster, storage)
    clean, is_content = _clean(_expanded(path, place), text)
    url = f"{PAI}{cluster}/{place.name}{clean}"
    return Location(store, clean, url, text.endswith("/") or clean == "/", is_content)


def _clean(path: str, text: str) -> tuple[str, bool]:
    """The path without empty names and ``.``, and whether it ended with one; ``..`` is refused."""
    names = [name for name in path.split("/") if name]
    if ".." in names:
        raise PathError(f"{text!r}: '..' is not allowed on a storage")
    return "/" + "/".join(name for name in names if name != "."), names[-1:] == ["."]


def _expanded(path: str, place: Place) -> str:
    if USER not in path:
        return path
    if not place.user:
        raise ConfigError(f"{USER} is empty: the cluster {place.cluster!r} has no user name")
    return path.replace(USER, place.user)
