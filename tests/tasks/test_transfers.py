"""Progress output of a running copy."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from openpai_tasks.tasks.views import transfers
from tests.attacks import without_colours
from tests.terminals import screen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def meter(stream, monkeypatch, pause=0.0):
    monkeypatch.setattr(transfers, "DRAW_SECONDS", pause)
    monkeypatch.setattr(transfers, "LINE_SECONDS", pause)
    return transfers.Meter(stream)


def test_terminal_shows_a_progress_bar_that_disappears(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    watch = meter(stream, monkeypatch)
    watch.found(2048)
    watch.moved(1024)
    shown = without_colours(stream.getvalue())
    assert shown.startswith("━" * 6) and "  0/1 file, 1.0 KiB of 2.0 KiB, " in shown
    watch.moved(1024)
    watch.ended("f", "copied", 2048)
    assert "1/1 file" in stream.getvalue().split("\r")[-1]
    watch.close()
    assert not any(screen(stream.getvalue(), 80))


@pytest.mark.parametrize("columns", [80, 40])
def test_names_are_printed_above_the_bar(monkeypatch, columns):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setattr(transfers, "DRAW_SECONDS", 0.0)
    with contextlib.closing(transfers.Meter(words=transfers.PREVIEW)) as watch:
        for number in range(50):
            watch.found(1 << 20)
            watch.moved(1 << 20)
            watch.ended(f"{number} [red]{'x' * 60}", "copied", 1 << 20)
    shown = [line for line in screen(stream.getvalue(), 200) if line]
    assert shown == [f"copied {number} [red]{'x' * 60}" for number in range(50)]


def test_dumb_terminal_gets_progress_lines_instead_of_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    watch = meter(stream := Terminal(), monkeypatch)
    watch.found(10)
    watch.moved(10)
    watch.close()
    assert stream.getvalue().startswith("0/1 file, 10 B of 10 B") and "\x1b" not in stream.getvalue()


def test_other_streams_get_progress_lines_at_intervals(monkeypatch):
    stream = io.StringIO()
    watch = meter(stream, monkeypatch, pause=60.0)
    watch.found(10)
    watch.moved(10)
    assert stream.getvalue() == ""
    watch = meter(stream, monkeypatch)
    watch.found(10)
    watch.ended("f", "skipped", 10)
    watch.close()
    assert stream.getvalue().startswith("1/1 file, 10 B of 10 B, ") and "━" not in stream.getvalue()


def test_empty_files_count_in_the_progress(monkeypatch):
    watch = meter(Terminal(), monkeypatch)
    watch.found(0)
    watch.found(0)
    watch.ended("f", "copied", 0)
    assert watch.share() == 0.5 and watch.line(1.0) == "1/2 files, 0 B of 0 B"


def test_removed_files_are_counted_separately(monkeypatch):
    watch = meter(Terminal(), monkeypatch)
    watch.found(8)
    watch.moved(8)
    watch.ended("f", "copied", 8)
    for name in ("g", "h"):
        watch.ended(name, "removed", 100)
    assert watch.line(1.0) == "1/1 file, 8 B of 8 B, 2 removed"
