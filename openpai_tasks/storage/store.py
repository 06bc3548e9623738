"""The interface of every store, which copying uses.

A path in a store is absolute and POSIX (``/a/b``); ``/`` is the store's root. Errors: NotFound for a missing
file or folder, Denied for a forbidden one, Unreachable for a server that does not answer (worth a retry),
PathError for the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, Protocol

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass

PIECE = 1 << 20
"""Bytes per piece, unless a store uses another size."""
SHA256 = "sha256"


@dataclasses.dataclass(slots=True)  # there is one for each file: frozen, they take four times as long to make
class Entry:
    """One name in a folder; a symlink has the values of its target (size 0 if that is missing)."""

    name: str
    path: str
    is_folder: bool
    size: int = 0
    mtime_ms: int = 0
    is_link: bool = False
    is_executable: bool = False
    is_special: bool = False  # neither a file nor a folder: a pipe, a device
    mode: int | None = None  # who may do what, where the store knows
    version: str = ""  # changes whenever the file is written; empty if the store has none
    digest: Digest | None = None  # of its content, where the listing has it
    is_arrival: bool = False
    """``mtime_ms`` is when the store got the file; only ``stat`` has the file's own time."""
    is_whole_second: bool = False  # its time has no milliseconds
    id: str = ""  # of a folder: its number in its file system; empty if unknown


@dataclass(frozen=True)
class Digest:
    """A digest of a file's content; only digests of the same kind can be compared."""

    kind: str
    value: str


class Hasher(Protocol):
    """Computes a digest of passing bytes in bounded memory."""

    def update(self, piece: bytes, /) -> None: ...

    def digest(self) -> Digest: ...


class Store(Protocol):
    """Files and folders at some place. Every method may be called from several threads at once."""

    kind: str
    """Stores of different kinds have no files in common."""
    knows_digests: bool
    """Whether ``digest`` asks the server; otherwise it reads the whole file."""

    def address(self, path: str) -> str:
        """Return the address of the file, which is the same for all its names."""

    def stat(self, path: str) -> Entry | None:
        """Return the entry at the path, or None. A folder's size is 0."""

    def list(self, path: str) -> Iterator[Entry]:
        """Yield the entries of the folder as they arrive; every name has passed ``check_name``."""

    def make_folder(self, path: str) -> None:
        """Create the folder and its missing parents; an existing folder is fine, a file is a PathError."""

    def remove(self, path: str, recursive: bool = False) -> None:
        """Remove a file, a symlink (not its target) or a folder; one that is not empty only if recursive."""

    def rename(self, source: str, target: str) -> None:
        """Give a file its final name, replacing any file of that name."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes in pieces; fewer than requested only at the end of the file."""

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        """Stream to exactly this path (in an existing folder), replacing any file there."""

    def digest(self, path: str) -> Digest | None:
        """Return the file's digest, if the store has one."""

    def hasher(self, kind: str | None = None) -> Hasher | None:
        """Return a hasher for digests of this kind; without a kind, for files written now."""

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time, if that is possible."""


class ReadOnlyStore(ABC):
    """The methods of a store that change files, for one whose files cannot be changed."""

    @abstractmethod
    def _refusal(self, path: str) -> PaiError:
        """Return the error for a change of the path."""

    def make_folder(self, path: str) -> None:
        raise self._refusal(path)

    def remove(self, path: str, recursive: bool = False) -> None:
        raise self._refusal(path)

    def rename(self, source: str, target: str) -> None:
        raise self._refusal(source)

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        raise self._refusal(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        raise self._refusal(path)


class KnowsPlaces(ABC):
    """A store that can tell whether two paths are the same folder."""

    @abstractmethod
    def identities(self, path: str, above: bool = False) -> set[str]:
        """Return what identifies the folder under all its names; ``above``: also all folders above it."""


class WritesWhole(ABC):
    """A store where a file appears as a whole, so that it needs no temporary name while it is written."""

    leaves_parts = False  # the store itself uses such names, which a killed process leaves

    @abstractmethod
    def write_whole(
        self,
        path: str,
        pieces: Iterable[bytes],
        size: int | None = None,
        mtime_ms: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Stream to the path, verified in transit.

        Call ``check`` when all is sent but nothing is visible yet. Errors before that, and in ``check``,
        leave the previous file unchanged.
        """


class ReadsVersions(ABC):
    """A store whose answers with a file's bytes also describe the file."""

    @abstractmethod
    def one_file(self) -> Store:
        """Return the same store for one file, which ``stat`` opens; later, it describes what was read."""


class ChecksBytes(ABC):
    """A store that verifies all bytes on arrival with checksums, so that no digest is needed."""

    @abstractmethod
    def read_checked(self, path: str, size: int) -> Iterator[bytes] | None:
        """Return the first ``size`` bytes, verified; None if that is not possible now."""

    @abstractmethod
    def write_checked(self, path: str, pieces: Iterable[bytes], size: int | None) -> bool:
        """Like ``write``, but verified; return False, with no piece read, if that is not possible now."""


class ReadsRanges(ABC):
    """A store with a faster way to read a large part of a file."""

    @abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """Yield the bytes in pieces, as ``read`` does."""


class ReadsChanges(ABC):
    """A store that does not transfer bytes which an older copy has."""

    @abstractmethod
    def read_changed(self, path: str, size: int, old: Callable[[int, int], bytes]) -> Iterator[bytes]:
        """Return the first ``size`` bytes, verified; ``old(offset, length)`` reads the older copy."""


class Appends(ABC):
    """A store where an interrupted file can be continued."""

    @abstractmethod
    def unfinished_size(self, path: str) -> int:
        """Return the size of a file whose writer died; 0 if it cannot be continued."""

    @abstractmethod
    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        """Append the bytes; after an error, those that arrived stay."""


class ReadsSmallFiles(ABC):
    """A store that returns a small file at once, so that it is copied to this machine with few calls."""

    @abstractmethod
    def read_small(self, path: str) -> bytes:
        """Return the content of the file, verified."""


class KeepsModes(ABC):
    """A store that keeps which files are executable, and which are private."""

    @abstractmethod
    def make_executable(self, path: str) -> None:
        """Make the file executable for everybody who may read it."""

    @property
    @abstractmethod
    def closed(self) -> Store:
        """The same store, where new files and folders are private from the beginning."""


class SetsModes(ABC):
    """A store whose entries have modes that can be set."""

    @abstractmethod
    def set_mode(self, path: str, mode: int) -> None:
        """Set the mode of the file or folder."""

    @abstractmethod
    def allowed(self, mode: int) -> int:
        """Return the mode without the permissions that the user's umask removes."""


Mounts = tuple[tuple[str, str], ...]
"""Shares that are mounted on this machine: (address or cluster/storage, folder)."""


@dataclass(frozen=True)
class StorageSpec:
    """Everything needed to open a storage of a cluster."""

    cluster: str  # alias
    name: str
    kind: str
    data: dict[str, Any] = field(repr=False)  # may contain an account key
    user: str = ""
    share: bool = True  # False: each user has a folder and sees only that
    home: str = ""  # the user's folder on a storage that has one for each user, though all are seen
    read_only: bool = False
    cluster_uri: str = ""
    verify: bool | str = True
    certificate: tuple[str, str] | None = None  # the files of the client's certificate and its key
    mounts: Mounts = ()
    renew: Callable[[], str] | None = field(default=None, repr=False)  # returns a new token
    is_own: bool = False
    """Whether the user or the embedded cluster named it.

    Only then may it be a folder on this machine, or be opened with keys in this machine's settings.
    """

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"storage {self.name!r} of {self.cluster!r}"

    def users_folder(self, root: str) -> str:
        """Return the user's folder below the root if each user has one, else the root itself."""
        return root if self.share else join(root, check_name(self.user, f"storage {self.name!r}"))


def is_closed(mode: int | None) -> bool:
    """Whether only the owner has any rights."""
    return mode is not None and not mode & 0o077


def is_name(text: str) -> bool:
    """Whether the text is a single name in a folder, which cannot point elsewhere."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text


def check_name(name: str, folder: str) -> str:
    """Return the name if it is a single valid name in a folder; raise otherwise."""
    if not is_name(name):
        raise PathError(f"{folder} lists the name {name!r}, which cannot be a file's; refused")
    return name


def join(folder: str, name: str) -> str:
    """Return the path of ``name`` (one or several names, relative) in the folder."""
    return f"{folder.rstrip('/')}/{name}"


def parent(path: str) -> str:
    """Return the parent folder of the path; the root's parent is the root."""
    return path.rstrip("/").rpartition("/")[0] or "/"


def base(path: str) -> str:
    """Return the last name of the path; empty for the root."""
    return path.rstrip("/").rpartition("/")[2]


def is_below(address: str, folder: str) -> bool:
    """Whether the address is that of the folder or of something in it."""
    return address == folder or address.startswith(folder.rstrip("/") + "/")


def require_utf8(path: str, who: str) -> None:
    """Raise for a path that is not valid UTF-8, for stores whose names are text."""
    if any("\ud800" <= letter <= "\udfff" for letter in path):
        raise PathError(f"{path}: the name is not valid UTF-8, which {who} cannot hold; rename it")


class Sha256:
    """The hasher for stores without a digest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, piece: bytes, /) -> None:
        self._hash.update(piece)

    def digest(self) -> Digest:
        return Digest(SHA256, self._hash.hexdigest())


def cut(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of one size; the last one may be shorter."""
    rest = bytearray()
    for piece in pieces:
        if not rest and len(piece) == size:
            yield piece
            continue
        rest += piece
        while len(rest) >= size:
            yield bytes(rest[:size])
            del rest[:size]
    if rest:
        yield bytes(rest)


def fingerprint(hasher: Hasher, pieces: Iterable[bytes]) -> Digest:
    """Return the digest of all pieces."""
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
