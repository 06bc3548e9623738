"""Every parser of foreign bytes: valid inputs, inputs that failed once, and changed ones."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import limits
from tests.fuzz.__main__ import saved_inputs, shrink
from tests.fuzz.limits import MEMORY, problem
from tests.fuzz.mutations import mutate
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

LEAST = 60  # mutations of a target; a target with more seeds gets as many as it has seeds
LONGEST = 1 << 16


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=targets().values(), ids=lambda target: target.name)
def target(request) -> Target:
    found: Target = request.param
    found.parse(found.seeds[0])  # what is loaded and started only once does not count
    return found


def check(target: Target, data: bytes) -> None:
    if found := problem(target, data):
        pytest.fail(f"{target.name}: {found.text}\ninput: {data!r:.2000}\n{found.details}", pytrace=False)


def test_valid_input_is_accepted(target):
    for data in target.seeds:
        target.parse(data)


def test_input_that_failed_once_is_handled(target):
    for data in saved_inputs(target.name):
        check(target, data)


def test_changed_input_is_accepted_or_refused(target):
    chance, known = random.Random(target.name), (*target.seeds, *saved_inputs(target.name))
    for _ in range(max(LEAST, len(target.seeds))):
        check(target, mutate(chance.choice(known), chance, known)[:LONGEST])


@pytest.mark.parametrize(
    "parse, text",
    [
        (lambda data: {}[data], "KeyError"),
        (lambda data: bytearray(2 * MEMORY), "MemoryError"),
        (lambda data: [None for _ in iter(int, 1)], "TooSlow"),
    ],
    ids=["another error", "too much memory", "no end"],
)
def test_each_kind_of_problem_is_found(parse, text, monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    found = problem(Target("x", parse, ()), b"")
    assert found and found.kind == f"{text} in the target"


def test_failing_input_is_cut_down_to_what_it_needs():
    assert shrink(b"abcdefghijklmnop" * 9, lambda data: b"f" in data and b"o" in data) in (b"fo", b"of")
