"""Samples of what a task uses, and the bounds of their file."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.engines.runner.memory import MemoryGroup
from openpai_tasks.server.engines.runner.usage import Row, UsageRecorder
from tests.server.engines.test_runner import linux, prepare, result, start
from tests.server.workshop import until

SPAN = 3 * 86400


class Clock:
    """The time, and the processor time of the samples."""

    def __init__(self) -> None:
        self.now = self.cost = 0.0

    def wall(self) -> int:
        return int(self.now * 1000)


def recorder(path: Path, clock: Clock) -> UsageRecorder:
    return UsageRecorder(str(path), lambda: clock.now, clock.wall, lambda: clock.cost)


def read(path: Path) -> list[Row]:
    return usage.parse_rows(path.read_text())


def run_until(recording: UsageRecorder, clock: Clock, end: float) -> None:
    while recording.due is not None and recording.due <= end:
        clock.now = recording.due
        recording.advance()


def test_a_job_of_days_has_a_bounded_number_of_rows_that_cover_all_of_it(tmp_path: Path) -> None:
    path, clock = tmp_path / "usage", Clock()
    recording = recorder(path, clock)
    recording.begin(lambda seconds: {"cpu": 1.0, "memory": clock.now})
    run_until(recording, clock, SPAN)
    recording.finish()
    rows = read(path)
    assert usage.ROWS // 2 <= len(rows) <= usage.ROWS and path.stat().st_size < 100_000
    assert sum(row.seconds for row in rows) == pytest.approx(SPAN, rel=0.001)
    assert all(after.time > before.time for before, after in itertools.pairwise(rows))
    assert {row.values["cpu"] for row in rows} == {(1.0, 1.0)}
    assert rows[-1].values["memory"][1] == pytest.approx(SPAN, abs=20)
    assert max(row.seconds for row in rows) > 200


def test_merged_rows_keep_the_mean_by_time_and_the_maximum() -> None:
    first = Row(1000, 1.0, {"cpu": (4.0, 8.0), "gpu0": (50.0, 100.0)})
    merged = usage.merge([first, Row(2000, 3.0, {"cpu": (0.0, 0.5)})])
    assert (merged.time, merged.seconds) == (1000, 4.0)
    assert merged.values == {"cpu": (1.0, 8.0), "gpu0": (50.0, 100.0)}
    assert len(usage.thin_out([first] * 10, 4)) == 4 and len(usage.thin_out([first] * 3, 4)) == 3


def test_lines_that_a_task_has_written_itself_are_left_out() -> None:
    good = str(Row(1, 2.0, {"cpu": (0.5, 0.5)}))
    bad = ["", "x", "1 2 cpu", "1 -2 cpu=1:1", "1 2 cpu=nan:1", "1 2 cpu=inf:1", f"{'9' * 20} 2 cpu=1:1"]
    rows = usage.parse_rows("\n".join([*bad, good, "1 0 cpu=1:1"]))
    assert [str(row) for row in rows] == [good]


def test_slow_samples_are_taken_rarely_unless_only_one_was_slow(tmp_path: Path) -> None:
    clock = Clock()
    recording, costs = recorder(tmp_path / "usage", clock), iter([0.0, 0.05, 0.0, 0.05, 0.05])

    def measure(seconds: float) -> dict[str, float]:
        clock.cost += next(costs)
        return {"cpu": 1.0}

    recording.begin(measure)
    pauses = []
    for _ in range(5):
        assert recording.due is not None
        clock.now = recording.due
        recording.advance()
        pauses.append(recording.due - clock.now)
    assert pauses == pytest.approx([2.0, 2.0, 2.0, 2.0, 100.0])


def test_a_full_or_missing_folder_does_not_end_the_recording(tmp_path: Path) -> None:
    clock = Clock()
    recording = recorder(tmp_path / "missing" / "usage", clock)
    recording.begin(lambda seconds: {"cpu": 1.0})
    run_until(recording, clock, 10)
    (tmp_path / "missing").mkdir()
    run_until(recording, clock, 20)
    assert len(read(tmp_path / "missing" / "usage")) == 5


def test_control_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    files = {
        "new": {
            "cpu.stat": "usage_usec 2500000\n",
            "memory.current": "900",
            "memory.stat": "inactive_file 100\n",
        },
        "old": {
            "cpuacct.usage": "1500000000",
            "cpu.stat": "nr_periods 0\n",
            "memory.usage_in_bytes": "900",
            "memory.stat": "total_inactive_file 300\n",
        },
        "none": {},
    }
    for folder, content in files.items():
        (tmp_path / folder).mkdir()
        for name, text in content.items():
            (tmp_path / folder / name).write_text(text)
    found = {name: usage.read_group(MemoryGroup(0, str(tmp_path / name))) for name in files}
    assert found == {"new": (2.5, 800), "old": (1.5, 600), "none": (None, None)}


@linux
def test_processes_of_threads_and_of_ended_parents_count() -> None:
    begin = "threading.Thread(target=subprocess.run, args=[['sleep', '60']]).start()"
    code = f"import subprocess, threading\n{begin}"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        try:
            found = until(lambda: len(own := usage.descendants([parent.pid])) >= 2 and own)
            assert parent.pid in found
            seconds, size = usage.read_processes(found)
            assert seconds >= 0 and size > 1 << 20
            assert 0 < sum(map(usage._share, found)) <= 2 * size
        finally:
            for pid in usage.descendants([parent.pid]):
                os.kill(pid, 9)


@linux
def test_a_container_is_found_by_its_first_process_even_if_this_process_has_not_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "entry"
    script.write_text("sleep 60 & wait\n")
    monkeypatch.setattr(usage, "CONTAINER_COMMAND", ("/bin/sh", str(script)))
    meter, clock = usage.ContainerMeter(b"uid"), Clock()
    recording = recorder(tmp_path / "usage", clock)
    recording.begin(meter.read)
    run_until(recording, clock, 3)
    recording.end()
    assert usage.parse_note((tmp_path / "usage").read_text()) == usage.BLIND  # it may still be pulled
    with (
        subprocess.Popen(["/bin/sh", script, "other"]) as other,
        subprocess.Popen(["/bin/sh", script, "uid"]) as own,
    ):
        try:
            until(lambda: len(usage.descendants([own.pid])) == 2)
            assert meter.read(1.0)["memory"] > 1 << 17
            assert meter.pid == own.pid
        finally:
            for pid in usage.descendants([own.pid, other.pid]):
                os.kill(pid, 9)
    assert meter.read(1.0) == {}


@linux
def test_a_task_that_ended_before_the_first_sample_was_not_invisible(tmp_path: Path) -> None:
    """Its runner stands still until that sample is due."""
    prepare(tmp_path, "(sleep 2.5; kill -CONT $PPID) & kill -STOP $PPID; exit 3")
    assert start(tmp_path).wait(60) == 0 and result(tmp_path)["code"] == "3"
    assert not (tmp_path / "logs/usage").exists()


def test_lines_of_nvidia_smi_are_averaged_by_gpu() -> None:
    lines = [b"0, 50, 1000", b"1, [N/A], 10", b"0, 100, 2000", b"No devices were found", b"99999999, 1, 1"]
    assert usage.average_gpus(lines) == {"gpu0": 75.0, "gpu0.mb": 1500.0, "gpu1.mb": 10.0}


@linux
def test_a_runner_records_its_task_and_its_gpus_but_not_nvidia_smi(tmp_path: Path) -> None:
    """The fake program reports one line and burns no time; it ends, and is started again."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text('#!/bin/sh\necho "$@" >>"$0.calls"\necho "3, 40, 512"\n')
    (tools / "nvidia-smi").chmod(0o755)
    folder = tmp_path / "task"
    folder.mkdir()
    path = f"{tools}:{os.environ['PATH']}"
    prepare(folder, "while true; do :; done", PATH=path, CUDA_VISIBLE_DEVICES="3")
    with start(folder) as process:
        try:
            until(lambda: (folder / "logs/usage").exists() and "gpu3=" in (folder / "logs/usage").read_text())
        finally:
            process.terminate()
    rows = read(folder / "logs/usage")
    gpu = next(row.values for row in rows if "gpu3" in row.values)  # later ones may be without it
    assert (gpu["gpu3"], gpu["gpu3.mb"]) == ((40, 40), (512, 512))
    assert max(row.values["cpu"][1] for row in rows) > 0 and rows[0].values["memory"][0] > 1 << 19
    assert (tools / "nvidia-smi.calls").read_text().startswith("-i 3 --query-gpu=index,")
