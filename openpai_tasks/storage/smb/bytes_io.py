"""Read and write one file of a share, with a few messages in flight and in memory."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from smbprotocol.exceptions import SMBException, SMBResponseException  # type: ignore[import-untyped]
from smbprotocol.open import Open  # type: ignore[import-untyped]

from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.smb.connection import Step, exchange
from openpai_tasks.storage.smb.errors import END_OF_FILE
from openpai_tasks.storage.smb.files import READ, WRITE, look_up, open_step

BLOCK = 1 << 20  # bytes per message, if the server allows it
WINDOW = 4  # messages of one file in transit at once

Waiting = deque[tuple[int, Any]]
"""The number of bytes of each message, and the sent request with the reader of its answer."""


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


def blocks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of one size; the last may be shorter, and no bytes give an empty one."""
    rest = bytearray()
    came = False
    for piece in pieces:
        if not rest and len(piece) == size:
            yield bytes(piece)
            came = True
            continue
        rest += piece
        while len(rest) >= size:
            yield bytes(rest[:size])
            came = True
            del rest[:size]
    if rest or not came:
        yield bytes(rest)


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
