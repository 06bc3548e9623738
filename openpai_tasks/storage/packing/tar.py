"""Shards that every ``tar`` can read, named like those of WebDataset."""

from __future__ import annotations

import functools
import tarfile
import zlib
from typing import BinaryIO

from openpai_tasks.errors import PathError
from openpai_tasks.files.tar_headers import LimitedHeaders, iter_members, open_tar
from openpai_tasks.storage.packing.index import Index, Row, check_member_name
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.shards import Encoder, Format

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
NAME, SIZE, TIME = 100, 0o77777777777, 0o77777777777 * 1000
"""Limits of a member with a single header: characters, bytes, milliseconds."""
NOBODY = 2 * b"0000000\0"
"""The numbers of user and group, or of a device."""
LAST = {
    kind: kind + bytes(100) + tarfile.POSIX_MAGIC + bytes(64) + NOBODY + bytes(155 + 12)
    for kind in (tarfile.REGTYPE, tarfile.DIRTYPE)
}
"""The end of a header, after the checksum: the type, and fields that are not used."""
SUMS = {kind: sum(last) + 8 * ord(" ") for kind, last in LAST.items()}
"""The part of the end in the checksum, which is computed with blanks in its own field."""


class TarEncoder(Encoder):
    """A POSIX (pax) archive without owners, so that the same tree gives the same bytes for everybody."""

    def before(self, member: PackMember, position: int) -> bytes:
        """Return the header; the usual one is made here, ten times as fast as with ``tarfile``."""
        name, _, is_folder, size, mtime_ms, mode, _ = member
        if is_folder:
            name += "/"
        if name.isascii() and len(name) <= NAME and size <= SIZE and 0 <= mtime_ms < TIME:
            first = name.encode().ljust(NAME, b"\0") + _numbers(mode, size, mtime_ms // 1000)
            return first + _end(zlib.adler32(first) & 0xFFFF, is_folder)
        facts = tarfile.TarInfo(member.name)
        facts.size, facts.mode, facts.mtime = member.size, member.mode, member.mtime_ms // 1000
        facts.type = tarfile.DIRTYPE if member.is_folder else tarfile.REGTYPE
        return facts.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def after(self, member: PackMember) -> bytes:
        return bytes(-member.size % BLOCK)

    def tail(self) -> bytes:
        return END


@functools.lru_cache(1 << 10)
def _numbers(mode: int, size: int, seconds: int) -> bytes:
    return b"%07o\0%b%011o\0%011o\0" % (mode, NOBODY, size, seconds)


@functools.lru_cache(1 << 10)
def _end(adler: int, is_folder: bool) -> bytes:
    """Return the checksum and the rest; the low half of Adler-32 is one more than the sum of few bytes."""
    kind = tarfile.DIRTYPE if is_folder else tarfile.REGTYPE
    return b"%06o\0 %b" % (adler - 1 + SUMS[kind], LAST[kind])


def _measure(member: PackMember) -> int:
    return BLOCK + member.size + -member.size % BLOCK


def _scan(file: BinaryIO, url: str, shard: int, index: Index) -> None:
    try:
        with open_tar(LimitedHeaders(file)) as archive:
            for facts in iter_members(archive):
                _found(facts, url, shard, index)
            end = archive.offset
    except (tarfile.TarError, RecursionError) as err:
        raise PathError(f"{url}: not a tar archive, or a damaged one ({err})") from err
    if file.seek(0, 2) <= end:
        raise PathError(f"{url}: the end is missing; the archive was cut")


def _found(facts: tarfile.TarInfo, url: str, shard: int, index: Index) -> None:
    name = facts.name.removeprefix("./").rstrip("/") if facts.isdir() else facts.name.removeprefix("./")
    mode = facts.mode & 0o777
    if facts.isdir():
        if name not in ("", "."):
            index.add_folder(check_member_name(name, url), mode)
    elif not facts.isreg() or facts.issparse() or facts.size < 0:
        raise PathError(f"{url} contains {name!r}, which is neither a plain file nor a folder; refused")
    else:
        mtime = int(facts.mtime * 1000)
        index.add(Row(check_member_name(name, url), shard, facts.offset_data, facts.size, mode, mtime))


FORMAT = Format(".tar", TarEncoder, _measure, _scan, holds_folders=True)
