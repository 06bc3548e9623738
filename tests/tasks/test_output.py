"""Output, messages and errors cannot control a terminal, whatever text they contain."""

import csv
import errno
import fcntl
import io
import json
import os
import re
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field

import pytest
import yaml
from hypothesis import given
from invoke import Context, Exit

from openpai_tasks.errors import ConfigError, ProtocolError
from openpai_tasks.render import html, views
from openpai_tasks.render import text as render
from openpai_tasks.tasks.framework import prompts
from openpai_tasks.tasks.framework import terminal as _output
from openpai_tasks.tasks.framework.contexts import UsageError
from openpai_tasks.tasks.framework.screen import LiveView, print_view
from openpai_tasks.tasks.framework.task import PaiTask
from tests.attacks import ALL, forbidden, is_from_json, texts, without_colours


class Terminal(io.StringIO):
    def isatty(self):
        return True


@dataclass(frozen=True)
class Row:
    name: str
    tags: tuple[str, ...] = ()
    ports: dict[str, str] = field(default_factory=dict)


def rows(text):
    return [Row(text, (text, "b"), {text: text}), Row("漢字")]


def shown(act, *args):
    """What reaches stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        act(*args)
    return out.getvalue(), err.getvalue()


@given(texts)
def test_no_format_contains_terminal_control_characters(text):
    for form in render.FORMATS:
        assert not forbidden(render.format_values(rows(text), ("name", "tags", "ports"), form))
    for picture in (render.flat_table, render.document):
        assert not forbidden(render.format_values(rows(text), picture))
    assert not forbidden(render.format_values({text: text}, render.facts))
    assert not forbidden(html.table([{text: text}], (text,)))


@given(texts.filter(is_from_json))
def test_json_and_yaml_contain_the_exact_text(text):
    assert json.loads(render.format_values([text, {text: text}], (), "json")) == [text, {text: text}]
    assert yaml.safe_load(render.format_values([text, {text: text}], (), "yaml")) == [text, {text: text}]


@given(texts)
def test_table_has_one_line_per_row_whatever_the_text(text):
    assert len(render.format_values(rows(text), ("name", "tags")).split("\n")) == 3


@given(texts)
def test_csv_has_one_record_per_row_and_keeps_plain_text(text):
    found = list(
        csv.reader(io.StringIO(render.format_values(rows(text), ("name", "tags"), "csv"), newline=""))
    )
    assert len(found) == 3
    if not forbidden(text):
        assert found[1][0] == text and json.loads(found[1][1]) == [text, "b"]


def test_wide_characters_keep_the_columns_aligned():
    lines = render.format_values([Row("漢字", ("x",)), Row("abcd", ("y",))], ("name", "tags")).splitlines()
    assert lines == ["NAME  TAGS", "漢字  x", "abcd  y"]


@pytest.mark.parametrize("value", [1e300, float("nan"), "soon", [1], -(10**30)])
@pytest.mark.parametrize("name", ["submitted", "duration", "size"])
def test_invalid_time_or_amount_is_still_shown(name, value):
    assert render.cell(name, value)


@given(texts)
def test_messages_and_prompts_cannot_control_a_terminal(text):
    def coloured(text):
        _output.put_coloured(sys.stderr, text)

    for act in (_output.say, _output.put, _output.prompt):
        assert not forbidden("".join(shown(act, text)))
    assert not forbidden(without_colours("".join(shown(coloured, text))))
    out, err = shown(_output.say, text)
    assert not out and err.count("\n") == 1


REDRAW = re.compile(r"\r?\x1b\[(?:2K|1A)|\r\n|\r(?=\n|$)")


@given(texts)
def test_live_view_moves_the_cursor_only_to_redraw_its_lines(text):
    stream = Terminal()
    table = views.TextTable([text], [[text]], 0)
    with LiveView(stream) as live, redirect_stderr(stream):
        for view in (views.Page([table, text]), views.Bar(0.5, text), text):
            live.show(view, text)
            _output.say(text)
    assert not forbidden(without_colours(REDRAW.sub("", stream.getvalue())))
    stream = io.StringIO()
    LiveView(stream).show(text, text)
    assert not forbidden(stream.getvalue())


@given(texts)
def test_printed_view_cannot_control_a_terminal(text):
    for stream in (io.StringIO(), Terminal()):
        with redirect_stdout(stream):
            print_view(render.table(rows(text), ("name", "tags", "ports")))
        assert not forbidden(without_colours(stream.getvalue()))


@given(texts)
def test_error_cannot_control_a_terminal_or_add_lines(text):
    def fail(c):
        raise ProtocolError(text, ("first", text, text))

    with pytest.raises(Exit) as ended:
        PaiTask(fail)(Context())
    assert not forbidden(ended.value.message) and ended.value.message.count("\n") == 2
    assert not forbidden(str(UsageError(text))) and "\n" not in str(UsageError(text))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EMFILE])
def test_an_error_of_the_disk_or_the_machine_is_one_line(number):
    def fail(c):
        raise OSError(number, "It is full", "/home/\x1bann")

    with pytest.raises(Exit) as ended:
        PaiTask(fail)(Context())
    assert (ended.value.code, ended.value.message) == (125, "error: It is full: /home/\\x1bann")


def test_traceback_cannot_control_a_terminal():
    try:
        raise ValueError(ALL)
    except ValueError:
        _, err = shown(_output.show_uncaught, *sys.exc_info())
    assert err.startswith("Traceback") and not forbidden(err)


def test_prompt_for_a_secret_is_filtered(monkeypatch):
    asked = []
    monkeypatch.setattr("getpass.getpass", asked.append)
    prompts.secret(f"password of {ALL}: ")
    assert asked and not forbidden(asked[0])


def test_exact_output_is_unchanged_in_a_pipe_and_filtered_on_a_terminal(capsysbinary):
    _output.exact("emoji \U0001f468\u200d\U0001f469 \udcff\n")
    assert capsysbinary.readouterr().out == "emoji \U0001f468\u200d\U0001f469 ".encode() + b"\xff\n"
    terminal = Terminal()
    with redirect_stdout(terminal):
        _output.exact("emoji \U0001f468\u200d\U0001f469\n")
    assert terminal.getvalue() == "emoji \U0001f468\\u200d\U0001f469\n"


def test_characters_missing_in_the_encoding_are_written_as_backslash_escapes():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with redirect_stdout(stream):
        _output.put("größe")
    stream.flush()
    assert stream.buffer.getvalue() == b"gr\\xf6\\xdfe\n"


@pytest.fixture
def interrupting_pipe():
    """A pipe into which nothing can be written without Ctrl-C at the same time."""
    reader, writer = os.pipe()
    before = signal.signal(signal.SIGIO, signal.default_int_handler)
    fcntl.fcntl(reader, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    yield reader, writer
    os.close(reader)
    os.close(writer)
    signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize("kind", [_output.OutputBuffer, _output.MessageBuffer])
def test_line_that_is_written_when_ctrl_c_arrives_is_not_written_again(interrupting_pipe, kind):
    reader, writer = interrupting_pipe
    with open(writer, "w", closefd=False) as stream:
        ours = _output._with_buffer(stream, kind)
        with pytest.raises(KeyboardInterrupt):
            _output.put_line(ours, "once")
        ours.flush()
    assert os.read(reader, 100) == b"once\n"


def test_exit_without_text_has_no_message():
    assert _output.ending(3).message is None and _output.ending(3).code == 3
    assert str(ConfigError("a")) == "a"
