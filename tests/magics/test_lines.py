"""The `%pai` line: shell quoting, and notebook variables in braces."""

import selectors

import pytest

from openpai_tasks.magics import commands, split_line
from openpai_tasks.magics.commands import ErrorStream, Failed

KNOWN = {"name": "first", "rows": [{"name": "job 1"}], "names": ["a", "b c"], "n": 3, "none": None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("job.list", ["job.list"]),
        ("job.sub 'echo  two' --env 'A=b c'", ["job.sub", "echo  two", "--env", "A=b c"]),
        ("job.status {name}", ["job.status", "first"]),
        (
            "job.sub 'train {n} {rate}' --job-name x-{name}-$",
            ["job.sub", "train 3 {rate}", "--job-name", "x-first-$"],
        ),
        ('job.status {rows[0]["name"]}', ["job.status", "job 1"]),
        ("job.status {rows[0][name]}", ["job.status", "job 1"]),
        ("job.stop {names}", ["job.stop", "a", "b c"]),
        ("job.sub 'echo $name ${name} {{name}}'", ["job.sub", "echo $name ${name} {name}"]),
        ("job.sub \"awk '{print $1}'\"", ["job.sub", "awk '{print $1}'"]),
        ("job.status {rows[9]} {rows[0].x} {none}", ["job.status", "{rows[9]}", "{rows[0].x}", "{none}"]),
        ("", []),
    ],
)
def test_line_is_split_into_words(line, expected):
    assert split_line(line, KNOWN) == expected


def test_unclosed_quote_is_an_error():
    with pytest.raises(Failed, match="no closing quotation"):
        split_line("job.sub 'x", {})


def test_substituted_value_stays_one_word():
    assert split_line("job.status {evil}", {"evil": "x' --user 'all"}) == ["job.status", "x' --user 'all"]


def test_error_stream_holds_back_only_the_last_error():
    errors = ErrorStream()
    assert errors.feed("one\nerr") == "one\n"
    assert errors.feed("or: first\ntwo\nerror: last\n  more\n") == "error: first\ntwo\n"
    assert (errors.error(), errors.rest()) == ("last", "  more\n")


def test_error_stream_releases_an_error_that_is_followed_by_more_lines():
    errors = ErrorStream()
    lines = "".join(f"line {number}\n" for number in range(30))
    assert errors.feed("error: early\n" + lines) == "error: early\n" + lines
    assert errors.error() == ""


class LateSelector(selectors.DefaultSelector):
    """A selector that finds nothing at first, while the command writes all of its output and ends."""

    def __init__(self, process):
        super().__init__()
        self._process = process

    def select(self, timeout=None):
        if self._process is None:
            return super().select(timeout)
        self._process.wait()
        self._process = None
        return []


def test_output_that_a_command_writes_before_it_ends_is_shown_however_late_it_is_read(monkeypatch, capsys):
    command = commands._Command(["no.such.task"], print)
    monkeypatch.setattr(commands.selectors, "DefaultSelector", lambda: LateSelector(command._process))
    assert command.wait() != 0
    assert "no.such.task" in command.errors.error() + capsys.readouterr().err
