"""The output of several jobs in one stream."""

import pytest

from openpai_tasks.errors import ApiError
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.output import COLOURS, Chunk, add_labels, merge_jobs


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only pauses move."""
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def read(clock, **jobs):
    """Return the output, and the pauses between."""
    found = []
    for chunk in merge_jobs({name: iter(chunks) for name, chunks in jobs.items()}):
        found.append(round(chunk.pause, 3) if chunk.pause else (chunk.task, chunk.data))
        clock[0] += chunk.pause
    return found


def test_labels_have_the_job_and_its_task_if_it_has_several(clock):
    found = read(clock, a=[Chunk("", b"1\n")], b=[Chunk("main-0", b"2\n"), Chunk("main-1", b"3\n")])
    assert found == [("a", b"1\n"), ("b/main-0", b"2\n"), ("b/main-1", b"3\n")]


def test_each_job_is_read_when_its_own_pause_is_over(clock):
    slow = [Chunk("", b"1"), Chunk("", b"", 1.0), Chunk("", b"2")]
    quick = [Chunk("", b"x"), Chunk("", b"", 0.4), Chunk("", b"y"), Chunk("", b"", 0.4), Chunk("", b"z")]
    expected = [("a", b"1"), ("b", b"x"), 0.4, ("b", b"y"), 0.4, ("b", b"z"), 0.2, ("a", b"2")]
    assert read(clock, a=slow, b=quick) == expected


def test_an_unreadable_job_does_not_hide_the_others(clock):
    def broken():
        yield Chunk("", b"1")
        raise ApiError("no log", 500)

    found = []
    with pytest.raises(ApiError, match="no log"):
        for chunk in merge_jobs({"a": broken(), "b": iter([Chunk("", b"2")])}):
            found.append((chunk.task, chunk.data))
    assert found == [("a", b"1"), ("b", b"2")]


def test_each_label_has_its_colour_in_turn():
    chunks = [Chunk(f"t-{number}", b"x\n") for number in (*range(11), 0)]
    lines = b"".join(add_labels(chunks, coloured=True)).decode().splitlines()
    codes = [*COLOURS, COLOURS[0], COLOURS[0]]
    numbers = (*range(11), 0)
    assert lines == [f"\x1b[{code}m[t-{one}]\x1b[0m x" for code, one in zip(codes, numbers, strict=True)]


def test_one_task_has_no_label_and_no_colour():
    assert b"".join(add_labels([Chunk("", b"x\n")], coloured=True)) == b"x\n"
