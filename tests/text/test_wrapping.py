"""Prose is wrapped between words, and commands in it can be copied."""

import pytest

from openpai_tasks.text.wrapping import wrap


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("one two three", 20, ["one two three"]),
        ("one two three", 8, ["one two", "three"]),
        ("- one two three", 9, ["- one two", "  three"]),
        ("run `pai job.why x` now", 15, ["run", "`pai job.why x`", "now"]),
        ("run `pai job.why some-job` now", 10, ["run `pai", "job.why", "some-job`", "now"]),
        ("see http://host/xxxxxxxxxx there", 10, ["see http://host/xxxxxxxxxx", "there"]),
        ("  | quoted output stays", 8, ["  | quoted output stays"]),
        ("漢字 漢字 漢字", 9, ["漢字 漢字", "漢字"]),
        ("", 5, [""]),
    ],
)
def test_wrapping(text, columns, lines):
    assert wrap(text, columns).split("\n") == lines
