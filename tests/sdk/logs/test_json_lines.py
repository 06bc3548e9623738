"""JSON lines of programs: split in bounded memory, and parsed whatever they contain."""

import json
import math
import time

import pytest
from hypothesis import given, strategies

from openpai_tasks.render import json_line, log_line
from openpai_tasks.sdk.logs import json_lines
from openpai_tasks.sdk.logs.json_lines import LineOrigin, ShortLines, parse_object, parse_objects, piece_size
from openpai_tasks.sdk.logs.structured import parse_filter, parse_line
from tests.attacks import forbidden, texts

ORIGIN = LineOrigin(0, "main", 0)
data = strategies.binary(max_size=40) | strategies.sampled_from([b"\n", b"\r\n", b"{}\n", b"a" * 30])


@given(strategies.lists(data))
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces):
    lines = ShortLines()
    found = [line for piece in pieces for line in lines.feed(piece)] + [*lines.end()]
    *whole, rest = b"".join(pieces).split(b"\n")
    assert found == [line.removesuffix(b"\r") for line in whole] + ([rest] if rest else [])


def test_only_the_beginning_of_a_long_line_is_kept(monkeypatch):
    monkeypatch.setattr(json_lines, "LONGEST", 10)
    lines = ShortLines()
    for _ in range(100):
        assert not [*lines.feed(b"x" * 7)]
        assert len(lines._rest) <= 10
    assert [*lines.feed(b"y\nshort\n" + b"z" * 50 + b"\n")] == [b"x" * 10, b"short", b"z" * 10]


TORN = (b'{"a": "x}', b'{": 1, "b": 2}', b'{"a": [{}', b"{}]}", b"text", b"", b"[1]")
WHOLE = (b'{"a": 1}', b"{}", b'{"a": "\\ud800"}', b'{"a": NaN}', b'{"a": "\xff"}', b' {"a": {"b": 3}} ')
JSON_LINES = strategies.sampled_from(TORN + WHOLE)


@given(strategies.lists(JSON_LINES | strategies.binary(max_size=9)))
def test_lines_are_parsed_together_as_one_by_one(lines):
    expected = [value for value in map(parse_object, lines) if value is not None]
    assert repr(parse_objects(lines)) == repr(expected)


@pytest.mark.parametrize("sources", [0, 1, 8, 100, 10_000])
def test_many_files_are_read_in_small_pieces(sources):
    least, most = json_lines.PIECES
    assert least <= piece_size(sources) <= most
    assert piece_size(sources) == least or piece_size(sources) * sources <= json_lines.TOGETHER


values = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | texts,
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
NAMES = ("time", "level", "logger", "message", "role", "index", "attempt", "exception", "name", "value")
records = strategies.dictionaries(strategies.sampled_from(NAMES), values)


@given(records)
def test_any_record_can_be_shown_and_filtered(fields):
    line = parse_line(json.dumps(fields).encode(), ORIGIN)
    if line is None:
        assert "message" not in fields
        return
    shown = log_line(line)
    assert not forbidden(shown)
    assert all(part.startswith("    ") for part in shown.split("\n")[1:])
    parse_filter("error", "1h", "x").matches(line, line.time or 0.0)
    if line.fields is not None:
        text = json_line(line)
        assert "\n" not in text and not forbidden(text)
        assert set(json.loads(text, parse_constant=pytest.fail)) >= {"message", "role", "index", "attempt"}


@given(strategies.binary())
def test_any_bytes_are_shown_as_a_line(line):
    found = parse_line(line, ORIGIN)
    assert found is None or not forbidden(log_line(found))


def test_numbers_that_json_lacks_are_read_as_python_writes_them():
    assert math.isnan(parse_object(b'{"value": NaN}')["value"])
    assert parse_object(b' {"value": -Infinity}\r')["value"] == -math.inf
    assert parse_object(b"{" + b'"a": {' * 1000) is None
    assert parse_object(b"[1]") is None and parse_object(b"") is None


@pytest.fixture
def in_utc():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "record, shown",
    [
        ({"message": "m", "time": 0, "level": "INFO"}, "1970-01-01 00:00:00.000 INFO     main-0 m"),
        (
            {"message": "m", "logger": "a.b", "level": "INFO"},
            "-                       INFO     main-0 a.b: m",
        ),
        ({"message": "a\nb\r\nc\n", "role": "w", "index": 3, "attempt": 2}, "w-3#2 a\n    b\n    c"),
        ({"message": "x", "exception": "Traceback\n  E"}, "main-0 x\n    Traceback\n      E"),
        ({"message": "\x1b[31mred\x1b[0m \x07"}, "main-0 red \\x07"),
        ({"message": {"a": [1]}, "level": 30}, '30       main-0 {"a": [1]}'),
        ({"message": "m", "time": 1e18, "role": "", "index": -1, "attempt": True}, "main-0 m"),
    ],
)
def test_a_record_is_a_readable_line(record, shown, in_utc):
    line = log_line(parse_line(json.dumps(record).encode(), ORIGIN))
    assert line.endswith(shown)


def test_search_in_records_is_by_line_and_does_not_read_all_of_a_long_one():
    pattern = parse_filter(grep=r"a.*c$")
    assert pattern.matches(_record("x\na b c\ny"), 0) and not pattern.matches(_record("a b\nc"), 0)
    begun = time.thread_time()
    assert not pattern.matches(_record("a" * 400_000), 0)
    assert time.thread_time() - begun < 2  # of CPU time; all of it would take minutes


def _record(message):
    return parse_line(json.dumps({"message": message}).encode(), ORIGIN)
