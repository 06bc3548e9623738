"""Parts of files that are compared by MD5 and sent one by one, and the form in which they travel."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.paddlecloud.pfs.tree import PIECE, READ, WRITE, Names, Tree

BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
LEAST, MOST = 4 << 10, 32 << 20  # bytes of a chunk
LARGEST = 1 << 40  # bytes of a file
LARGEST_LISTED = 4 << 30  # bytes of a file whose chunks are all hashed in one call
BAD_SIZE, BAD_JSON, BAD_SUM = "chunksize error", "parse json error", "checksum error"
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NAME = re.compile(r'(?:^|;)\s*name="?chunk"?\s*(?:;|$)')
_FILENAME = re.compile(r';\s*filename="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class ChunkRange:
    """A part of a file, as requests name it."""

    path: str
    offset: int
    size: int
    md5: str = ""  # of the bytes; a chunk that differs is refused
    creates: bool = False  # the file, if it is missing
    file_size: int | None = None  # of the file, once the chunk is written
    mtime_ns: int | None = None  # as well
    into: str = ""  # the path that the file gets then

    @property
    def query(self) -> str:
        return urlencode({"chunksize": self.size, "offset": self.offset, "path": self.path})


def parse_range(query: Mapping[str, Any]) -> ChunkRange:
    """Return the range that ``path``, ``offset`` and ``chunksize`` name; ValueError if one is wrong."""
    path = next(iter(query.get("path", ())), "")
    offset, size = _number(query, "offset"), _number(query, "chunksize")
    if not path or offset is None or size is None:
        raise ValueError(BAD_JSON)
    if not 0 <= size <= MOST or not 0 <= offset <= LARGEST:
        raise ValueError(BAD_SIZE)
    md5, into = (next(iter(query.get(name, ())), "") for name in ("md5", "into"))
    file_size, mtime_ns = _number(query, "filesize"), _number(query, "modtime")
    return ChunkRange(path, offset, size, md5, "create" in query, file_size, mtime_ns, into)


def describe(tree: Tree, names: Names, offset: int, size: int) -> dict[str, Any]:
    """Return length and MD5 of a chunk; after the end of the file, those of nothing."""
    _check_size(size)
    with tree.open(names) as file:
        return _describe(file, offset, size)


def describe_all(tree: Tree, names: Names, size: int) -> list[dict[str, Any]]:
    """Return length and MD5 of all chunks of a file."""
    _check_size(size)
    with tree.open(names) as file:
        whole = os.fstat(file).st_size
        if whole > LARGEST_LISTED:
            raise ValueError(f"bad file size:{whole}")
        return [_describe(file, offset, size) for offset in range(0, whole, size)]


def read(tree: Tree, names: Names, part: ChunkRange) -> bytes:
    with tree.open(names, READ) as file:
        return b"".join(_pieces(file, part.offset, part.size))


def write(tree: Tree, names: Names, part: ChunkRange, data: bytes) -> dict[str, Any]:
    """Write the chunk, and return its length and MD5; refuse one that was damaged on its way."""
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if part.md5 not in ("", md5):
        raise ValueError(BAD_SUM)
    with tree.open(names, WRITE, part.creates) as file:
        view, offset = memoryview(data), part.offset
        while view:
            count = os.pwrite(file, view, offset)
            view, offset = view[count:], offset + count
        if part.file_size is not None and part.file_size >= offset:
            os.ftruncate(file, part.file_size)
        if part.mtime_ns is not None:
            os.utime(file, ns=(part.mtime_ns, part.mtime_ns))
    return {"offset": part.offset, "checksum": md5, "len": len(data)}


def frame(part: ChunkRange, data: bytes, epilogue: bytes) -> bytes:
    """Return a chunk as it travels; its name has the number of bytes that really follow."""
    name = ChunkRange(part.path, part.offset, len(data)).query
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{name}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return b"".join([head.encode(), data, f"\r\n--{BOUNDARY}--\r\n".encode(), epilogue])


def unframe(content_type: str, body: bytes) -> tuple[ChunkRange, bytes]:
    """Return the range and the bytes of an uploaded chunk; ValueError if the body has no such part.

    The length is given before the bytes, which therefore may contain anything, even the boundary.
    """
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    mark = b"--" + (found[1] if found else BOUNDARY).encode()
    at = body.find(mark)
    while at >= 0:
        end = body.find(b"\r\n\r\n", at)
        if end < 0:
            break
        head = body[at + len(mark) : end].decode("utf-8", "replace")
        if part := _parse_head(head):
            data = body[end + 4 : end + 4 + part.size]
            rest = body[end + 4 + len(data) :]
            if len(data) < part.size or not rest.startswith(b"\r\n" + mark):
                raise ValueError(f"the chunk does not have the {part.size} bytes that its name says")
            return part, data
        at = body.find(b"\r\n" + mark, end)
        at = at + 2 if at >= 0 else at
    raise ValueError(BAD_JSON)


def _parse_head(head: str) -> ChunkRange | None:
    """Return the range in the head of a part; None if it is another part."""
    for line in head.split("\r\n"):
        title, _, value = line.partition(":")
        if title.strip().lower() == "content-disposition" and _NAME.search(value):
            filename = _FILENAME.search(value)
            if filename is None:
                raise ValueError(BAD_JSON)
            return parse_range(parse_qs(re.sub(r"\\(.)", r"\1", filename[1])))
    return None


def _number(query: Mapping[str, Any], name: str) -> int | None:
    text = next(iter(query.get(name, ())), "")
    return int(text) if _NUMBER.fullmatch(text) else None


def _check_size(size: int) -> None:
    if not LEAST <= size <= MOST:
        raise ValueError(BAD_SIZE)


def _describe(file: int, offset: int, size: int) -> dict[str, Any]:
    found, length = hashlib.md5(usedforsecurity=False), 0
    for piece in _pieces(file, offset, size):
        found.update(piece)
        length += len(piece)
    return {"offset": offset, "checksum": found.hexdigest(), "len": length}


def _pieces(file: int, offset: int, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := os.pread(file, min(size, PIECE), offset)):
        offset, size = offset + len(piece), size - len(piece)
        yield piece
