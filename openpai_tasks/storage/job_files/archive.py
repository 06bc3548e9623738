"""Pack the sources of a job reproducibly: the same files always give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import IO, BinaryIO, cast

from openpai_tasks.errors import PathError
from openpai_tasks.files.tar_headers import LimitedHeaders, iter_members, open_tar
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import RUNTIME
from openpai_tasks.storage.job_files.sources import SourceFile
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.store import PIECE

MADE = 946_684_800
"""The time of every file in an archive: 2000-01-01, as `tar` and Python's wheels do not accept 1970."""
MOST_HEADERS = 64 << 20  # bytes, for 100,000 files
LEAST_LIMIT, MOST_TIMES = 1 << 30, 20
"""Bytes that every archive may unpack to, and how many times its own size."""
IN_MEMORY = 8 << 20  # bytes of an archive before it is moved to the disk


@dataclass(frozen=True)
class ArchiveMember:
    """A file in an archive; its digest covers its content and whether it is executable."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Archive:
    """A ``tar.gz``, named by the SHA-256 of its bytes; its members are the user's files, not our runtime."""

    sha256: str
    size: int
    members: tuple[ArchiveMember, ...]
    content: BinaryIO = field(repr=False, compare=False)

    @property
    def files(self) -> dict[str, str]:
        """The digest of each file by name."""
        return {member.name: member.digest for member in self.members}

    @property
    def unpacked(self) -> int:
        return sum(member.size for member in self.members)

    def pieces(self) -> Iterator[bytes]:
        self.content.seek(0)
        while piece := self.content.read(PIECE):
            yield piece


def pack(sources: Sequence[SourceFile]) -> Archive:
    """Pack these files: sorted by name, without times and owners, with their modes."""
    content = _scratch()
    ordered = sorted(sources, key=lambda source: source.name)
    try:
        # Level and header are fixed, so only another version of zlib can give other bytes for the same files.
        with gzip.GzipFile("", "wb", 6, content, mtime=0) as packed, _open_tar(packed) as tar:
            members = tuple([_add(tar, source) for source in ordered])
    except OSError as err:
        if isinstance(err, PathError):
            raise
        raise PathError(f"cannot pack the sources: {err.strerror or err}") from err
    return _archive(content, members)


def read_archive(pieces: Iterable[bytes], sha256: str) -> Archive:
    """Read an archive from a store and check it against its name."""
    content, digest = _scratch(), hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        content.write(piece)
    if digest.hexdigest() != sha256:
        raise CorruptData(f"the archive {sha256}.tar.gz is damaged: its sha256 is {digest.hexdigest()}")
    try:
        members = tuple([_member(info, file) for info, file in iter_files(content)])
    except (tarfile.TarError, OSError, EOFError, RecursionError, zlib.error) as err:
        raise PathError(f"the archive {sha256}.tar.gz cannot be read: {err}") from err
    return _archive(content, members)


def iter_files(content: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of an archive, which somebody may have crafted; each is read before the next."""
    largest = max(LEAST_LIMIT, MOST_TIMES * content.seek(0, os.SEEK_END))
    content.seek(0)
    with gzip.GzipFile(fileobj=content, mode="rb") as packed:
        file = LimitedHeaders(packed, MOST_HEADERS, largest)
        with open_tar(file) as tar:
            for info in iter_members(tar):
                if info.issparse() or info.size < 0:
                    raise PathError(f"{info.name!r} is sparse or has no valid size")
                file.check_end(info.offset_data + info.size)
                if info.isfile():
                    file.is_content = True
                    yield info, cast(IO[bytes], tar.extractfile(info))
                    file.is_content = False


def iter_own_files(content: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the user's files of an archive, without our runtime."""
    return ((info, file) for info, file in iter_files(content) if not _is_runtime(info.name))


def _is_runtime(name: str) -> bool:
    return name.startswith(f"{RUNTIME}/")


def _scratch() -> BinaryIO:
    return tempfile.SpooledTemporaryFile(IN_MEMORY)  # type: ignore[return-value]


def _open_tar(packed: gzip.GzipFile) -> tarfile.TarFile:
    """Write GNU's format: BusyBox's `tar` supports its long names, but not those of POSIX."""
    return tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8")


def _add(tar: tarfile.TarFile, source: SourceFile) -> ArchiveMember:
    info = tarfile.TarInfo(source.name)
    info.mtime = MADE
    try:
        with _open(source) as file:
            info.size, info.mode = source.size, 0o644
            if source.content is None:
                facts = os.fstat(file.fileno())
                info.size, info.mode = facts.st_size, facts.st_mode & 0o777
            hashed = _HashingFile(file, bool(info.mode & 0o100))
            tar.addfile(info, hashed)
            if file.read(1):
                raise PathError(f"the source {source.path} grows while it is read; try again")
    except PathError:
        raise
    except OSError as err:
        raise PathError(f"cannot pack the source {source.path}: {err.strerror or 'it changed'}") from err
    return ArchiveMember(source.name, info.size, hashed.digest.hexdigest())


def _open(source: SourceFile) -> BinaryIO:
    """Open a source, even if its links have changed since they were checked, inside its fence."""
    if source.content is not None:
        return io.BytesIO(source.content)
    inside = os.path.relpath(os.path.realpath(source.path), source.fence or None)
    if not source.fence or inside == os.curdir:  # the fence is the file itself
        return open(source.fence or source.path, "rb")
    return os.fdopen(LocalStore(source.fence).open_file(f"/{inside}"), "rb")


def _member(info: tarfile.TarInfo, file: IO[bytes]) -> ArchiveMember:
    return ArchiveMember(info.name, info.size, hash_file(file, bool(info.mode & 0o100)))


def hash_file(file: IO[bytes], can_run: bool) -> str:
    """Return the digest of a member with this content."""
    hashed = _HashingFile(file, can_run)
    while hashed.read(PIECE):
        pass
    return hashed.digest.hexdigest()


def _archive(content: BinaryIO, members: tuple[ArchiveMember, ...]) -> Archive:
    digest, size = hashlib.sha256(), 0
    content.seek(0)
    while piece := content.read(PIECE):
        digest.update(piece)
        size += len(piece)
    own = tuple(member for member in members if not _is_runtime(member.name))
    return Archive(digest.hexdigest(), size, own, content)


class _HashingFile(io.RawIOBase):
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes], can_run: bool) -> None:
        self._file, self.digest = file, hashlib.sha256(b"x" if can_run else b"-")

    def read(self, size: int = -1, /) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece
