"""Files on PFS: what users write as /pfs/DATACENTER/home/USER/PATH."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from openpai_tasks.backends.base import Say
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.backends.paddlecloud.pfs.store import PfsStore
from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.paddlecloud.jobs import package_folders
from openpai_tasks.paddlecloud.package import Package
from openpai_tasks.paddlecloud.request import InvalidArgument
from openpai_tasks.sdk.files import operations, removing
from openpai_tasks.sdk.files.removing import Removal
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage import patterns
from openpai_tasks.storage.copying.copy import WORKERS, Copied
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.location import PAI, Location, naming
from openpai_tasks.storage.store import Entry, join

ROOT = "/pfs/"
STORAGE = "pfs"
LEAST_CHUNK, MOST_CHUNK = 4, 32 << 10  # KiB


@dataclass(frozen=True)
class PfsFile:
    """A file or folder on PFS."""

    path: str
    is_folder: bool
    size: int
    modified: int


@dataclass(frozen=True)
class PfsListing:
    """What a path on PFS holds: a file itself, or the entries of a folder."""

    path: str
    entries: tuple[PfsFile, ...]


class PfsPlaces:
    """The paths of a command: on PFS if they begin with /pfs/, else on this machine."""

    def __init__(self, client: PaddleBackend, settings: Settings, say: Say, chunk: int | None = None) -> None:
        self._client, self._chunk, self._say = client, chunk, say  # None for the usual size
        self._book = ClusterStorages(settings, say, client)

    def locate(self, text: str) -> Location:
        """Return the location that the text names."""
        if not is_pfs(text):
            return operations.locate(text, self._book)
        with self._classic_errors():
            found = operations.locate(self._url(text), self._book)
        if self._chunk is not None and isinstance(found.store, PfsStore):
            found.store.use_chunks(self._chunk)
        return self._classic(found)

    def locate_all(self, texts: Sequence[str]) -> list[Location]:
        """Return the locations of paths on PFS, with patterns resolved."""
        found: list[Location] = []
        for place in map(self.locate_existing, texts):
            with naming(place):
                found += patterns.sources(place)
        return found

    def locate_pair(self, paths: Sequence[str]) -> tuple[list[Location], Location]:
        """Return the sources and the target of a copy."""
        *sources, target = paths
        return [self.locate_existing(source) for source in sources], self.locate(target)

    def locate_existing(self, text: str) -> Location:
        """Return the location that the text names; a job's package is also found beside ``jobs``.

        In the design document, the package NAME is ``/pfs/DATACENTER/home/USER/NAME``.
        """
        place = self.locate(text)
        first, _, rest = place.path.removeprefix(f"/home/{self._client.user}/").partition("/")
        if not is_pfs(text) or first == place.path or not first or self._is_there(place):
            return place
        for folder in package_folders(self._client, first):
            other = self.locate(f"{folder}/{rest}".rstrip("/"))
            if self._is_there(other):
                self._say(f"{place.url} is {other.url}")
                return dataclasses.replace(other, is_folder=place.is_folder, is_content=place.is_content)
        return place

    def _is_there(self, place: Location) -> bool:
        """Whether a path exists; of a pattern, the folder in front of it."""
        plain = itertools.takewhile(lambda name: not patterns.MAGIC.search(name), place.path.split("/"))
        with naming(place):
            return place.store.stat("/".join(plain) or "/") is not None

    def plan_removals(self, texts: Sequence[str], recursive: bool) -> list[Removal]:
        """Return the files and folders to remove, all checked before anything is removed."""
        with self._classic_errors():
            found = removing.plan_removals([self._url(text) for text in texts], self._book, recursive)
        return [
            dataclasses.replace(one, place=self._classic(one.place), doubt=self._classic_text(one.doubt))
            for one in found
        ]

    def upload(self, package: Package, folder: str, watch: Watch) -> Copied:
        """Copy the files of a package into the folder of its job."""
        return operations.sync(package.location, self.locate(folder), operations.copy_rules(WORKERS), watch)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything in it; it may be gone already."""
        with contextlib.suppress(NotFound):
            removing.remove(removing.plan_exact_removals([self.locate(folder)]))

    def _url(self, text: str) -> str:
        """Return the address of a path on PFS for our own commands."""
        datacenter, _, rest = text.removeprefix(ROOT).partition("/")
        if datacenter not in (self._client.datacenter, self._client.cluster.alias):
            raise InvalidArgument(
                f"{text!r} is on the datacenter {datacenter!r}, but this is {self._client.datacenter!r}: "
                f"write /pfs/{self._client.datacenter}/..., or name the other one with -datacenter"
            )
        return f"{PAI}{self._client.cluster.alias}/{STORAGE}/{rest}"

    def _classic(self, place: Location) -> Location:
        """Return the location with its path as users of PaddleCloud write it."""
        return dataclasses.replace(place, url=f"{ROOT}{self._client.datacenter}{place.path}")

    def _classic_text(self, text: str) -> str:
        root = f"{PAI}{self._client.cluster.alias}/{STORAGE}/"
        return text.replace(root, f"{ROOT}{self._client.datacenter}/")

    @contextlib.contextmanager
    def _classic_errors(self) -> Iterator[None]:
        try:
            yield
        except PaiError as err:
            err.args = (self._classic_text(str(err)), *err.args[1:])
            raise


def is_pfs(text: str) -> bool:
    return text.startswith(ROOT)


def check_pfs(paths: Sequence[str]) -> None:
    """Raise for paths that are not on PFS."""
    for text in paths:
        if not is_pfs(text):
            raise InvalidArgument(f"{text!r} is not on PFS: expected /pfs/DATACENTER/home/USER/PATH")
    if not paths:
        raise InvalidArgument("name a path such as /pfs/DATACENTER/home/USER/PATH")


def check_pair(paths: Sequence[str]) -> None:
    """Raise unless one side of a copy is on PFS and the other on this machine."""
    if len(paths) < 2:
        raise InvalidArgument("name the sources and, last, the target: cp SOURCE... TARGET")
    *sources, target = paths
    sides = {is_pfs(source) for source in sources}
    if len(sides) > 1 or is_pfs(target) in sides:
        raise InvalidArgument(
            "one side of a copy is on PFS (/pfs/...) and the other on this machine, "
            f"got {', '.join(sources)} and {target}"
        )


def check_chunk_size(kib: int | None) -> int | None:
    """Return the size of chunks in bytes; None for the usual one."""
    if kib is None:
        return None
    if not LEAST_CHUNK <= kib <= MOST_CHUNK:
        raise InvalidArgument(f"-chunksize is between {LEAST_CHUNK} and {MOST_CHUNK} KiB, got {kib}")
    return kib << 10


def make_folder(place: Location) -> None:
    """Create a folder, with missing parents."""
    with naming(place):
        place.store.make_folder(place.path)


def list_pfs(places: Sequence[Location], recursive: bool) -> list[PfsListing]:
    """List files, and the entries of folders; with ``recursive``, everything below them."""
    return [PfsListing(place.url, tuple(_entries(place, recursive))) for place in places]


def _entries(place: Location, recursive: bool) -> list[PfsFile]:
    entry = operations.existing(place)
    if not entry.is_folder:
        return [_entry(place, entry, place.path)]
    with naming(place):
        found = walk(place, None if recursive else 1)
        return [_entry(place, one.entry, join(place.path, one.name)) for one in found]


def _entry(place: Location, entry: Entry, path: str) -> PfsFile:
    return PfsFile(place.origin + path, entry.is_folder, entry.size, entry.mtime_ms)
