"""The content of answers, read up to a limit that counts decompressed bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from openpai_tasks.net.http1 import HttpAnswer

PIECE = 1 << 16
KB, MB = 1 << 10, 1 << 20

ERROR = 64 * KB
USUAL = 1 * MB
DOCUMENT = 4 * MB
JOB = 16 * MB  # a job lists all its tasks, about 1 KB each
JOB_LIST = 32 * MB  # from servers without pages
JOB_ROW = 4 * KB  # from servers with pages
LOG_PAGE = 64 * MB


class InvalidBody(Exception):
    """Raised for content that is too large, or that uses a compression that was not requested."""


def whole(response: HttpAnswer, limit: int) -> bytes:
    """Return the whole content; stop reading as soon as it exceeds the limit."""
    found = bytearray()
    response.allow(limit)
    for piece in _decoded(response):
        found += piece
        if len(found) > limit:
            raise InvalidBody(f"it is larger than {_size(limit)}")
    return bytes(found)


def beginning(response: HttpAnswer) -> bytes:
    """Return the content of an error answer, or nothing if it cannot be read."""
    try:
        return whole(response, ERROR)
    except InvalidBody:
        return b""


def as_sent(response: HttpAnswer) -> Iterator[bytes]:
    """Yield the bytes of a stream, which is requested without compression."""
    _check_uncompressed(response)
    yield from response.pieces()


def _size(limit: int) -> str:
    return f"{limit / MB:.3g} MB" if limit >= MB else f"{limit // KB} KB"


def _check_uncompressed(response: HttpAnswer) -> None:
    if encoding := _encoding(response):
        raise InvalidBody(f"the content encoding {encoding[:40]!r} was not asked for")


def _encoding(response: HttpAnswer) -> str:
    return response.headers.get("content-encoding", "").strip().lower().removeprefix("identity")


def _decoded(response: HttpAnswer) -> Iterator[bytes]:
    if _encoding(response) not in ("gzip", "x-gzip"):
        _check_uncompressed(response)
        yield from response.stream(PIECE)
        return
    inflater, has_come = zlib.decompressobj(zlib.MAX_WBITS | 16), False
    for piece in response.stream(PIECE):
        while piece:
            has_come = True
            if inflater.eof:  # another gzip member follows
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield inflater.decompress(piece, PIECE)
            except zlib.error as err:
                raise InvalidBody(f"broken gzip: {err}") from err
            piece = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if has_come and not inflater.eof:
        raise InvalidBody("broken gzip: it ends early")
