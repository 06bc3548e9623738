"""Values as the real server's JavaScript sees them: YAML words and tags, and the text of values.

Values are filled into commands, so numbers, lists and dates must have the same text as on the server.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import sys
from collections.abc import Callable
from typing import Any

SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""White space in JavaScript, which differs from Python's."""

TAG = "tag:yaml.org,2002:"
"""Prefix of the tags that are written ``!!str``, ``!!set`` and so on."""

_BASED = re.compile(r"([-+]?)(?:0b([01_]*[01])|0x([0-9a-fA-F_]*[0-9a-fA-F])|0([0-7_]*[0-7]))")
_WHOLE = re.compile(r"([-+]?)([0-9](?:[0-9_]*[0-9])?)((?::[0-5]?[0-9])*)")
_REAL = re.compile(
    r"[-+]?(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9_]+(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt]|[ \t]+)([0-9]{1,2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]*))?(?:[ \t]*(?:Z|([-+])([0-9]{1,2})(?::([0-9]{2}))?))?"
)
_DAYS = "Mon Tue Wed Thu Fri Sat Sun"
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_SAFE = 2**53
_NONE = object()
_FIRST = frozenset("~nNtTfF0123456789+-.")  # of every word that is not text


class InvalidTag(Exception):
    """Raised when the tag of a value is unknown or does not match it."""


class Timestamp(dict[str, Any]):
    """A date: in JavaScript an object without keys, with its own format."""

    def __init__(self, source: str, moment: datetime.datetime | None) -> None:
        super().__init__()
        self.source = source
        self.moment = moment  # None if out of range


class Binary(dict[str, Any]):
    """Bytes: in JavaScript an object with one key per byte, printed as text."""

    def __init__(self, content: bytes) -> None:
        super().__init__({str(index): byte for index, byte in enumerate(content)})
        self.content = content


def plain(text: str) -> Any:
    """Return the value of an unquoted word: null, a boolean, a number, a date, or the word itself."""
    if text and text[0] not in _FIRST:
        return text
    for meaning in (null, boolean, whole, real, timestamp):
        value = meaning(text)
        if value is not _NONE:
            return value
    return text


def null(text: str) -> Any:
    return None if text in ("", "~", "null", "Null", "NULL") else _NONE


def boolean(text: str) -> Any:
    if text in ("true", "True", "TRUE"):
        return True
    return False if text in ("false", "False", "FALSE") else _NONE


def whole(text: str) -> Any:
    """Read an integer: decimal, ``0b``, ``0x``, octal with a leading zero, or base 60 with colons."""
    based = _BASED.fullmatch(text)
    if based:
        digits = next(part for part in based.groups()[1:] if part).replace("_", "")
        return _signed(based[1], _narrow(int(digits, 2 if based[2] else 16 if based[3] else 8)))
    match = _WHOLE.fullmatch(text)
    if not match or (match[2][0] == "0" and len(match[2]) + len(match[3]) > 1):
        return _NONE
    value: int | float = _decimal(match[2].replace("_", ""))
    for part in match[3].split(":")[1:]:
        value = value * 60 + int(part)
    return _signed(match[1], value)


def real(text: str) -> Any:
    """Read a number with a fraction, an exponent or colons, infinity or NaN."""
    if not _REAL.fullmatch(text) or text.endswith("_"):
        return _NONE
    digits = text.replace("_", "").lower()
    sign, digits = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
    if digits == ".inf":
        return _signed(sign, math.inf)
    if digits == ".nan" or digits.startswith(".e"):
        return math.nan
    parts = reversed(digits.split(":"))  # summed from the end, as rounding depends on the order
    return _signed(sign, sum(float(part) * 60**power for power, part in enumerate(parts)))


def timestamp(text: str) -> Any:
    """Read a date or a date with a time, in UTC unless it has a zone."""
    match = _DATE.fullmatch(text) or _TIME.fullmatch(text)
    if not match:
        return _NONE
    year, month, day, *clock = match.groups()
    hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = (*clock, *[None] * 7)[:7]
    offset = int(zone_hours or 0) * 60 + int(zone_minutes or 0)
    years, months = divmod(int(month) - 1, 12)
    years += int(year) + (1900 if int(year) < 100 else 0)
    try:
        moment = datetime.datetime(years, months + 1, 1) + datetime.timedelta(
            days=int(day) - 1,
            hours=int(hours or 0),
            minutes=int(minutes or 0) - (-offset if sign == "-" else offset),
            seconds=int(seconds or 0),
            milliseconds=int((fraction or "")[:3].ljust(3, "0")),
        )
    except (ValueError, OverflowError):
        return Timestamp(text, None)
    return Timestamp(text, moment)


def binary(text: str) -> Any:
    """Read base64, ignoring line breaks and padding."""
    digits = re.sub(r"[\r\n=]", "", text)
    if len(digits) % 4 == 1:
        return _NONE
    try:
        return Binary(base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True))
    except (binascii.Error, ValueError):
        return _NONE


def tagged_scalar(tag: str, text: str, is_plain: bool) -> Any:
    """Convert a string to the type of its tag; an empty value can be an empty list or mapping."""
    if tag == "!":
        return text or (None if is_plain else "")
    name = tag.removeprefix(TAG) if tag.startswith(TAG) else ""
    if is_plain and not text and name in _EMPTY:
        return _EMPTY[name]()
    if name not in _SCALARS:
        raise InvalidTag(f"unknown tag {tag}")
    value = _SCALARS[name](text)
    if value is _NONE or (is_plain and not text and name == "binary"):
        raise InvalidTag(f"the value is not a valid {name}")
    return value


def tagged_collection(tag: str, value: Any) -> Any:
    """Convert a list or mapping to the type of its tag."""
    if tag == "!":
        return value
    kinds = _SEQUENCES if isinstance(value, list) else _MAPPINGS
    kind = kinds.get(tag.removeprefix(TAG)) if tag.startswith(TAG) else None
    if kind is None:
        raise InvalidTag(f"unknown tag {tag}")
    return kind(value)


def _ordered(items: list[Any]) -> list[Any]:
    """Check an ``!!omap``: a list of one-key mappings without duplicate keys."""
    keys = [next(iter(item)) for item in items if isinstance(item, dict) and len(item) == 1]
    if not len(keys) == len(items) == len(set(keys)):
        raise InvalidTag("the list is not a valid omap")
    return items


def _pairs(items: list[Any]) -> list[Any]:
    """Convert ``!!pairs`` to a list of two-item lists; keys may repeat."""
    if not all(isinstance(item, dict) and len(item) == 1 for item in items):
        raise InvalidTag("the list is not valid pairs")
    return [list(*item.items()) for item in items]


def _set(mapping: dict[str, Any]) -> dict[str, Any]:
    """Check a ``!!set``: a mapping whose values are all null."""
    if any(value is not None for value in mapping.values()):
        raise InvalidTag("the mapping is not a valid set")
    return mapping


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": null,
    "bool": boolean,
    "int": whole,
    "float": real,
    "timestamp": timestamp,
    "binary": binary,
    "merge": str,
}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"seq": lambda items: items, "omap": _ordered, "pairs": _pairs}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {"map": lambda mapping: mapping, "set": _set}
_EMPTY: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("seq", "omap", "pairs"), list),
    **dict.fromkeys(("map", "set"), dict),
    "merge": lambda: None,
}


def trim(text: str) -> str:
    """Strip JavaScript's white space."""
    return text.strip(SPACE)


def text_of(value: Any) -> str:
    """Convert a value to a string like JavaScript."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return _number_text(value)
    if isinstance(value, list):
        return ",".join("" if item is None else text_of(item) for item in value)
    if isinstance(value, Timestamp):
        return _date_text(value.moment)
    if isinstance(value, Binary):
        return value.content.decode("utf-8", "replace")
    return "[object Object]"


def is_whole(value: Any) -> bool:
    """Whether the value is an integer in JavaScript: 2.0 is, and so is infinity."""
    if isinstance(value, float):
        return value.is_integer() or math.isinf(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _signed(sign: str, value: int | float) -> int | float:
    return -value if sign == "-" else value


def _decimal(digits: str) -> int | float:
    value = float(digits)
    return int(value) if value <= _SAFE else value


def _narrow(value: int) -> int | float:
    """Round integers that are too large for a JavaScript number."""
    if value <= _SAFE:
        return value
    return float(value) if value.bit_length() <= 1023 else math.inf


def _number_text(number: int | float) -> str:
    if isinstance(number, int) and abs(number) <= _SAFE:
        return str(number)
    if not abs(number) <= sys.float_info.max:  # an integer of JSON may be larger
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    from decimal import Decimal

    sign, tuple_digits, exponent = Decimal(repr(float(number))).normalize().as_tuple()
    digits = "".join(map(str, tuple_digits))
    point = len(digits) + int(exponent)  # position of the decimal point in the digits
    return ("-" if sign else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Format digits with their decimal point, or in exponent form where JavaScript uses it."""
    if 0 < point <= 21:
        return digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def _date_text(moment: datetime.datetime | None) -> str:
    if moment is None:
        return "Invalid Date"
    day, month = _DAYS.split()[moment.weekday()], _MONTHS.split()[moment.month - 1]
    zone = "GMT+0000 (Coordinated Universal Time)"
    return f"{day} {month} {moment.day:02} {moment.year:04} {moment:%H:%M:%S} {zone}"
