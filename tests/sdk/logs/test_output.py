"""Putting a job's output together."""

import pytest

from openpai_tasks.sdk.logs.output import Chunk, LogStart, TaskOutput, add_labels, choose_stream
from tests.sdk.logs.memory_log import MemoryLog


def test_output_of_a_single_task_is_shown_unchanged():
    assert list(add_labels([Chunk("", b"50%\r"), Chunk("", b"100%")])) == [b"50%\r", b"100%"]


def test_lines_of_several_tasks_are_never_mixed():
    chunks = [Chunk("a-0", b"one t"), Chunk("b-0", b"other\n"), Chunk("a-0", b"wo\nthree")]
    assert list(add_labels(chunks)) == [b"[b-0] other\n", b"[a-0] one two\n", b"[a-0] three\n"]


@pytest.mark.parametrize("has_parts", [True, False])
def test_the_first_read_gives_the_last_lines_and_the_next_what_was_added(has_parts):
    log = MemoryLog(b"1\n2\n3\n4", has_parts)
    output = TaskOutput(log, lines=2)
    first = list(output.read("a"))
    assert b"".join(chunk.data for chunk in first).split() == [b"3", b"4"]
    assert first[0].start == (LogStart(4, None) if has_parts else LogStart(None, 2))
    log.data += b"5\n"
    assert [(chunk.task, chunk.data, chunk.start) for chunk in output.read("a")] == [("a", b"5\n", None)]


@pytest.mark.parametrize("has_parts", [True, False])
def test_zero_last_lines_show_only_what_is_added(has_parts):
    log = MemoryLog(b"1\n2\n", has_parts)
    output = TaskOutput(log, lines=0)
    assert not list(output.read(""))
    log.data += b"3\n"
    assert [chunk.data for chunk in output.read("")] == [b"3\n"]


def test_a_log_that_is_shorter_begins_with_line_zero():
    for has_parts in (True, False):
        (chunk, *_) = TaskOutput(MemoryLog(b"1\n", has_parts), lines=2).read("")
        assert chunk.start == LogStart(0, 0)


def test_both_stream_flags_or_none_select_all_output():
    assert [
        choose_stream(False, False),
        choose_stream(True, True),
        choose_stream(True, False),
        choose_stream(False, True),
    ] == [
        "all",
        "all",
        "stdout",
        "stderr",
    ]
