"""Putting a job's output together."""

from openpai_tasks.sdk.logs.output import Chunk, add_labels, choose_stream, last_lines


def test_output_of_a_single_task_is_shown_unchanged():
    assert list(add_labels([Chunk("", b"50%\r"), Chunk("", b"100%")])) == [b"50%\r", b"100%"]


def test_lines_of_several_tasks_are_never_mixed():
    chunks = [Chunk("a-0", b"one t"), Chunk("b-0", b"other\n"), Chunk("a-0", b"wo\nthree")]
    assert list(add_labels(chunks)) == [b"[b-0] other\n", b"[a-0] one two\n", b"[a-0] three\n"]


def test_last_lines_are_counted_per_task():
    chunks = [Chunk("a", b"1\n2\n3"), Chunk("b", b"x\n")]
    assert [(chunk.task, chunk.data) for chunk in last_lines(chunks, 2)] == [
        ("a", b"2\n"),
        ("a", b"3\n"),
        ("b", b"x\n"),
    ]


def test_zero_last_lines_show_nothing():
    assert list(last_lines([Chunk("", b"1\n2\n")], 0)) == []


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
