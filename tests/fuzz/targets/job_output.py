"""What the program of a job writes: metrics, log records, output, and the times of its output."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks import causes
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.render import charts, drawing, text
from openpai_tasks.sdk.diagnosis import symptoms
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader, metric_rows
from openpai_tasks.sdk.logs.json_lines import FileLines, LineOrigin, list_files
from openpai_tasks.sdk.logs.structured import RecordFilter, parse_filter, parse_line
from openpai_tasks.sdk.logs.times import OutputTimes, format_time
from openpai_tasks.sdk.notebooks.progress import ProgressReader
from openpai_tasks.server.scheduling import task_end
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.tasks.views import sweeps
from openpai_tasks.text import plain
from tests.fuzz.scratch import empty_folder, home_folder
from tests.fuzz.target import Target

JOB = JobInfo("job", "me", "FAILED", "default", None, None, None, 1, 1, 0, 0, 0, 1, ())
CLIENT = cast(Any, SimpleNamespace(cluster=Cluster("lab", "http://lab.invalid"), user="me", storages=list))


def _written(kind: str, data: bytes) -> Location:
    """Return the output folder of a job that has written these lines."""
    folder = empty_folder("output")
    (folder / ".pai" / kind).mkdir(parents=True)
    (folder / ".pai" / kind / "worker-0-0.jsonl").write_bytes(data)
    return Location(LocalStore(str(folder)), "/", str(folder))


def _metrics(data: bytes) -> object:
    place = (JOB, _written("metrics", data))
    with home_folder({}):  # where long metrics are kept
        MetricReader(CLIENT, JOB, is_thinned=True, place=place).read()
    found = MetricReader(CLIENT, JOB, place=place).read()
    _show_metrics(found)
    return found


def _show_metrics(found: list[Metric]) -> None:
    x = charts.x_choices(found)[-1]
    drawing.draw(sweeps.metrics_view(found, sweeps.metric_charts(found, x, found)), 80)
    json.loads(text.format_values(metric_rows(found), None, "json"))


def _records(data: bytes) -> object:
    folder = _written("logs", data)
    chosen = parse_filter("info", None, "a+b")
    shown = 0
    for entry in list_files(folder, "logs"):
        for line in FileLines(folder.store, entry).new(1 << 16, is_last=True):
            if record := parse_line(line, LineOrigin(0, "worker", 0)):
                for one in (RecordFilter(), chosen):
                    shown += one.matches(record, record.time or 0)
                text.log_line(record).encode()
                json.loads(text.json_line(record).encode())
    return shown


class _Log:
    """A log that is served from memory."""

    is_absent = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_range(self, start: int, stop: int) -> bytes:
        return self._data[start:stop]


def _times(data: bytes) -> object:
    found = []
    for stream in ("all", "stdout", "stderr"):
        times = OutputTimes(cast(Any, _Log(data)), stream)
        for offset in (0, 5, 1 << 40, 3):
            found += list(times.split(offset, b"some output of a task"))
        found += times.at([0, 7, 1 << 63])
    return [format_time(one[0].time) for one in found if isinstance(one, tuple)]


def _causes(data: bytes) -> object:
    code, lines = (data or b"\0")[0], data[1:].decode("utf-8", "replace").splitlines()
    cause = causes.find_cause(lines, code)
    task_end.find_cause(code, data[1:])
    symptoms.explain_mount(CLIENT, JOB, lines)
    event = symptoms.in_events(lines)
    if cause is None:
        return event
    return cause.headline, cause.advice, symptoms.explain_missing(CLIENT, JOB, cause)


def _plain(data: bytes) -> object:
    """Show output; the same output in pieces must be shown in the same way."""
    whole = plain.PlainBytes().feed(data, final=True)
    reader = plain.PlainBytes()
    pieces = b"".join(_pieces(reader, data))
    assert whole == pieces, "output in pieces is shown in another way"
    shown = whole.decode()
    assert plain.is_plain(shown), "unsafe characters are shown"
    decoded = data.decode("utf-8", "surrogateescape")
    for show in (plain.plain, plain.one_line, plain.last_line, plain.keep_colours, plain.keep_redraws):
        show(decoded).encode()
    plain.escape_json(json.dumps(decoded, ensure_ascii=False)).encode()
    return plain.width(shown)


def _pieces(reader: plain.PlainBytes, data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 7):
        yield reader.feed(data[at : at + 7])
    yield reader.feed(b"", final=True)


def _progress(data: bytes) -> object:
    reader = ProgressReader()
    return [reader.read(line) for line in data.splitlines(keepends=True)]


METRICS = b"""{"time": 1700000000.5, "name": "loss", "value": 0.5, "step": 1, "role": "worker", "index": 0}
{"time": 1700000001, "name": "loss", "value": NaN, "step": null, "attempt": 1}
{"time": 1700000002.5, "name": "epoch", "value": 1, "step": 1}
"""
RECORDS = b"""{"time": 1700000000.5, "level": "INFO", "logger": "train", "message": "begun", "role": "worker"}
plain text
{"time": "never", "message": {"a": [1]}, "exception": "Traceback", "index": 3}
"""
OUTPUT = (
    b'\1Traceback (most recent call last):\n  File "/tmp/1/job-0-0/work/train.py", line 3, in <module>\n'
    b"    import torch\nModuleNotFoundError: No module named 'torch'\n",
    b"\x7fbash: line 1: nosuch: command not found\n",
    b"\1RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\nWarning: FailedMount MountVolume\n",
    b"\1FileNotFoundError: [Errno 2] No such file or directory: '/data/a.txt'\n",
)
TARGETS = (
    Target("metrics", _metrics, (METRICS,)),
    Target("log-records", _records, (RECORDS,)),
    Target("output-times", _times, (struct.pack("<9Q", 0, 0, 3400000000000, 5, 0, 3400000000201, 5, 9, 8),)),
    Target("causes", _causes, OUTPUT),
    Target(
        "plain-text",
        _plain,
        (b"\x1b[31mred\x1b[0m\r\n50%\r100%\n", "ä\u202e\ud83d".encode("utf-8", "replace")),
    ),
    Target(
        "notebook-progress",
        _progress,
        (b"notebook: 3 cells, kernel python3\nnotebook: cell 1 of 3: a = 1\nnotebook| KeyError\n",),
    ),
)
