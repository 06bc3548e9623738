"""The output of several tasks in one stream."""

import re
import time

import pytest
from hypothesis import given, strategies

from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.output import (
    LONGEST_PART,
    Chunk,
    Labels,
    LineSplitter,
    add_labels,
    strip_control_characters,
)
from tests.attacks import ALL, forbidden

MEGABYTE = 1 << 20
PAUSE = Chunk("", b"", 0.5)


def shown(*chunks):
    return b"".join(add_labels(chunks))


def on_screen(data):
    """What a terminal shows of the bytes, line by line."""
    lines = []
    for line in data.split(b"\n"):
        row = b""
        for part in line.split(b"\r"):
            row = part + row[len(part) :]
        lines.append(row.decode())
    return lines


def test_progress_bar_is_updated_in_place():
    one = Labels()
    assert one.feed("a-0", b"\r 10%") + one.pause() == b"[a-0]  10%"
    assert one.feed("a-0", b"\r 20%") + one.pause() == b"\r[a-0]  20%"
    assert one.feed("a-0", b"\r 30%\r 40%\n") == b"\r[a-0]  30%\r[a-0]  40%\n"
    assert one.end() == b""


def test_carriage_returns_without_a_newline_are_shown_at_once():
    assert shown(*[Chunk("a-0", b"50%\r"), Chunk("a-0", b"60%\r")]) == b"[a-0] 50%\r[a-0] 60%\r\n"


def test_progress_bars_of_several_tasks_do_not_overwrite_each_other():
    chunks = [Chunk(task, b"\r%d%% of %s" % (done, task.encode())) for done in (1, 2) for task in ("a", "b")]
    rounds = [chunk for one in chunks for chunk in (one, PAUSE)]
    rows = ["[a] 1% of a", "[b] 1% of b", "[a] 2% of a", "[b] 2% of b"]
    assert on_screen(shown(*rounds)) == [*rows, ""]


def test_line_of_another_task_leaves_a_progress_bar_above_it():
    data = shown(Chunk("a", b"50%\r"), Chunk("b", b"hello\n"), Chunk("a", b"60%\r\n"))
    assert on_screen(data) == ["[a] 50%", "[b] hello", "[a] 60%", ""]


@pytest.mark.parametrize("pieces", [[b"one\r\ntwo\r\n"], [b"one\r", b"\ntwo\r", b"\n"]])
def test_newline_after_a_carriage_return_is_not_a_separate_line(pieces):
    assert on_screen(shown(*[Chunk("a", piece) for piece in pieces])) == ["[a] one", "[a] two", ""]


def test_the_newline_of_a_line_that_was_ended_for_another_task_is_not_shown_again():
    data = shown(Chunk("a", b"one\r"), Chunk("b", b"other\n"), Chunk("a", b"\ntwo\n"))
    assert on_screen(data) == ["[a] one", "[b] other", "[a] two", ""]


def test_label_cannot_control_a_terminal():
    data = shown(Chunk(f"role{ALL}-0", b"text\n"), Chunk("b-0", b"text\n"))
    assert not forbidden(data.decode()) and data.count(b"\n") == 2


chunks = strategies.lists(
    strategies.one_of(
        strategies.just(PAUSE),
        strategies.builds(
            Chunk, strategies.sampled_from("ab"), strategies.text("xy\r\n", max_size=8).map(str.encode)
        ),
    )
)


@given(chunks, strategies.integers(1, 8))
def test_every_byte_is_shown_in_order_after_its_own_label(written, longest):
    before, output.LONGEST_PART = output.LONGEST_PART, longest
    try:
        data = shown(*written)
    finally:
        output.LONGEST_PART = before
    found = {"a": b"", "b": b""}
    for line in data.split(b"\n"):
        parts = [re.fullmatch(rb"\[(.)\] ([xy]*)", part) for part in line.split(b"\r") if part]
        assert all(parts) and len({part[1] for part in parts}) <= 1
        for part in parts:
            found[part[1].decode()] += part[2]
    for task, text in found.items():
        whole = b"".join(chunk.data for chunk in written if chunk.task == task)
        assert text == re.sub(rb"[\r\n]", b"", whole)
    assert not data or data.endswith(b"\n")


@given(strategies.lists(strategies.text("xy", max_size=4), max_size=6), strategies.integers(1, 5))
def test_lines_are_the_same_however_the_data_is_split(lines, size):
    data = "".join(f"{line}\n" for line in lines).encode()
    cut = [Chunk("a", data[at : at + size]) for at in range(0, len(data), size)]
    assert shown(*cut).decode() == "".join(f"[a] {line}\n" for line in lines)


# A very long line


def test_long_line_is_passed_on_in_pieces_with_little_buffering():
    one, sent, written = Labels(), 0, b""
    for _ in range(256):
        sent += 4096
        written += one.feed("a-0", b"x" * 4096)
        assert sent - written.count(b"x") < LONGEST_PART
    assert written + one.end() == b"[a-0] " + b"x" * sent + b"\n"


def test_long_line_interrupted_by_another_task_continues_after_its_label():
    data = shown(Chunk("a", b"x" * LONGEST_PART), Chunk("b", b"other\n"), Chunk("a", b"y\n"))
    assert data == b"[a] " + b"x" * LONGEST_PART + b"\n[b] other\n[a] y\n"


def test_line_splitter_keeps_only_the_end_of_a_very_long_line(monkeypatch):
    monkeypatch.setattr(output, "LONGEST_LINE", 10)
    lines = LineSplitter()
    assert not [line for at in range(100) for line in lines.feed(Chunk("a", b"%d," % at))]
    assert list(lines.feed(Chunk("a", b"end\nx"))) == [Chunk("a", b",97,98,99,end\n")]
    assert list(lines.end()) == [Chunk("a", b"x\n")]


def seconds(megabytes, act):
    """Processor time for a line of this length that comes in many small pieces: the best of three tries."""
    pieces = [Chunk("a-0", b"x" * 512)] * (megabytes * MEGABYTE // 512)
    tries = []
    for _ in range(3):
        begin = time.process_time()
        act(pieces)
        tries.append(time.process_time() - begin)
    return min(tries)


def whole_lines(pieces):
    lines = LineSplitter()
    return [*(line for piece in pieces for line in lines.feed(piece)), *lines.end()]


def labelled_lines(pieces):
    return sum(map(len, add_labels(pieces)))


def plain_lines(pieces):
    return sum(map(len, add_labels(strip_control_characters(pieces))))


@pytest.mark.parametrize("act", [labelled_lines, plain_lines, whole_lines])
def test_time_grows_about_linearly_with_the_line_length(act):
    assert seconds(8, act) < 32 * seconds(1, act)  # a quadratic algorithm would take 64 times as long
