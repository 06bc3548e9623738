"""Views on real terminals and in pipes, by real processes."""

import io
import subprocess
import sys

import pytest

from openpai_tasks.tasks.framework import terminal
from tests.attacks import forbidden, without_colours
from tests.forkserver import BIN
from tests.terminals import columns_of, on_terminal, screen, wrapped

TABLE = """
from openpai_tasks import render
from openpai_tasks.tasks.framework.screen import print_view
rows = [
    {"name": "漢字" * 8, "state": "FAILED", "message": "[red]x[/] \\x1b[2J " + "word " * 12},
    {"name": "train", "state": "RUNNING", "message": ":smile: " + "y" * 70},
]
print_view(render.table(rows, ("name", "state", "message")))
"""
LIVE = """
import sys
from openpai_tasks import render
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.terminal import say
with LiveView(sys.stderr, transient={transient}) as live:
    for number in range(30):
        rows = [{{"name": f"job-{{one}}", "state": "RUNNING", "step": number}} for one in range({jobs})]
        line = f"step {{number}}"
        live.show(render.Page([line, render.table(rows, ("name", "state", "step"))], spaced=False), line)
        if number in (10, 20):
            say(f"note {{number}} " + "z" * 100)
    {end}
"""
KEPT = ["step 29", "NAME   STATE    STEP", "job-0  RUNNING    29", "job-1  RUNNING    29"]
NOTES = [f"note {number} " + "z" * 100 for number in (10, 20)]


def python(code, **options):
    return on_terminal([sys.executable, "-c", code], **options)


def live(transient=False, jobs=2, end="pass"):
    return LIVE.format(transient=transient, jobs=jobs, end=end)


@pytest.mark.parametrize("columns", [80, 40])
def test_a_table_fits_a_real_terminal(columns):
    code, shown = python(TABLE, columns=columns)
    text = without_colours(shown).replace("\r", "")
    assert code == 0 and not forbidden(text)
    assert max(map(columns_of, text.split("\n"))) <= columns
    assert "\x1b[31mFAILED" in shown and "\x1b[1mNAME" in shown
    assert all(part in text for part in ("[red]x[/]", "\\x1b[2J", ":smile:"))
    assert text.count("漢字") == 8 or columns == 40


def test_columns_and_no_color_are_honoured():
    _, shown = python(TABLE, columns=80, COLUMNS="60", NO_COLOR="1")
    assert not forbidden(shown.replace("\r", ""))
    assert 50 < max(map(columns_of, shown.replace("\r", "").split("\n"))) <= 60


def test_a_pipe_gets_every_character_of_a_row_on_one_line():
    ran = subprocess.run([sys.executable, "-c", TABLE], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == [
        f"NAME{' ' * 30}STATE    MESSAGE",
        f"{'漢字' * 8}  FAILED   [red]x[/] \\x1b[2J {'word ' * 12}".rstrip(),
        f"train{' ' * 29}RUNNING  :smile: {'y' * 70}",
        "",
    ]


def notes(columns):
    return [line for note in NOTES for line in wrapped(note, columns)]


@pytest.mark.parametrize("columns, asked", [(40, ""), (200, ""), (80, "200"), (80, "40")])
def test_live_view_redraws_its_lines_and_messages_stay_above_it(columns, asked):
    code, shown = python(live(), columns=columns, COLUMNS=asked)
    assert code == 0 and screen(shown, columns) == [*notes(columns), *KEPT]
    code, shown = python(live(transient=True), columns=columns, COLUMNS=asked)
    assert code == 0 and screen(shown, columns) == notes(columns)


@pytest.mark.parametrize("asked", ["", "50"])
def test_a_tall_live_view_stays_within_the_terminal(asked):
    code, shown = python(live(transient=True, jobs=30), lines=10, LINES=asked)
    assert code == 0 and max(part.count("\n") for part in shown.split("\x1b[2K")) <= 10
    assert screen(shown, 80, lines=10) == notes(80)


def test_tall_view_that_stays_is_whole_and_there_once():
    code, shown = python(live(jobs=30), lines=10)
    rows = [f"{f'job-{one}':6}  RUNNING    29" for one in range(30)]
    assert code == 0 and screen(shown, 80, lines=10) == [
        *notes(80),
        "step 29",
        "NAME    STATE    STEP",
        *rows,
    ]


RESIZED = """
import fcntl, struct, sys, termios
from openpai_tasks import render
from openpai_tasks.tasks.framework.screen import LiveView
with LiveView(sys.stderr, transient=True) as live:
    live.show(render.Page(["x" * 100, "y" * 30], spaced=False), "")
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    live.show(render.Page(["x" * 10], spaced=False), "")
"""


def test_lines_that_a_narrower_terminal_wraps_are_removed():
    code, shown = python(RESIZED, columns=120)
    _, redrawn = shown.split("y" * 30)
    assert code == 0 and redrawn.startswith("\r\x1b[2K" + "\x1b[1A\x1b[2K" * 3 + "x" * 10)


def test_ctrl_c_leaves_the_last_view_and_the_cursor_below_it():
    code, shown = python(live(end="raise KeyboardInterrupt"))
    assert code in (-2, 130) and "\x1b[?25l" not in shown
    expected = [*notes(80), *KEPT]
    lines = screen(shown, 80)
    assert lines[: len(expected)] == expected
    assert lines[len(expected)].startswith("Traceback")  # on a separate line


def test_a_dumb_terminal_and_a_pipe_get_a_line_for_each_change():
    expected = [
        line
        for number in range(30)
        for line in (f"step {number}", *NOTES[number == 20 :][: number in (10, 20)])
    ]
    assert python(live(), TERM="dumb")[1].split() == " ".join(expected).split()
    ran = subprocess.run([sys.executable, "-c", live()], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines() == expected and ran.stdout == ""


@pytest.mark.parametrize("columns, asked", [(40, ""), (80, "200")])
def test_copy_leaves_only_its_summary_on_the_screen(tmp_path, columns, asked):
    source = tmp_path / "from"
    source.mkdir()
    for number in range(300):
        (source / f"{number}").write_bytes(b"x" * 1000)
    words = [str(BIN / "pai"), "storage.copy", "from", "to"]
    home = str(tmp_path / "home")
    code, shown = on_terminal(words, columns, cwd=tmp_path, OPENPAI_HOME=home, COLUMNS=asked)
    line = "".join(screen(shown, columns))
    assert code == 0 and line.startswith("300 copied (293.0 KiB), 0 skipped, 0 failed")


METER = """
import sys
from openpai_tasks.tasks.views import transfers
transfers.DRAW_SECONDS = 0.0
meter = transfers.Meter(sys.stderr)
for number in range(50):
    meter.found(600_000_000)
for number in range(50):
    meter.moved(600_000_000)
    meter.ended(f"file-{number}", "copied", 600_000_000)
"""


@pytest.mark.parametrize("columns, asked", [(60, ""), (200, ""), (80, "200")])
def test_a_growing_bar_takes_one_place_on_the_screen(columns, asked):
    code, shown = python(METER, columns=columns, COLUMNS=asked)
    lines = screen(shown, columns)
    assert code == 0 and shown.count("files, ") > 50
    assert sum("50/50 files" in line for line in lines) == 1 and "49/50" not in "".join(lines)
    assert len(lines) == (2 if columns == 60 else 1) and max(map(columns_of, lines)) <= columns


NOTIFY = """
from openpai_tasks.tasks.framework import terminal
terminal.notify("job a;b\\x1b]0;evil\\x07", "FAILED" + "x" * 1000, by_bell_only=False)
"""


def test_a_notification_cannot_control_the_terminal():
    code, shown = python(NOTIFY)
    text = "FAILED" + "x" * 194
    assert code == 0 and shown == f"\x1b]9;job a,b\\x1b]0,evil\\x07: {text}\x07\x07"
    ran = subprocess.run([sys.executable, "-c", NOTIFY], capture_output=True, text=True, check=True)
    assert ran.stdout + ran.stderr == ""


@pytest.mark.parametrize("columns", ["", "0", "-5", "wide", "9" * 30])
def test_a_useless_value_of_columns_is_ignored(columns):
    _, shown = python(TABLE, columns=80, COLUMNS=columns)
    assert 60 < max(map(columns_of, without_colours(shown).replace("\r", "").split("\n"))) <= 80


def test_rich_is_not_loaded_for_a_pipe():
    code = TABLE.replace("漢字", "ab") + "\nimport sys; sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_messages_go_above_the_latest_live_view(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    monkeypatch.setattr(stream, "isatty", lambda: True)
    first, second = [], []
    monkeypatch.setattr(terminal, "live_views", [first.append, second.append])
    terminal.say("above the second")
    terminal.live_views.remove(second.append)
    terminal.say("above the first")
    terminal.live_views.remove(first.append)
    terminal.say("nothing is drawn")
    assert (first, second) == (["above the first"], ["above the second"])
    assert stream.getvalue() == "nothing is drawn\n"
