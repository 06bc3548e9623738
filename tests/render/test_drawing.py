"""Views drawn for a terminal: fitted, coloured, and literal."""

import os
import time

import pytest
from hypothesis import given

from openpai_tasks import render
from openpai_tasks.render import drawing, views
from openpai_tasks.text import plain
from tests.attacks import ATTACKS, forbidden, texts, without_colours
from tests.terminals import columns_of

JOB = {
    "name": "train-resnet-with-a-long-name-1",
    "state": "RUNNING",
    "virtual_cluster": "default",
    "submitted": 1_700_000_000_000,
    "duration": 61,
    "exit_code": None,
    "task_count": 255,
    "retries": 0,
}
COLUMNS = tuple(JOB)
LOUD = {**JOB, "virtual_cluster": "lab", "exit_code": 3, "retries": 2}
"""A job for which each column has something to say."""
DATE = render.when(1_700_000_000_000)[:10]  # in the time zone of this machine
WORDS = ("train", "RUNNING", "lab", DATE, "1m", "255")


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    for name in ("NO_COLOR", "LINES", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def draw(view, ages=False):
    return drawing.draw(view, int(os.environ["COLUMNS"]), ages)


def table(*jobs, columns=COLUMNS):
    return render.table(list(jobs), columns)


@pytest.mark.parametrize("columns", [200, 120, 80, 60, 40, 20])
def test_a_table_is_never_wider_than_the_terminal_and_shows_everything(terminal, columns):
    terminal.setenv("COLUMNS", str(columns))
    text = without_colours(draw(table(LOUD, {**LOUD, "name": "漢字" * 20})))
    assert max(map(columns_of, text.split("\n"))) <= columns
    assert all(word in text for word in WORDS)
    assert "".join(text.split()).count("漢") == 20


def test_table_that_fits_has_the_same_text_as_in_a_pipe(terminal):
    terminal.setenv("COLUMNS", "200")
    assert without_colours(draw(table(LOUD))) == str(table(LOUD))


def test_columns_that_say_nothing_are_left_out_on_a_terminal_only(terminal):
    terminal.setenv("COLUMNS", "120")
    header = without_colours(draw(table(JOB, JOB))).split("\n")[0].split()
    assert header == ["NAME", "STATE", "SUBMITTED", "DURATION", "TASK", "COUNT"]
    assert "RETRIES" in str(table(JOB, JOB)) and "RETRIES" in draw(table(JOB, {**JOB, "retries": 1}))
    assert without_colours(draw(table({"name": "-", "state": "-"}, columns=("name", "state")))) == "NAME\n-"


AGES = {0: "now", 5: "5s ago", 61: "1m ago", 7300: "2h ago", 90_000: "1d ago", 86400 * 31: ""}


@pytest.mark.parametrize("seconds", AGES)
def test_ages_replace_dates_on_a_terminal_only(terminal, seconds):
    now = time.time()
    terminal.setattr(time, "time", lambda: now)
    at = int((now - seconds) * 1000)
    view, date = table({"name": "train", "submitted": at}, columns=("name", "submitted")), render.when(at)
    assert date in str(view) and date in draw(view)
    assert without_colours(draw(view, ages=True)).split("\n")[1] == f"train  {AGES[seconds] or date[:10]}"


def test_a_time_in_the_future_is_a_date_unless_the_clocks_differ_a_little():
    now = time.time() * 1000
    assert [render.age(int(now + 60_000)), render.age(int(now + 3_600_000))] == [
        "now",
        render.when(int(now + 3_600_000))[:10],
    ]


def test_headers_wrap_before_cells_and_cells_before_names_break():
    lines = without_colours(draw(table({**LOUD, "name": "train-resnet-20"}))).split("\n")
    assert lines[0].split() == ["VIRTUAL", "EXIT", "TASK"] and "train-resnet-20" in lines[2]
    assert lines[2].split()[3] == DATE and len(lines) == 4


def test_a_narrow_terminal_gets_a_block_of_fields_for_each_row(terminal):
    terminal.setenv("COLUMNS", "40")
    lines = without_colours(draw(table(LOUD, LOUD))).split("\n")
    assert lines[0] == "NAME             train-resnet-with-a-lon" and lines[1].strip() == "g-name-1"
    assert lines[2] == "STATE            RUNNING" and lines.count("") == 1


def test_an_empty_table_has_its_header(terminal):
    for columns in ("80", "40"):
        terminal.setenv("COLUMNS", columns)
        assert {"NAME", "STATE"} <= set(without_colours(draw(table())).split())
    assert draw(render.flat_table([])) == ""


def test_wide_characters_align():
    rows = [{"name": "漢字", "size": 1}, {"name": "abcd", "size": 2}, {"name": "e\u0301", "size": 3}]
    lines = without_colours(draw(table(*rows, columns=("name", "size")))).split("\n")
    assert lines == ["NAME  SIZE", "漢字   1 B", "abcd   2 B", "e\u0301      3 B"]


STYLES = {"SUCCEEDED": "32", "FAILED": "31", "RUNNING": "36", "WAITING": "33", "STOPPED": "2"}


@pytest.mark.parametrize("state", STYLES)
def test_a_state_has_its_colour_and_headers_are_bold(state):
    text = draw(table({"name": state, "state": state}, columns=("name", "state")))
    assert text.count(f"\x1b[{STYLES[state]}m{state}") == 1  # a job's name is not coloured
    assert "\x1b[1mSTATE" in text


@pytest.mark.parametrize("variable, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_escape_sequences_with_no_color_or_a_dumb_terminal(terminal, variable, value):
    terminal.setenv(variable, value)
    terminal.setenv("COLUMNS", "60")
    text = draw(table(JOB))
    assert "\x1b" not in text and max(map(len, text.split("\n"))) <= 60


def test_long_table_is_written_as_plain_text(monkeypatch):
    monkeypatch.setattr(drawing, "LONG_TABLE", 2)
    assert draw(table(LOUD, LOUD)) == str(table(LOUD, LOUD))


def test_long_facts_are_not_wrapped():
    long = "http://host/" + "x" * 100
    text = draw(render.facts({"url": long, "name": "[b]n[/b]"}))
    assert text == f"\x1b[1mURL\x1b[0m   {long}\n\x1b[1mNAME\x1b[0m  [b]n[/b]"


def test_page_keeps_the_order_and_spacing_of_its_parts():
    parts = ["before :smile: [red]x[/]", table({"a": 1}, columns=("a",)), "after"]
    for spaced in (True, False):
        page = views.Page(parts, spaced)
        assert without_colours(draw(page)) == str(page)


def test_prose_is_wrapped_between_words_and_addresses_are_not_broken():
    prose, address = "word " * 40, "see http://host/" + "x" * 100
    lines = draw(views.Page([prose.strip(), address], spaced=False)).split("\n")
    assert max(map(len, lines[:-1])) <= 80 and " ".join(lines[:-1]) == prose.strip() and lines[-1] == address


HOSTILE = [*ATTACKS.values(), "[red]x[/]", "[/]", ":smile:", "[link=http://evil]x[/link]", "\\[b]"]


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_text_is_shown_literally(terminal, text):
    terminal.setenv("COLUMNS", "500")
    view = table({"name": text, "state": text}, columns=("name", "state"))
    assert without_colours(draw(view)) == str(view)


@given(texts)
def test_drawn_text_cannot_control_a_terminal(text):
    raw = views.TextTable([text, text], [[text, text]], 1)
    for view in (raw, views.Facts([(text, text)]), views.Page([raw, text]), views.Bar(0.5, text)):
        assert not forbidden(without_colours(draw(view)))


def shown(view, columns):
    return [without_colours(line) for line in drawing.frame(view, columns, 24)]


LINE = "12/2000 files, 10.0 MiB of 500.0 MiB, 120.0 MiB/s, 4.1s left"


def test_progress_bar_is_beside_its_text_or_above_it():
    assert shown(views.Bar(1.0, LINE), 120) == ["━" * 24 + "  " + LINE]
    assert shown(views.Bar(1.0, LINE), 80) == ["━" * 12 + "  " + LINE]
    assert shown(views.Bar(1.0, LINE), 70) == ["━" * 8 + "  " + LINE]
    bar, *rest = shown(views.Bar(1.0, LINE), 40)
    assert bar == "━" * 24 and " ".join(rest) == LINE


def test_progress_bar_is_filled_in_proportion():
    assert drawing.frame(views.Bar(0.5, "x"), 80, 24)[0].startswith("\x1b[36m━━━━━━\x1b[0m")


def test_plain_text_is_one_truncated_line_in_a_live_view():
    [line] = shown("漢字" * 30, 40)
    assert line.endswith("…") and columns_of(line) == 40


@pytest.mark.parametrize("text, columns", [("abc", 3), ("漢字", 4), ("é", 1), ("e\u0301", 1), ("", 0)])
def test_width_is_counted_in_terminal_columns(text, columns):
    assert plain.width(text) == columns
