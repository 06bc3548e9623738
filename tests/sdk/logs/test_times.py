"""The times of output, as a runner records them."""

import random
import struct

import pytest

from openpai_tasks.sdk.logs import times
from openpai_tasks.sdk.logs.output import Chunk, TaskOutput, add_times
from openpai_tasks.sdk.logs.times import UNKNOWN, OutputTimes, Written, format_time
from tests.sdk.logs.memory_log import MemoryLog


def record(stdout, stderr, time, is_error):
    return struct.pack("<QQQ", stdout, stderr, 2 * time + is_error)


def recorded(count, seed=4):
    """Return records, and for each byte of each stream when it was written."""
    pick, sizes, data = random.Random(seed), [0, 0], b""
    known = {"all": [], "stdout": [], "stderr": []}
    for time in range(count):
        is_error, size = pick.choice([True, False]), pick.randrange(1, 9)
        data += record(*sizes, time, is_error)
        sizes[is_error] += size
        for name in ("all", "stderr" if is_error else "stdout"):
            known[name] += [Written(time, is_error)] * size
    return data, known


@pytest.mark.parametrize("stream", ["all", "stdout", "stderr"])
def test_each_byte_has_its_time_in_any_order(monkeypatch, stream):
    monkeypatch.setattr(times, "AT_ONCE", 7)
    data, known = recorded(500)
    wanted = known[stream]
    output = bytes(index % 251 for index in range(len(wanted)))
    found = OutputTimes(MemoryLog(data), stream)
    for begin, end in ((900, 1000), (0, 10), (10, len(wanted)), (5, 6), (len(wanted) - 3, len(wanted))):
        parts = list(found.split(begin, output[begin:end]))
        assert b"".join(part for _, part in parts) == output[begin:end]
        assert [written for written, part in parts for _ in part] == wanted[begin:end]
    places = range(3, len(wanted), 50)
    assert list(found.at(places)) == [wanted[place] for place in places]


def test_records_that_were_added_are_read_and_a_torn_one_later():
    log = MemoryLog(record(0, 0, 1, False))
    found = OutputTimes(log, "all")
    assert list(found.split(0, b"ab")) == [(Written(1), b"ab")]
    log.data += record(2, 0, 5, True)[:10]
    assert list(found.split(2, b"c")) == [(Written(1), b"c")]
    log.data = record(0, 0, 1, False) + record(2, 0, 5, True)
    assert list(found.split(2, b"cd")) == [(Written(5, True), b"cd")]


def test_records_are_asked_for_once_if_there_are_none():
    log = MemoryLog(has_parts=False)
    found = OutputTimes(log, "all")
    assert list(found.split(0, b"ab")) == [(UNKNOWN, b"ab")] and found.is_absent
    assert list(found.at([0, 5])) == [UNKNOWN, UNKNOWN]


def test_the_last_lines_have_their_times():
    log, records = MemoryLog(b"one\ntwo\nthree\n"), record(0, 0, 1, False) + record(4, 0, 9, True)
    output = TaskOutput(log, lines=2, times=OutputTimes(MemoryLog(records), "all"))
    assert [(chunk.data, chunk.written) for chunk in output.read("")] == [(b"two\nthree\n", Written(9, True))]


def test_a_time_is_put_before_each_line():
    first, second = (format_time(time) for time in (1000, 2000))
    chunks = [
        *(Chunk("", b"a\nb", written=Written(1000)), Chunk("", b"", pause=1.0)),
        *(Chunk("", b"b\nc\n", written=Written(2000)), Chunk("", b"1\r2\r", written=Written(1000))),
    ]
    said = []
    text = b"".join(chunk.data for chunk in add_times(chunks, said.append)).decode()
    assert text == f"{first} a\n{first} bb\n{second} c\n{first} 1\r{first} 2\r"
    assert not said and len(format_time(None)) == len(first)


def test_output_without_times_is_unchanged_and_reported_once():
    said = []
    chunks = list(add_times([Chunk("", b"a\n"), Chunk("", b"b\n")], said.append))
    assert [chunk.data for chunk in chunks] == [b"a\n", b"b\n"]
    assert said == ["warning: no times were recorded for this output"]
