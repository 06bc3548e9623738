"""Requests about one file or folder of a share, combined into as few messages as possible."""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
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

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.smb.connection import Step, exchange
from openpai_tasks.storage.smb.errors import NO_MORE_FILES, NO_SUCH_FILE

BATCH = 1 << 18  # bytes of a listing per message

_Access, _Options = FilePipePrinterAccessMask, CreateOptions
ALL = ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE


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


def once(tree: Any, name: str, way: OpenMode, *middle: Step) -> Any:
    """Open, do the steps and close in one message; return the handle and the answers."""
    handle = Open(tree, name)
    _, *answers, _ = exchange(tree, [opening(handle, way), *middle, handle.close(send=False)])
    return handle, answers


@contextlib.contextmanager
def opened(tree: Any, name: str, way: OpenMode) -> Iterator[Any]:
    """Yield the open file; close it at the end."""
    handle = Open(tree, name)
    exchange(tree, [opening(handle, way)])
    with closing(handle):
        yield handle


@contextlib.contextmanager
def closing(handle: Any) -> Iterator[None]:
    with abandoned(handle):
        yield
    handle.close()


@contextlib.contextmanager
def abandoned(handle: Any) -> Iterator[None]:
    """Close the file if the block fails; an error while closing never hides the first one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(SMBException, OSError):
            handle.close()
        raise


def looked_up(tree: Any, name: str) -> Any:
    """Return its current size, time and attributes."""
    return once(tree, name, LOOK)[0]


def renamed(tree: Any, name: str, target: str, replace: bool) -> None:
    text = target.encode("utf-16-le")
    content = struct.pack("<B7xQI", replace, 0, len(text)) + text
    once(tree, name, MOVE, _setting(FileInformationClass.FILE_RENAME_INFORMATION, content))


def removed(tree: Any, name: str) -> None:
    once(tree, name, MOVE, _setting(FileInformationClass.FILE_DISPOSITION_INFORMATION, b"\1"))


def dated(tree: Any, name: str, filetime: int) -> None:
    """Set the modification time; 0 leaves the other times unchanged."""
    content = struct.pack("<qqqqII", 0, 0, filetime, 0, 0, 0)
    once(tree, name, DATE, _setting(FileInformationClass.FILE_BASIC_INFORMATION, content))


def listed(tree: Any, name: str, pattern: str = "*") -> tuple[Any, Iterator[bytes]]:
    """Return the open folder, to be closed by the caller, and its packed entries.

    The first batch is fetched.
    """
    handle = Open(tree, name)
    exchange(tree, [opening(handle, LIST)])
    batches = _batches(tree, handle, pattern)
    with abandoned(handle):
        first = next(batches, b"")
    return handle, itertools.chain([first] if first else [], batches)


def _batches(tree: Any, handle: Any, pattern: str) -> Iterator[bytes]:
    size = min(BATCH, tree.session.connection.max_transact_size)
    flags = QueryDirectoryFlags.SMB2_RESTART_SCANS
    while True:
        kind = FileInformationClass.FILE_FULL_DIRECTORY_INFORMATION
        message, _ = handle.query_directory(pattern, kind, flags, max_output=size, send=False)
        try:
            (answer,) = exchange(tree, [(message, tree.session.connection.receive)])
        except SMBResponseException as err:
            if err.status in (NO_MORE_FILES, NO_SUCH_FILE):
                return
            raise
        found = SMB2QueryDirectoryResponse()
        found.unpack(answer["data"].get_value())
        yield found["buffer"].get_value()
        flags = 0


def opening(handle: Any, way: OpenMode) -> Step:
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
