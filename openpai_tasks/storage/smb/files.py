"""Requests about one file or folder of a share, combined into as few messages as possible.

The bytes of a file are read and written with a few messages in flight and in memory.
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

from smbprotocol.exceptions import SMBException, SMBResponseException  # type: ignore[import-untyped]
from smbprotocol.file_info import FileInformationClass, InfoType  # type: ignore[import-untyped]
from smbprotocol.open import (  # type: ignore[import-untyped]
    CreateDisposition,
    CreateOptions,
    FilePipePrinterAccessMask,
    ImpersonationLevel,
    Open,
    QueryDirectoryFlags,
    ShareAccess,
    SMB2QueryDirectoryResponse,
    SMB2SetInfoRequest,
)

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.smb import names
from openpai_tasks.storage.smb.connection import Step, exchange
from openpai_tasks.storage.smb.errors import END_OF_FILE, NO_MORE_FILES, NO_SUCH_FILE
from openpai_tasks.storage.store import Entry, join

BATCH = 1 << 18  # bytes of a listing per message
BLOCK = 1 << 20  # bytes per message, if the server allows it
WINDOW = 4  # messages of one file in transit at once

Waiting = deque[tuple[int, Any]]
"""The number of bytes of each message, and the sent request with the reader of its answer."""

_Access, _Options = FilePipePrinterAccessMask, CreateOptions
ALL = ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE
# next entry, index, created, accessed, written, changed, size, allocated, attributes, name's length, tag
_ROW = struct.Struct("<IIqqqqqqIII")
_BEFORE_1970 = 11_644_473_600_000  # milliseconds since 1601, the server's epoch
_TICKS = 10_000  # ticks of 100 ns in a millisecond
FOLDER, REPARSED = 0x10, 0x400
LINKS = (0xA000000C, 0xA0000003)  # symbolic link, mount point


@dataclass(frozen=True)
class OpenMode:
    """How to open a file or folder; others may use it at the same time."""

    access: int
    options: int = 0
    disposition: int = CreateDisposition.FILE_OPEN


LOOK = OpenMode(_Access.FILE_READ_ATTRIBUTES)
LIST = OpenMode(_Access.FILE_READ_DATA, _Options.FILE_DIRECTORY_FILE)  # for a folder, this bit means: list it
READ = OpenMode(_Access.FILE_READ_DATA | _Access.FILE_READ_ATTRIBUTES, _Options.FILE_NON_DIRECTORY_FILE)
WRITE = OpenMode(
    _Access.FILE_WRITE_DATA | _Access.FILE_READ_ATTRIBUTES,
    _Options.FILE_NON_DIRECTORY_FILE,
    CreateDisposition.FILE_OVERWRITE_IF,
)
MAKE = OpenMode(_Access.FILE_READ_ATTRIBUTES, _Options.FILE_DIRECTORY_FILE, CreateDisposition.FILE_CREATE)
MOVE = OpenMode(_Access.DELETE | _Access.FILE_READ_ATTRIBUTES, _Options.FILE_OPEN_REPARSE_POINT)
DATE = OpenMode(_Access.FILE_WRITE_ATTRIBUTES)


def run_once(tree: Any, name: str, way: OpenMode, *middle: Step) -> Any:
    """Open, do the steps and close in one message; return the handle and the answers."""
    handle = Open(tree, name)
    _, *answers, _ = exchange(tree, [open_step(handle, way), *middle, handle.close(send=False)])
    return handle, answers


@contextlib.contextmanager
def opened(tree: Any, name: str, way: OpenMode) -> Iterator[Any]:
    """Yield the open file and close it; an error while closing never hides that of the block."""
    handle = Open(tree, name)
    exchange(tree, [open_step(handle, way)])
    try:
        yield handle
    except BaseException:
        with contextlib.suppress(SMBException, OSError):
            handle.close()
        raise
    handle.close()


def look_up(tree: Any, name: str) -> Any:
    """Return its current size, time and attributes."""
    return run_once(tree, name, LOOK)[0]


def rename(tree: Any, name: str, target: str, replace: bool) -> None:
    text = target.encode("utf-16-le")
    content = struct.pack("<B7xQI", replace, 0, len(text)) + text
    run_once(tree, name, MOVE, _setting(FileInformationClass.FILE_RENAME_INFORMATION, content))


def remove(tree: Any, name: str) -> None:
    run_once(tree, name, MOVE, _setting(FileInformationClass.FILE_DISPOSITION_INFORMATION, b"\1"))


def set_mtime(tree: Any, name: str, filetime: int) -> None:
    """Set the modification time; 0 leaves the other times unchanged."""
    content = struct.pack("<qqqqII", 0, 0, filetime, 0, 0, 0)
    run_once(tree, name, DATE, _setting(FileInformationClass.FILE_BASIC_INFORMATION, content))


def list_entries(tree: Any, name: str, folder: str, pattern: str = "*") -> Generator[Entry, None, None]:
    """Yield the entries of the folder ``name`` that match the pattern; errors call it ``folder``."""
    with opened(tree, name, LIST) as handle:
        size = min(BATCH, tree.session.connection.max_transact_size)
        kind, flags = (
            FileInformationClass.FILE_FULL_DIRECTORY_INFORMATION,
            QueryDirectoryFlags.SMB2_RESTART_SCANS,
        )
        while True:
            message, _ = handle.query_directory(pattern, kind, flags, max_output=size, send=False)
            try:
                (answer,) = exchange(tree, [(message, tree.session.connection.receive)])
            except SMBResponseException as err:
                if err.status in (NO_MORE_FILES, NO_SUCH_FILE):
                    return
                raise
            found = SMB2QueryDirectoryResponse()
            found.unpack(answer["data"].get_value())
            yield from entries(found["buffer"].get_value(), folder)
            flags = 0


def open_step(handle: Any, way: OpenMode) -> Step:
    """Return the message that opens the file."""
    step: Step = handle.create(
        ImpersonationLevel.Impersonation, way.access, 0, ALL, way.disposition, way.options, send=False
    )
    return step


def _setting(kind: int, content: bytes) -> Step:
    message = SMB2SetInfoRequest()
    message["info_type"] = InfoType.SMB2_0_INFO_FILE
    message["file_info_class"] = kind
    message["file_id"] = Open._RELATED_COMPOUND_FILE_ID
    message["buffer"] = content
    return message, lambda request: request._connection.receive(request)


def entries(batch: bytes, folder: str) -> Iterator[Entry]:
    """Parse the entries of a batch, without ``.`` and ``..``."""
    at, following, broken = 0, -1, PathError(f"{folder}: the server's listing is broken")
    while following:
        if at + _ROW.size > len(batch):
            raise broken
        following, _, _, _, written, _, size, _, flags, length, tag = _ROW.unpack_from(batch, at)
        raw = batch[at + _ROW.size : at + _ROW.size + length]
        if len(raw) < length or size < 0:
            raise broken
        if raw not in (b".\0", b".\0.\0"):
            name = names.decode(raw, folder)
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


# The bytes of a file


def read_small(tree: Any, name: str, offset: int, length: int) -> tuple[bytes, int]:
    """Return a part that fits into one message, and the size of the file."""
    handle = Open(tree, name)
    steps = [open_step(handle, READ), handle.read(offset, length, send=False), handle.close(send=False)]
    try:
        return exchange(tree, steps)[1], handle.end_of_file
    except SMBResponseException as err:
        if err.status == END_OF_FILE:
            return b"", 0
        raise


def read_ahead(tree: Any, handle: Any, offset: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of an open file, with read-ahead."""
    size, waiting = block_size(tree), Waiting()
    try:
        while waiting or offset < end:
            while offset < end and len(waiting) < WINDOW:
                count = min(size, end - offset)
                waiting.append((count, _send(tree, handle.read(offset, count, send=False))))
                offset += count
            count, (request, read) = waiting.popleft()
            piece = _piece(request, read)
            if piece:
                yield piece
            if len(piece) < count:  # the file became shorter; the caller asks again for the rest
                return
    finally:
        _drain(waiting)


class SmbUpload:
    """A file that is being written, with a few blocks in flight."""

    def __init__(self, tree: Any, name: str) -> None:
        self._tree, self._handle, self._offset = tree, Open(tree, name), 0
        self._waiting = Waiting()
        exchange(tree, [open_step(self._handle, WRITE)])

    def send(self, block: bytes) -> None:
        message = self._handle.write(block, self._offset, send=False)
        self._waiting.append((len(block), _send(self._tree, message)))
        self._offset += len(block)
        if len(self._waiting) >= WINDOW:
            self._confirm()

    def finish(self) -> None:
        while self._waiting:
            self._confirm()
        self._handle.close(get_attributes=True)
        _check_size(self._tree, self._handle, self._offset)

    def abandon(self) -> None:
        _drain(self._waiting)
        with contextlib.suppress(SMBException, OSError):
            self._handle.close()

    def _confirm(self) -> None:
        """Read the answer to the oldest block."""
        count, (request, read) = self._waiting.popleft()
        _compare(read(request), count)


def write_small(tree: Any, name: str, content: bytes) -> None:
    """Write a small file in one message."""
    handle = Open(tree, name)
    middle = [handle.write(content, 0, send=False)] if content else []
    answers = exchange(tree, [open_step(handle, WRITE), *middle, handle.close(True, send=False)])
    if content:
        _compare(answers[1], len(content))
    _check_size(tree, handle, len(content))


def block_size(tree: Any) -> int:
    line = tree.session.connection
    return int(min(BLOCK, line.max_read_size, line.max_write_size))


def _send(tree: Any, step: Step) -> tuple[Any, Any]:
    message, read = step
    session = tree.session
    return session.connection.send(message, session.session_id, tree.tree_connect_id), read


def _piece(request: Any, read: Any) -> bytes:
    try:
        piece: bytes = read(request)
    except SMBResponseException as err:
        if err.status == END_OF_FILE:
            return b""
        raise
    return piece


def _compare(written: int, count: int) -> None:
    if written != count:
        raise SMBException(f"{written} bytes were written of {count}")


def _check_size(tree: Any, handle: Any, size: int) -> None:
    """Check the length of the file that was just closed; request it if the answer lacks it."""
    if handle.end_of_file != size:
        found = look_up(tree, handle.file_name).end_of_file
        if found != size:
            path = "/" + handle.file_name.replace("\\", "/")
            raise CorruptData(f"{path}: {found} bytes arrived of {size}")


def _drain(waiting: Waiting) -> None:
    """Receive unwanted answers, which would stay in memory otherwise."""
    while waiting:
        _, (request, read) = waiting.popleft()
        with contextlib.suppress(SMBException, OSError):
            read(request)
