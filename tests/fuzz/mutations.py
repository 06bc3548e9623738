"""Changed inputs: bytes that are cut, repeated, replaced or mixed, and JSON with other values in it."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence

from tests.properties.mutations import BROKEN, ODD, changed, places, text_of

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    256,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 62,
)
FORMS = ("<B", ">H", "<H", ">I", "<I", ">Q", "<Q")
TOKENS = (
    *(b"", b"\0", b"\r\n", b"\n", b"\r\n\r\n", b"\xff" * 10, b"\x80" * 20, b"\xe2\x80\xae", b"\x1b[2J"),
    *(
        b"-1",
        b"0",
        b"1",
        b"1e999",
        b"NaN",
        b"99999999999999999999",
        b"9" * 5000,
        b"null",
        b"{}",
        b"[]",
        b'""',
    ),
    *(b"../", b"/", b"//", b"..", b".", b"~", b"%00", b"%2e%2e%2f", b"*", b"?", b"&a", b"*a", b": ", b"- "),
    *(b"[" * 2000, b"{" * 2000, b"(" * 2000, b"<a>" * 500, b" " * 3000, b"a" * 3000, b"&amp;", b"<!--"),
    *("é".encode(), b"\xed\xa0\x80", b"\xff\xfe", b"\xef\xbb\xbf"),
)


def mutate(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Change an input in one to four places."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        changed_json = _change_json(data, chance) if chance.random() < 0.5 else None
        data = _change_bytes(data, chance, others) if changed_json is None else changed_json
    return data


def _change_bytes(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice((0, 1, 2, 4, 8, 16, 64, 1000)))
    part, how = data[start:end], chance.randrange(8)
    if how == 0:
        return data[:start]
    if how == 1:
        other = chance.choice(others) if others else b""
        return data[:start] + other[chance.randrange(len(other) + 1) :]
    if how == 2:
        part = b""
    elif how == 3:
        part = part * chance.choice((2, 3, 100))
    elif how == 4:
        part = chance.choice(TOKENS)
    elif how == 5:
        form, number = chance.choice(FORMS), chance.choice(NUMBERS)
        part = struct.pack(form, number % (1 << 8 * struct.calcsize(form)))
        end = min(len(data), start + len(part))
    elif how == 6:
        part = bytes(byte ^ 1 << chance.randrange(8) for byte in part)
    else:
        part = chance.randbytes(len(part))
    return data[:start] + part + data[end:]


def _change_json(data: bytes, chance: random.Random) -> bytes | None:
    """Change a value of the JSON at the end of the input; None if there is none."""
    starts = [at for at in (data.find(b"{"), data.find(b"[")) if at >= 0]
    if not starts:
        return None
    head, text = data[: min(starts)], data[min(starts) :]
    try:
        value = json.loads(text)
        if chance.random() < 0.02:
            return head + chance.choice(BROKEN)
        how = chance.choice(("set", "set", "set", "drop", "add"))
        odd = json.loads(json.dumps(chance.choice(ODD)))
        return head + text_of(changed(value, chance.choice(places(value)), how, odd)).encode()
    except (ValueError, RecursionError):
        return None
