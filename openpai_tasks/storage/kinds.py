"""The kinds of storage, one row each: ours, and those that other packages add with an entry point."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings import plugins

if TYPE_CHECKING:
    from openpai_tasks.protocol.document.job_storage import Home
    from openpai_tasks.storage.store import StorageSpec, Store

ENTRY_POINTS = "openpai_tasks.storage_kinds"
"""Entry point group of other packages; the value of each entry point is a ``StorageKind``."""


@dataclass(frozen=True)
class StorageKind:
    """One kind of storage. Functions are given as ``module:function`` and loaded on first use."""

    name: str
    """The type in lower case, for ``storage.add --type``; clusters may capitalise it differently."""
    label: str
    """Its name in messages."""
    store: str
    """``(spec: StorageSpec) -> Store``: open a storage of a cluster, or one that the user added."""
    server: str = ""
    """``(spec: StorageSpec) -> str``: the location of the storage for messages; its folder if not given."""
    schemes: tuple[str, ...] = ()
    """Schemes of its URLs, without ``://``."""
    url: str = ""
    """``(url: str) -> tuple[Store, str]``: open the store of a URL, and return the path in it."""
    install: str = ""
    """Argument of ``pip install`` for the packages that this kind needs."""
    requires: str = ""
    """The module that imports these packages, if the module of ``store`` does not."""
    data: str = ""
    """``(storage: UserStorage, secret: str) -> dict``: make ``StorageSpec.data``.

    The flags of ``storage.add`` are in ``storage``. Raises ConfigError if they are invalid. Without it, users
    cannot add storages of this kind.
    """
    flags: tuple[str, ...] = ()
    """Required flags of ``storage.add``."""
    options: tuple[str, ...] = ()
    """Allowed names for ``--option NAME=VALUE``."""
    asks_for: str = ""
    """Name of the secret for ``--user`` in the prompt; no secret is asked for if not given."""
    acts_as_user: bool = False
    """Whether files are read and written as ``--user``, instead of the cluster's user."""
    job_folder: str = ""
    """``(store: Store, path: str) -> job_storage.Home``: how a job accesses a folder by itself.

    If not given, jobs only see what the cluster mounts.
    """
    package: str = ""
    """The package that added this kind; empty for ours."""

    def open_store(self, spec: StorageSpec) -> Store:
        return cast("Store", self._call(self.store, spec))

    def open_url(self, url: str) -> tuple[Store, str]:
        return cast("tuple[Store, str]", self._call(self.url, url))

    def make_data(self, storage: UserStorage, secret: str) -> dict[str, Any]:
        return cast(dict[str, Any], self._call(self.data, storage, secret))

    def describe_server(self, spec: StorageSpec) -> str:
        return str(self._call(self.server, spec) if self.server else spec.data.get("path", ""))

    def open_job_folder(self, store: Store, path: str) -> Home:
        return cast("Home", self._call(self.job_folder, store, path))

    def check_installed(self) -> None:
        """Raise a ConfigError that names the package to install, if one is missing."""
        with self._naming_package():
            importlib.import_module(self.requires or self.store.partition(":")[0])

    def _call(self, reference: str, *given: Any) -> Any:
        with self._naming_package():
            return self._load(reference)(*given)

    def _load(self, reference: str) -> Any:
        module, _, name = reference.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as err:
            if not self.package or isinstance(err, ModuleNotFoundError):
                raise
            what = f"the storage kind {self.name!r} of the package {self.package} cannot be loaded"
            raise ConfigError(f"{what}: {reference}: {err}; update or uninstall the package") from err

    @contextlib.contextmanager
    def _naming_package(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as err:
            missing = (err.name or "").partition(".")[0]
            if missing == __name__.partition(".")[0]:
                raise  # one of our own modules: a bug
            install = f"'{self.install}'" if self.install else missing
            raise ConfigError(
                f"{self.label} storage needs the package {missing!r}: pip install {install}"
            ) from err


@dataclass(frozen=True)
class UserStorage:
    """A storage that the user adds, as the flags of ``storage.add`` describe it."""

    name: str
    kind: StorageKind
    address: str = ""
    path: str = ""
    user: str = ""
    options: tuple[tuple[str, str], ...] = ()
    read_only: bool = False

    @property
    def type(self) -> str:
        return self.kind.name

    def option(self, name: str) -> str:
        return dict(self.options).get(name, "")

    @property
    def server_options(self) -> dict[str, str]:
        """The options except those about this machine: mount point and certificates."""
        return {name: value for name, value in self.options if name not in ("mount", "ca")}

    @property
    def wants_secret(self) -> bool:
        return bool(self.kind.asks_for and self.user)

    @property
    def secret_word(self) -> str:
        """What the secret is called in messages."""
        return self.kind.asks_for


_HERE = "openpai_tasks.storage"

KINDS = (
    StorageKind(
        name="hdfs",
        label="HDFS",
        store=f"{_HERE}.hdfs.kind:open_store",
        server=f"{_HERE}.hdfs.kind:server",
        schemes=("hdfs", "webhdfs"),
        url=f"{_HERE}.hdfs.kind:open_url",
        data=f"{_HERE}.hdfs.kind:make_data",
        flags=("address",),
        options=("port", "ca"),
        acts_as_user=True,
        job_folder=f"{_HERE}.hdfs.kind:job_folder",
    ),
    StorageKind(
        name="local",
        label="local",
        store=f"{_HERE}.local.kind:open_store",
        data=f"{_HERE}.local.kind:make_data",
        flags=("path",),
    ),
    StorageKind(
        name="nfs",
        label="NFS",
        store=f"{_HERE}.local.kind:open_nfs",
        server=f"{_HERE}.local.kind:nfs_server",
        data=f"{_HERE}.local.kind:make_nfs_data",
        flags=("address", "path"),
        options=("mount",),
    ),
    StorageKind(
        name="samba",
        label="Samba",
        store=f"{_HERE}.smb.kind:open_store",
        server=f"{_HERE}.smb.kind:server",
        schemes=("smb",),
        url=f"{_HERE}.smb.kind:open_url",
        install="openpai-tasks[smb]",
        requires=f"{_HERE}.smb.store",
        data=f"{_HERE}.smb.kind:make_data",
        flags=("address",),
        options=("domain", "port", "mount"),
        asks_for="password",
    ),
    StorageKind(
        name="azurefile",
        label="Azure File",
        store=f"{_HERE}.smb.kind:open_azure_file",
        server=f"{_HERE}.smb.kind:azure_server",
        install="openpai-tasks[smb]",
        requires=f"{_HERE}.smb.store",
        data=f"{_HERE}.smb.kind:make_azure_data",
        flags=("user", "path"),
        options=("mount",),
        asks_for="account key",
    ),
    StorageKind(
        name="azureblob",
        label="Azure Blob",
        store=f"{_HERE}.objects.azure.kind:open_store",
        server=f"{_HERE}.objects.azure.kind:server",
        schemes=("az", "abfs"),
        url=f"{_HERE}.objects.azure.kind:open_url",
        install="openpai-tasks[azure]",
        requires=f"{_HERE}.objects.azure.container",
        data=f"{_HERE}.objects.azure.kind:make_data",
        flags=("user", "path"),
        asks_for="account key or SAS token",
    ),
    StorageKind(
        name="s3",
        label="S3",
        store=f"{_HERE}.objects.s3.kind:open_store",
        server=f"{_HERE}.objects.s3.kind:server",
        schemes=("s3",),
        url=f"{_HERE}.objects.s3.kind:open_url",
        install="openpai-tasks[s3]",
        requires=f"{_HERE}.objects.s3.bucket",
        data=f"{_HERE}.objects.s3.kind:make_data",
        flags=("path",),
        asks_for="secret key",
    ),
    StorageKind(
        name="pfs",
        label="PFS",
        store="openpai_tasks.backends.paddlecloud.pfs.store:open_store",
        server="openpai_tasks.backends.paddlecloud.pfs.store:server",
    ),
    StorageKind(
        name="sftp",
        label="SFTP",
        store=f"{_HERE}.sftp.login_node:open_store",
        server=f"{_HERE}.sftp.login_node:describe_server",
    ),
    StorageKind(name="other", label="mounted", store=f"{_HERE}.local.kind:open_other"),
)
"""Our kinds, in the order in which they are shown."""

ADDABLE = tuple(kind.name for kind in KINDS if kind.data)
"""The types of our kinds that ``storage.add`` accepts."""


def find_type(name: str) -> StorageKind | None:
    """Return the kind of that type, in any case; look at other packages only if it is not ours."""
    return _find(lambda kind: kind.name == name.lower())


def find_scheme(scheme: str) -> StorageKind | None:
    """Return the kind whose URLs have that scheme, in the same way."""
    return _find(lambda kind: scheme.lower() in kind.schemes)


def _find(is_wanted: Callable[[StorageKind], bool]) -> StorageKind | None:
    ours = next(filter(is_wanted, KINDS), None)
    return ours or next(filter(is_wanted, _third_party_kinds()[0]), None)


def all_kinds() -> tuple[StorageKind, ...]:
    """Return our kinds and those of other packages."""
    return (*KINDS, *_third_party_kinds()[0])


def describe_known(names: tuple[str, ...]) -> str:
    """Return the end of a message about an unknown type: the known ones, and packages that failed."""
    return "; ".join([f" (known: {', '.join(names)})", *_third_party_kinds()[1]])


def _third_party_kinds() -> tuple[tuple[StorageKind, ...], tuple[str, ...]]:
    """Return the kinds of other packages, and a line about each that cannot be used."""
    found = plugins.load(ENTRY_POINTS, StorageKind, "storage kind")
    kinds = (
        replace(kind, name=kind.name.lower(), package=found.packages[name])
        for name, kind in found.named.items()
    )
    return tuple(kinds), found.problems


def rooted(path: str) -> str:
    """Return the path from the root, without a slash at the end."""
    return "/" + path.strip("/")


def split_names(text: str, count: int) -> tuple[str, str, str]:
    """Split off the first one or two names of a path; the rest is a path from the root."""
    names = [name for name in text.split("/") if name]
    first, second = (*names[:count], "", "")[:2]
    below = "/".join(names[count:])
    return first, second, rooted(below) if below else ""
