from __future__ import annotations

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import dump
from openpai_tasks.protocol.yaml.reader import read

TEXTS = [
    "1e3",
    "0o17",
    "010",
    "1:30",
    "yes",
    "~",
    "",
    " x ",
    "a: b",
    "- x",
    "<<",
    "=",
    "# x",
    "2001-01-01",
    "<% $x %>",
    "a\nb\n",
    "  a\n b",
    "a \nb",
    "a\tb",
    "a\u2028b",
    "\x85",
    "a\r\nb",
    "\ufeff",
    "😀",
    "{a}",
    "*.py",
]


def test_any_text_reads_back_as_itself():
    values = [{"key": text, text: [text]} for text in TEXTS]
    assert [read(dump(value)).value for value in values] == values


def test_values_read_back_as_themselves():
    value = {"b": None, "a": [1, -2.5, 1e30, True, [], {}], "date": read("2001-01-01").value}
    assert read(dump(value)).value == value
    assert list(read(dump(value)).value) == ["b", "a", "date"]


def test_dump_uses_block_style_without_aliases():
    shared = ["x"]
    text = dump({"secrets": {"key": "v"}, "commands": ["a\nb"], "one": shared, "two": shared})
    assert text == ("secrets:\n  key: v\ncommands:\n- |-\n  a\n  b\none:\n- x\ntwo:\n- x\n")


def test_bytes_that_are_not_text_are_refused_without_showing_them():
    with pytest.raises(ProtocolError) as refused:
        dump({"secrets": {"key": "v\udcff"}, "commands": ["\\uDCFF"]})
    assert str(refused.value) == "secrets.key: must be UTF-8 text"
