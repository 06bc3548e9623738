"""Parse the entries of a folder, as an SMB server packs them ([MS-FSCC] 2.4.14)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from openpai_tasks.errors import PathError
from openpai_tasks.storage.smb import names
from openpai_tasks.storage.store import Entry, join

# next entry, index, created, accessed, written, changed, size, allocated, attributes, name's length, tag
_ROW = struct.Struct("<IIqqqqqqIII")
_BEFORE_1970 = 11_644_473_600_000  # milliseconds since 1601, the server's epoch
_TICKS = 10_000  # ticks of 100 ns in a millisecond
FOLDER, REPARSED = 0x10, 0x400
LINKS = (0xA000000C, 0xA0000003)  # symbolic link, mount point


def entries(batch: bytes, folder: str) -> Iterator[Entry]:
    """Parse the entries of a batch, without ``.`` and ``..``."""
    at, following = 0, -1
    while following:
        try:
            following, _, _, _, written, _, size, _, flags, length, tag = _ROW.unpack_from(batch, at)
        except struct.error as err:
            raise PathError(f"{folder}: the server's listing is broken") from err
        raw = batch[at + _ROW.size : at + _ROW.size + length]
        if raw not in (b".\0", b".\0.\0"):
            name = names.read(raw, folder)
            is_link = bool(flags & REPARSED) and tag in LINKS
            yield entry(name, join(folder, name), flags, size, written // _TICKS - _BEFORE_1970, is_link)
        at += following


def entry(name: str, path: str, flags: int, size: int, mtime_ms: int, is_link: bool = False) -> Entry:
    """Make an entry; a Windows link, which the client would have to follow, counts as special."""
    is_folder = bool(flags & FOLDER) and not is_link
    size = 0 if is_folder or is_link else size
    return Entry(name, path, is_folder, size, mtime_ms, is_link, is_special=is_link)


def filetime(mtime_ms: int) -> int:
    return (mtime_ms + _BEFORE_1970) * _TICKS
