from __future__ import annotations

import math

import pytest
import yaml

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.yaml import reader, values
from openpai_tasks.protocol.yaml.reader import read

WORDS = {
    "~": None,
    "Null": None,
    "nULL": "nULL",
    "TRUE": True,
    "yes": "yes",
    "off": "off",
    "y": "y",
    "012": 10,
    "-010": -8,
    "08": "08",
    "0o17": "0o17",
    "0x1F": 31,
    "0X1F": "0X1F",
    "0b101": 5,
    "1_000": 1000,
    "1_": "1_",
    "1:30": 90,
    "1:99": "1:99",
    "190:20:30.15": 685230.15,
    "1e3": 1000.0,
    ".5": 0.5,
    "5.": 5.0,
    "1.5.2": "1.5.2",
    "-.inf": -math.inf,
    "123456789012345678901234567890": 1.2345678901234568e29,
    "9007199254740993": 9007199254740992,
    "! 5": "5",
    "!!str 5": "5",
    "!!int '5'": 5,
    "!!seq": [],
    "!!set {a, b}": {"a": None, "b": None},
    "!!omap [a: 1, b: 2]": [{"a": 1}, {"b": 2}],
    "!!pairs [a: 1, a: 2]": [["a", 1], ["a", 2]],
    "[a, b,]": ["a", "b"],
    "{a, b: }": {"a": None, "b": None},
    '"\\ud83d\\ude00"': "\U0001f600",
    "a\u2028b": "a\u2028b",
    "a\tb": "a\tb",
}


@pytest.fixture(params=["as installed", "without libyaml"])
def both_loaders(request, monkeypatch):
    if request.param == "without libyaml":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


@pytest.mark.usefixtures("both_loaders")
def test_scalars_are_read_like_on_the_real_server():
    assert {word: read(f"key: {word}\n").value for word in WORDS} == {
        word: {"key": value} for word, value in WORDS.items()
    }


DOCUMENTS = {
    "": None,
    "# nothing\n": None,
    "\ufeffa: 1\n": {"a": 1},
    "a: 1\r\nb: 2\r\n": {"a": 1, "b": 2},
    "%YAML 1.2\n---\na: 1\n...\n": {"a": 1},
    "a:\n\t- b\n": {"a": ["b"]},
    "a:\t1\t# one\n": {"a": 1},
    "-\tb\n- \tc\n": ["b", "c"],
    "a:\n  b: 1\n\tc: 2\n": {"a": {"b": 1}, "c": 2},
    "a: x\n   y\n\n   z\n": {"a": "x y\nz"},
    "a: x\ty\n  \tz\n": {"a": "x\ty z"},
    "a: |\n  x\n  \ty\n": {"a": "x\n\ty\n"},
    "a: 'x \n  y'\nb: \"x  \n\n y\"\n": {"a": "x  y", "b": "x  \ny"},
    "a: x \n  y\n": {"a": "x y"},
    '{\n\t"a": [1,\t2]\n}': {"a": [1, 2]},
    "true: b\n~: c\n2.50: d\n": {"true": "b", "null": "c", "2.5": "d"},
    "? [1, 2]\n: b\n": {"1,2": "b"},
    "a: &x {c: 1}\nb: {<<: *x, c: 2}\n": {"a": {"c": 1}, "b": {"c": 2}},
    "a: &x {c: 1}\nb: {c: 2, <<: *x}\n": {"a": {"c": 1}, "b": {"c": 2}},
    "b: {<<: [{c: 1}, {c: 2, d: 3}]}\n": {"b": {"c": 1, "d": 3}},
    "b: {'<<': {c: 1}}\n": {"b": {"<<": {"c": 1}}},
}


@pytest.mark.usefixtures("both_loaders")
def test_documents_are_read_like_on_the_real_server():
    assert {text: read(text).value for text in DOCUMENTS} == DOCUMENTS


INVALID = {
    "a: 1\nb: 2\na: 3\n": r"duplicate key 'a' \(line 3\)",
    "a: {b: 1, b: 2}\n": "duplicate key 'b'",
    "1: a\n1.0e0: b\n": "duplicate key '1'",
    "a: 1\n---\nb: 2\n": r"more than one YAML document \(line 2\)",
    "a: *x\n": r"unknown alias \*x",
    "a: &x [*x]\n": r"unknown alias \*x",
    "a: !!python/none x\n": "unknown tag",
    "a: !mine x\n": "unknown tag !mine",
    "a: !!bool yes\n": "the value is not a valid bool",
    "a: !!binary '%'\n": "the value is not a valid binary",
    "a: !!omap [a: 1, a: 2]\n": "the list is not a valid omap",
    "b: {<<: 1}\n": "only a mapping can be merged",
    "a: 'x\n": "invalid YAML",
    "a: [1\n": "invalid YAML",
    "a:\n  - b\n c: 1\n": "invalid YAML",
    "a: \x01\n": r"'\\x01' is not allowed \(line 1\)",
    "? [[1]]\n: b\n": "a list cannot be a key",
}


@pytest.mark.usefixtures("both_loaders")
def test_invalid_yaml_is_refused_with_a_one_line_error():
    for text, message in INVALID.items():
        with pytest.raises(ProtocolError, match=message) as caught:
            read(text)
        assert "\n" not in str(caught.value)


def test_dates_and_bytes_print_like_on_the_real_server():
    value = read("a: 2001-12-14t21:59:43.10-05:00\nb: 2001-13-45\nc: !!binary aGVsbG8=\n").value
    assert values.text_of(value["a"]) == "Sat Dec 15 2001 02:59:43 GMT+0000 (Coordinated Universal Time)"
    assert values.text_of(value["b"]) == "Thu Feb 14 2002 00:00:00 GMT+0000 (Coordinated Universal Time)"
    assert values.text_of(value["c"]) == "hello"


def test_values_print_as_in_javascript():
    printed = [
        (0.1, "0.1"),
        (-0.0, "0"),
        (2.0, "2"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (math.inf, "Infinity"),
        (math.nan, "NaN"),
        (True, "true"),
        ([1, None, [2, "x"]], "1,,2,x"),
        ({"a": 1}, "[object Object]"),
    ]
    assert [values.text_of(value) for value, _ in printed] == [text for _, text in printed]


def test_line_numbers_of_keys_are_known():
    source = read("a: 1\nb:\n  - c: 2\n    d: 3\n")
    assert source.line(("b", 0, "d")) == 4
    assert source.line(("b", 0, "missing")) == 3
    assert source.line(()) is None


def test_aliases_that_expand_to_a_huge_value_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ProtocolError, match="aliases add more than 20000 values or 1000000 characters"):
        read("\n".join(lines))


def test_long_text_repeated_by_many_aliases_is_refused():
    text = "a: &a {}\nb: [{}]".format("x" * 5000, ", ".join(["*a"] * 201))
    with pytest.raises(ProtocolError, match="aliases add more than"):
        read(text)
    assert read(text.replace(", *a", "", 1)).value["b"] == ["x" * 5000] * 200


def test_many_values_without_aliases_are_read():
    assert len(read("[" + "1," * 30000 + "]").value) == 30000


def test_too_deep_nesting_is_refused():
    with pytest.raises(ProtocolError, match="nested deeper than"):
        read("[" * 5000)
    assert read("[" * reader.DEPTH + "]" * reader.DEPTH).value


def test_libyaml_is_used_only_where_both_readers_agree(monkeypatch):
    fast, used = getattr(yaml, "CSafeLoader", None), []
    parse = yaml.parse
    monkeypatch.setattr(yaml, "parse", lambda text, Loader: used.append(Loader) or parse(text, Loader))
    for text in ("a: 1", "a:\t1"):
        read(text)
    with pytest.raises(ProtocolError):
        read("a: [!!str, 1]")
    assert [loader is fast for loader in used] == [fast is not None, False, False]
