"""The parts of Protocol Buffers that HDFS's native protocol and TFRecord files need: fields, no schema."""

from __future__ import annotations

import struct
from collections.abc import Callable

Field = bytes | str | int
Fields = dict[int, list["bytes | int"]]
"""The fields of a message; of a field that is not repeated, the last value counts."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10  # bytes
LARGEST_READ = 1 << 20  # bytes of a message from a stream; those of data nodes have some hundred
ONE_BYTE = [bytes([number]) for number in range(128)]


class InvalidMessage(ValueError):
    """Raised for bytes that are not a valid message."""


def varint(number: int) -> bytes:
    if 0 <= number < 128:
        return ONE_BYTE[number]
    out = bytearray()
    number &= (1 << 64) - 1  # a negative number takes ten bytes
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> int:
    """Encode a signed number."""
    return number << 1 if number >= 0 else ~(number << 1)


def message(*fields: tuple[int, Field | None]) -> bytes:
    """Return the bytes of a message; fields that are None are left out."""
    out = bytearray()
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            out += varint(number << 3 | VARINT) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | BYTES) + varint(len(data)) + data
    return bytes(out)


def delimited(data: bytes) -> bytes:
    """Return the message with its length in front."""
    return varint(len(data)) + data


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at this position, and the position after it."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InvalidMessage("a number without an end")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def take_message(data: bytes, at: int = 0) -> tuple[bytes, int]:
    """Return the delimited message at this position, and the position after it."""
    size, at = take_varint(data, at)
    if at + size > len(data):
        raise InvalidMessage("a message without an end")
    return data[at : at + size], at + size


def fields(data: bytes) -> Fields:
    """Parse a message into numbers, and the bytes of strings and messages.

    Most numbers have one byte and are read inline: a small file takes about 300 of them.
    """
    found: Fields = {}
    at, end = 0, len(data)
    try:
        while at < end:
            key, at = (data[at], at + 1) if data[at] < 128 else take_varint(data, at)
            kind = key & 7
            value: bytes | int
            if kind == VARINT:
                value, at = (data[at], at + 1) if data[at] < 128 else take_varint(data, at)
            elif kind == BYTES:
                size, at = (data[at], at + 1) if data[at] < 128 else take_varint(data, at)
                value, at = data[at : at + size], at + size
            else:
                value, at = _fixed(data, at, kind)
            if key >> 3 in found:
                found[key >> 3].append(value)
            else:
                found[key >> 3] = [value]
    except IndexError as err:
        raise InvalidMessage("a number without an end") from err
    if at > end:
        raise InvalidMessage("a message without an end")
    return found


def number(found: Fields, field: int, default: int = 0) -> int:
    value = found[field][-1] if field in found else default
    if not isinstance(value, int):
        raise InvalidMessage(f"field {field} is no number")
    return value


def inner(found: Fields, field: int) -> bytes:
    """Return the bytes of a string or message; empty if it is missing."""
    value = found[field][-1] if field in found else b""
    if not isinstance(value, bytes):
        raise InvalidMessage(f"field {field} has no bytes")
    return value


def text(found: Fields, field: int) -> str:
    return inner(found, field).decode("utf-8", "replace")


def read_message(read: Callable[[int], bytes]) -> bytes:
    """Read a delimited message; ``read`` returns exactly the requested number of bytes."""
    head = read(1)
    while head[-1] > 127 and len(head) < LONGEST_VARINT:
        head += read(1)
    size, _ = take_varint(head, 0)
    if size > LARGEST_READ:
        raise InvalidMessage(f"a message of {size} bytes")
    return read(size)


def _fixed(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind not in (FIXED64, FIXED32):
        raise InvalidMessage(f"a field of kind {kind}")
    form, size = ("<q", 8) if kind == FIXED64 else ("<i", 4)
    try:
        return int(struct.unpack_from(form, data, at)[0]), at + size
    except struct.error as err:
        raise InvalidMessage("a number without an end") from err
