"""Options are read as Go programs take them, before or after the other words."""

import pytest

from openpai_tasks.paddlecloud.go_flags import UsageError, read_line
from openpai_tasks.paddlecloud.request import Option

OPTIONS = (
    Option("parallelism", int, "", "p"),
    Option("entry", str, "", "e"),
    Option("min_instance", int, ""),
    Option("rm", bool, ""),
    Option("v", bool, ""),
)


def read(*argv):
    line = read_line(argv, OPTIONS)
    return line.words, line.values


@pytest.mark.parametrize(
    "argv",
    [
        ["-parallelism", "4", "-rm", "submit", "pkg"],
        ["submit", "-parallelism=4", "pkg", "--rm"],
        ["submit", "pkg", "--parallelism", "4", "-rm=true"],
        ["submit", "pkg", "--p=4", "--rm=T"],
        ["submit", "-p", "2", "pkg", "-p", "4", "-rm=0", "-rm=1"],
    ],
)
def test_options_may_stand_anywhere_in_every_spelling(argv):
    assert read(*argv) == (["submit", "pkg"], {"parallelism": 4, "rm": True})


@pytest.mark.parametrize("text", ["a=b", "", "-", "x -p 4", "-unknown"])
def test_values_may_be_any_text(text):
    assert read(f"-e={text}") == read("-entry", text) == ([], {"entry": text})


def test_words_behind_two_dashes_are_no_options():
    assert read("a", "--", "-p", "--", "-x") == (["a", "-p", "--", "-x"], {})


def test_single_dashes_are_words():
    assert read("-", "--rm=false") == (["-"], {"rm": False})


@pytest.mark.parametrize("name", ["-min_instance", "--min-instance", "-min-instance"])
def test_names_may_have_underscores_or_dashes(name):
    assert read(name, "2") == ([], {"min_instance": 2})


def test_numbers_may_have_a_sign():
    assert read("-p", "-4") == ([], {"parallelism": -4})
    assert read("-p=+4") == ([], {"parallelism": 4})


@pytest.mark.parametrize("level", ["-v", "-v=2", "-v=true"])
def test_levels_of_logging_are_a_switch(level):
    assert read(level) == ([], {"v": True})
    assert read("-v=0") == ([], {"v": False})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-p", "x"], "-parallelism needs a whole number, got 'x'"),
        (["-p="], "-parallelism needs a whole number, got ''"),
        (["-p", "4.0"], "-parallelism needs a whole number, got '4.0'"),
        (["-p", "²"], "-parallelism needs a whole number, got '²'"),
        (["-p", "9" * 5000], "-parallelism needs a whole number"),
        (["-p"], "-p needs a value"),
        (["-entry", "-p", "4"], "-entry needs a value, but -p is an option (or write -entry=-p)"),
        (["-rm=yes"], "-rm is true or false, got 'yes'"),
        (["-paralelism", "4"], "unknown option -paralelism, did you mean -parallelism?"),
        (["-z"], "unknown option -z"),
        (["---p", "x"], "-parallelism needs a whole number, got 'x'"),
    ],
)
def test_mistakes_are_named(argv, message):
    with pytest.raises(UsageError) as error:
        read(*argv)
    assert str(error.value).startswith(message)
