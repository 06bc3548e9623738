"""Lines of long logs by number, and their last lines."""

import random

import pytest

from openpai_tasks.errors import NotFound
from openpai_tasks.sdk.logs import long_logs
from openpai_tasks.sdk.logs.long_logs import NumberedLog, find_last_lines, shorten
from tests.sdk.logs.memory_log import MemoryLog

MB = 1 << 20


def lengths(seed, count):
    """Return lines of many lengths: empty, short, and a few that are longer than a block."""
    pick = random.Random(seed)
    return [
        b"x" * pick.choice([0, 1, 7, 80, 80, 80, 3000, 3000, *([5 * MB // 4] * (n % 97 == 0))])
        for n in range(count)
    ]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_lines_are_found_by_number_in_any_order(end):
    lines = lengths(1, 500)
    lines[-1] = b"last"
    data = b"\n".join(lines) + end
    log = NumberedLog(MemoryLog(data))
    assert log.read(499, 10).lines == (b"last",)
    for first in (0, 498, 97, 96, 250, 1):
        found = log.read(first, 3)
        assert (
            found.lines == tuple(map(shorten, lines[first : first + 3]))[: len(found.lines)] and found.lines
        )
        begins = [sum(len(line) + 1 for line in lines[:number]) for number in range(first, first + 3)]
        assert list(found.offsets) == begins[: len(found.offsets)]
        assert [log.count(begin) for begin in found.offsets] == list(range(first, first + len(found.lines)))
    assert log.total() == 500
    assert log.read(500, 3).lines == () and log.read(10**9, 3).lines == ()


def test_lines_are_counted_once_and_again_only_where_the_log_has_grown():
    source = MemoryLog(b"0123456\n" * (40 * MB // 8))
    log = NumberedLog(source)
    assert log.total() == 5 * MB
    source.read_bytes = 0
    source.data += b"more\n"
    assert log.total() == 5 * MB + 1
    assert log.read(5 * MB - 1, 9).lines == (b"0123456", b"more")
    assert source.read_bytes < 3 * MB


def test_a_very_long_line_is_cut_and_does_not_hide_those_after_it():
    data = b"first\n" + b"y" * (9 * MB) + b"\n" + b"bar 1\r" * MB + b"bar 2\nlast\n"
    log = NumberedLog(MemoryLog(data))
    assert log.read(0, 10).lines == (b"first",)
    (long,) = log.read(1, 10).lines
    assert long == b"y" * long_logs.LONGEST
    assert log.read(2, 1).lines[0].startswith(b"bar 1\rbar 1")
    assert log.read(3, 10).lines == (b"last",)


def test_an_empty_log_has_no_lines():
    log = NumberedLog(MemoryLog())
    assert (log.total(), log.read(0, 5).lines) == (0, ())


def test_a_log_without_parts_cannot_be_read_by_line():
    with pytest.raises(NotFound, match="parts of this log"):
        NumberedLog(MemoryLog(b"1\n", has_parts=False)).total()


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("count", [1, 2, 499, 500, 501])
def test_the_last_lines_are_found_from_the_end(count, end):
    lines = lengths(2, 500)
    lines[-1] = b"last"
    data = b"\n".join(lines) + end
    found = data[find_last_lines(MemoryLog(data), count) :]
    assert found == b"\n".join(lines[-count:]) + end


def test_few_last_lines_of_a_long_log_cost_little():
    source = MemoryLog(b"0123456\n" * (40 * MB // 8))
    assert find_last_lines(source, 1000) == 40 * MB - 8000
    assert source.read_bytes < MB


def test_last_lines_keep_a_limit_of_bytes():
    source = MemoryLog(b"0123456\n" * MB)
    begin = find_last_lines(source, MB, most=1001)
    assert len(source.data) - begin == 1000
    assert find_last_lines(MemoryLog(b"z" * MB), 5, most=10) == MB - 10
