"""Real responses with something wrong in them."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

HUGE = "@1e999@"  # JSON has such numbers; Python writes them otherwise


def steady(examples: int) -> Any:
    """Use the same examples each time, without a deadline because machines differ in speed."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def deep(levels: int, is_list: bool = True) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value] if is_list else {"a": value}
    return value


NUMBERS = [0, -1, 1, 3, 1.5, 1 << 63, 10**400, -(10**400), HUGE, float("nan"), float("-inf")]
TEXTS = ["", " ", "x" * 20_000, "\ud800", "a\udfff\ud800b", "\0", "a\nb\x1b[31m", "\u202e", "%", "{0}", "1"]
NAMES = [
    "../../x",
    "/etc/passwd",
    "-oProxyCommand=x",
    "http://[",
    "javascript:1",
    "file:///x",
    "a b",
    "a~b",
    "~",
]
WORDS = ["9999-99-99T99:99:99Z", "2024-02-30", "WAITING", "RUNNING", "FAILED", "******", "<% $x %>", "9" * 50]
NESTED = [
    [],
    {},
    [[]],
    [{}],
    [None],
    {"": None},
    {"a": {}},
    ["a", 1],
    [1, [2, [3]]],
    {"runtime": 1},
    {"name": {}},
]
DEEP = [deep(60), deep(70, False), deep(150), [{"name": "x"}] * 50]
ODD = [None, True, False, *NUMBERS, *TEXTS, *NAMES, *WORDS, *NESTED, *DEEP]
odd = st.sampled_from(ODD) | st.text(max_size=8) | st.integers() | st.floats()
"""Values of every wrong type."""

ENDLESS = [
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b'{"a": 1e999999}',
    b"NaN",
    b"[" + b"1," * 999 + b"1]",
]
SHORT = [
    b"",
    b"null",
    b"0",
    b'"x"',
    b"[]",
    b"{}",
    b"{",
    b"[1,",
    b"<html>no</html>",
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf{}",
]
BROKEN = [*SHORT, *ENDLESS]
"""Bodies that are not valid responses at all."""


def text_of(value: Any) -> str:
    return json.dumps(value).replace(json.dumps(HUGE), "1e999")


@st.composite
def mutated(draw: Any, real: Any) -> str:
    """The text of a real answer in which up to three parts are missing, added or of another type."""
    value = copy.deepcopy(real)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(value)))
        value = changed(
            value,
            place,
            draw(st.sampled_from(("set", "set", "set", "drop", "add"))),
            copy.deepcopy(draw(odd)),
        )
    return text_of(value)


def body(real: Any) -> st.SearchStrategy[bytes]:
    """What a server sends instead of the real answer; mostly JSON that is nearly right."""
    return st.sampled_from(BROKEN) | mutated(real).map(str.encode) | mutated(real).map(str.encode)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path]
    if len(path) < 8:
        for key, item in inner:
            found += places(item, (*path, key))
    return found


def changed(value: Any, place: tuple[Any, ...], how: str, odd_one: Any) -> Any:
    if not place:
        if how == "add" and isinstance(value, dict):
            return {**value, "unheard of": odd_one}
        return odd_one
    *above, last = place
    holder = value
    for key in above:
        holder = holder[key]
    if how == "drop":
        del holder[last]
    elif how == "add" and isinstance(holder[last], dict):
        holder[last]["unheard of"] = odd_one
    elif how == "add" and isinstance(holder[last], list):
        holder[last].append(odd_one)
    else:
        holder[last] = odd_one
    return value
