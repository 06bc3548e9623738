"""TensorFlow's ``tf.train.Example``, as much of its protobuf as a file needs.

Example { features 1: Features { feature 1: map<string, Feature> } }, a map being entries of key 1 and
value 2; Feature { bytes_list 1 | float_list 2 | int64_list 3 }, each with the values as its field 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.protobuf import BYTES, FIXED32, FIXED64, VARINT, take_varint, varint

BYTES_LIST, INT64_LIST = 1, 3


def head(features: dict[str, bytes | int], last: str, size: int) -> bytes:
    """Return the part of an Example that precedes the ``size`` bytes of its last feature."""
    entries = b"".join(_entry(name, value) for name, value in features.items())
    final = _bytes_entry(last, size)
    return _begin(1, len(entries) + len(final) + size) + entries + final


def _begin(field: int, size: int) -> bytes:
    """Return the tag and length of a field of ``size`` bytes."""
    return varint(field << 3 | BYTES) + varint(size)


def _entry(name: str, value: bytes | int) -> bytes:
    if isinstance(value, bytes):
        return _bytes_entry(name, len(value)) + value
    packed = varint(value)
    return _map_entry(name, INT64_LIST, _begin(1, len(packed)) + packed, 0)


def _bytes_entry(name: str, size: int) -> bytes:
    return _map_entry(name, BYTES_LIST, _begin(1, size), size)


def _map_entry(name: str, kind: int, begun: bytes, more: int) -> bytes:
    """Return the entry of a feature whose list begins with ``begun`` and continues with ``more`` bytes."""
    feature = _begin(kind, len(begun) + more) + begun
    value = _begin(2, len(feature) + more) + feature
    key = name.encode()
    body = _begin(1, len(key)) + key + value
    return _begin(1, len(body) + more) + body


@dataclass(frozen=True)
class Span:
    """The position of a value's bytes in a record."""

    start: int
    end: int


def features(record: bytes) -> dict[str, Span | int]:
    """Return the first value of each feature: the position of bytes, or the number of integers."""
    found: dict[str, Span | int] = {}
    for outer in _spans(record, Span(0, len(record)), 1):
        for entry in _spans(record, outer, 1):
            key = next(_spans(record, entry, 1), None)
            value = next(_spans(record, entry, 2), None)
            if key is None or value is None:
                continue
            first = _first(record, value)
            if first is not None:
                found[record[key.start : key.end].decode("utf-8", "replace")] = first
    return found


def _first(record: bytes, feature: Span) -> Span | int | None:
    for values in _spans(record, feature, BYTES_LIST):
        return next(_spans(record, values, 1), None)
    for values in _spans(record, feature, INT64_LIST):
        for span in _spans(record, values, 1):
            return _signed(take_varint(record[span.start : span.end], 0)[0])
    return None


def _spans(record: bytes, within: Span, wanted: int) -> Iterator[Span]:
    """Yield the positions of the fields with this number in a message; raise ValueError if it is invalid."""
    at = within.start
    while at < within.end:
        tag, at = take_varint(record, at)
        start, end = _extent(record, tag & 7, at)
        if end > within.end or tag >> 3 == 0:
            raise ValueError("not a protobuf message")
        if tag >> 3 == wanted:
            yield Span(start, end)
        at = end


def _extent(record: bytes, kind: int, at: int) -> tuple[int, int]:
    if kind == BYTES:
        size, start = take_varint(record, at)
        return start, start + size
    if kind == VARINT:
        return at, take_varint(record, at)[1]
    if kind in (FIXED64, FIXED32):
        return at, at + (8 if kind == FIXED64 else 4)
    raise ValueError("not a protobuf message")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
