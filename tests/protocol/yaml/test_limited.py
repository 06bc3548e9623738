"""YAML of strangers: read as PyYAML does, and refused where it would take long or cannot be used."""

from __future__ import annotations

import time

import pytest
import yaml

from openpai_tasks.protocol.yaml import limited


def nested(inner: str, outer: str) -> str:
    """Return nine levels, each of nine aliases of the one before."""
    lines = [f"a0: &a0 {inner}"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} {outer % ', '.join([f'*a{level - 1}'] * 9)}")
    return "\n".join(lines)


ATTACKS = {
    "lists": (nested("[x, x]", "[%s]"), "aliases add more than"),
    "merged mappings": (nested("{x: 1}", "{<<: [%s]}"), "aliases add more than"),
    "a long text": (f"a: &a {'x' * 5000}\nb: [{', '.join(['*a'] * 50)}]", "aliases add more than"),
    "itself": ("a: &a [*a]", "the value contains itself"),
    "brackets": ("[" * 100_000, "nested deeper than 100 levels"),
    "braces": ("{" * 100_000, "nested deeper than 100 levels"),
    "dashes": ("- " * 100_000, "nested deeper than 100 levels"),
    "a date": ("a: 2026-99-99", "month must be in 1..12"),
    "digits": (f"a: {'9' * 5000}", "a number of more than 1000 digits"),
    "hexadecimal digits": (f"a: 0x{'f' * 5000}", "a number of more than 1000 digits"),
    "base 60": (f"a: 1{':1' * 5000}", "a number of more than 1000 digits"),
    "a character": ("a: \x00", "special characters are not allowed"),
}


def test_document_of_a_stranger_is_refused_at_once():
    for name, (text, reason) in ATTACKS.items():
        begun = time.thread_time()
        with pytest.raises(limited.InvalidYaml) as raised:
            limited.load(text)
        assert reason in raised.value.problem and isinstance(raised.value, yaml.YAMLError)
        assert time.thread_time() - begun < 2, name  # of CPU time


def test_other_documents_are_read_as_by_pyyaml():
    texts = [
        "",
        "a: 1\nb: [yes, 012, 0x1f, 1:30, 2024-01-31, ~, 1e3, 1.5]",
        "a: &a {x: 1, y: [1, 2]}\nb: {<<: *a, x: 2}\nc: [*a, *a]",
        "[" * 90 + "]" * 90,
        "a: |\n  text\nb: !!binary aGk=\nc: !!set {x, y}",
    ]
    assert [limited.load(text) for text in texts] == [yaml.safe_load(text) for text in texts]
    assert limited.load("a: 1", limited.TextLoader) == {"a": "1"}
