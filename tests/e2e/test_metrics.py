"""Metrics and log records that programs wrote in their jobs, read by commands on a real embedded cluster."""

import csv
import io
import json
import math
import os
import re
import shlex
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.jobs import job_cache, metric_points, metrics
from openpai_tasks.sdk.logs import json_lines
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.local.store import LocalStore
from tests.attacks import ALL, forbidden
from tests.test_docs import commands

ROOT = Path(__file__).parents[2]
LINES, PADDING = 2_500, "." * 500  # more than a piece of 1 MiB in each file
TASKS = 3

WRITER = f"""
import logging, time
from openpai_tasks import runtime

def stamp(record):
    record.created = time.monotonic()  # which never goes back
    return True

logging.getLogger().addHandler(logging.NullHandler())  # not to the terminal
logging.getLogger().addFilter(stamp)
runtime.setup_logging()
for number in range({LINES}):
    logging.info("line %d {PADDING}", number)
"""
BOTH = """
import json, os, sys
attempt = int(os.environ["FC_FRAMEWORK_ATTEMPT_ID"])
for step in (0, 1) if attempt == 0 else (1, 2):
    point = {"time": 100.0 * attempt + step, "name": "loss", "value": 10 * attempt + step, "step": step}
    record = {"time": 100.0 * attempt + step, "level": "INFO", "message": f"step {step}"}
    print(json.dumps(point), file=sys.stderr)
    print("not a record", file=sys.stderr)
    print(json.dumps(record), file=sys.stderr)
sys.exit(1 - attempt)
"""
DOCUMENT = {
    "protocolVersion": 2,
    "name": "no-folder",
    "type": "job",
    "jobRetryCount": 1,
    "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "python:3"}],
    "taskRoles": {
        "main": {
            "instances": 1,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
            "commands": [f"python3 -c {shlex.quote(BOTH)}"],
        }
    },
}


@pytest.fixture(scope="module")
def client(cluster):
    """A connection in this process, to call the SDK without a command; the jobs are there already."""
    for name in ("empty", "written", "other"):
        cluster.ok("job.sub", "true", "-j", name, "--cpu", "1", "--mem", "64m")
    for name in ("empty", "written", "other"):
        cluster.ok("job.wait", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPAI_HOME", str(cluster.home))
        yield known.connect(Settings.load(), "local")


@pytest.fixture
def written(client, cluster):
    """Write the files of a job; they are removed after the test."""
    [home] = (cluster.home / "local" / "storage" / "home").iterdir()
    made = []

    def write(kind, name, *lines, job="written"):
        path = home / "jobs" / job / "output" / ".pai" / kind / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, (bytes, str)) else json.dumps(line) for line in lines]
        data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in texts)
        with path.open("ab") as file:
            file.write(data)
        made.append(path)
        return path

    yield write
    for path in made:
        path.unlink(missing_ok=True)


def point(step, value, name="loss", time=1.0, **origin):
    fields = {"time": time, "name": name, "value": value, "step": step, "role": "main", "index": 0}
    return {**fields, "attempt": 0, **origin}


def record(time, message, level="INFO", **more):
    return {"time": time, "level": level, "logger": "root", "message": message, **more}


def messages(client, **options):
    return [line.message for line in sdk.logs.read_structured(client, "written", **options)]


def test_records_of_several_tasks_are_all_shown_in_order(cluster):
    (cluster.project / "writer.py").write_text(WRITER)
    cluster.ok(
        *("job.sub", "python3 writer.py", "--sources", "writer.py", "-j", "noisy", "--follow"),
        *("--instances", str(TASKS), "--cpu", "1", "--mem", "64m"),
    )
    found = [
        json.loads(line)
        for line in cluster.ok("job.logs", "noisy", "--structured", "-o", "json").out.splitlines()
    ]
    assert len(found) == TASKS * LINES
    assert all(one["time"] <= other["time"] for one, other in pairwise(found))
    for index in range(TASKS):
        own = [one["message"] for one in found if one["index"] == index]
        assert own == [f"line {number} {PADDING}" for number in range(LINES)]


def test_a_job_without_an_output_folder_is_read_from_the_logs_of_all_attempts(cluster):
    (cluster.project / "no-folder.yaml").write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))
    cluster.ok("job.submit", "no-folder.yaml")
    cluster.ok("job.wait", "no-folder")
    found = cluster.ok("job.metrics", "no-folder", "-o", "json").json()
    assert [(one["attempt"], one["step"], one["value"]) for one in found] == [
        (0, 0, 0),
        (1, 1, 11),
        (1, 2, 12),
    ]
    shown = cluster.ok("job.logs", "no-folder", "--structured").out.splitlines()
    assert [line.partition(" INFO     ")[2] for line in shown if "INFO" in line] == [
        *("main-0 step 0", "main-0 step 1", "main-0#1 step 1", "main-0#1 step 2")
    ]
    assert sum("not a record" in line for line in shown) == 4
    ran = cluster.ok("job.logs", "no-folder", "--structured", "--level", "info")
    assert "not a record" not in ran.out and "left out 4 lines of output" in ran.err
    only = cluster.ok("job.logs", "no-folder", "--structured", "--attempt", "1", "-o", "json").out
    assert [json.loads(line)["attempt"] for line in only.splitlines()] == [1, 1]


def test_records_keep_their_order_in_a_task_whatever_their_times(client, written):
    written("logs", "main-0-0", record(5, "a"), record(2, "b"), "torn {", record(None, "c"), record(9, "d"))
    written("logs", "main-1-0", record(1, "w"), record(5.5, "x"), record(6, "y"), record(10, "z"))
    assert messages(client) == ["w", "a", "b", "torn {", "c", "x", "y", "d", "z"]
    assert messages(client, lines=2) == ["d", "z"] and messages(client, lines=0) == []
    assert messages(client, which=sdk.logs.LogChoice(index=0)) == ["a", "b", "torn {", "c", "d"]


def test_records_are_filtered_by_level_time_and_text(client, written):
    written(
        *("logs", "main-0-0", record(1000, "one", "DEBUG"), record(2000, "two", "WARN"), "plain"),
        *(record(3000, "three", "TRACE"), record(4000, "four", "error", exception="Traceback: ouch")),
    )
    parse = sdk.logs.parse_filter
    assert messages(client, chosen=parse(level="warning")) == ["two", "three", "four"]
    assert messages(client, chosen=parse(since="1970-01-01T00:33:20+00:00")) == [
        "two",
        "plain",
        "three",
        "four",
    ]
    assert messages(client, chosen=parse(since="1h")) == []
    assert messages(client, chosen=parse(grep="^t|ouch")) == ["two", "three", "four"]


@pytest.mark.parametrize(
    "flags, expected",
    [
        (("--level", "loud"), "no level named 'loud'"),
        (("--since", "yesterday"), "--since: expected a duration"),
        (("--grep", "("), "not a regular expression"),
        (("-o", "csv"), "no output format 'csv'"),
        (("--role", "nobody"), "no role 'nobody'"),
        (("--attempt", "7"), "only attempt 0"),
        (("-n", "-1"), "must not be negative"),
    ],
)
def test_wrong_flags_of_records_are_refused(client, cluster, flags, expected):
    ran = cluster.inv("job.logs", "written", "--structured", *flags)
    assert ran.code == 120 and expected in ran.err and not ran.out


def test_a_job_without_records_is_reported(client, cluster):
    ran = cluster.ok("job.logs", "empty", "--structured")
    assert not ran.out and "no log records found" in ran.err


def test_flags_of_records_need_structured(client, cluster):
    ran = cluster.inv("job.logs", "written", "--grep", "x")
    assert ran.code == 120 and "--grep needs --structured" in ran.err


HOSTILE = [
    b"\xff\xfe\x00 binary \x1b[2J",
    "x" * (3 << 20),
    '{"message": ' + "[" * 100_000,
    '{"message": ' + '{"a": ' * 500 + "1" + "}" * 500 + "}",
    '{"message": {"nested": [1, NaN]}, "time": NaN, "level": ["x"], "role": 7, "index": "0", "attempt": -1}',
    '{"message": "far", "time": 1e300, "level": 30}',
    '{"message": "big", "time": ' + "9" * 5000 + "}",
    '{"message": "' + "\\ud800 \\u202e \\u0000 \\u001b[31m" + '", "exception": {"a": 1}}',
    '{"name": "x", "value": "text", "time": 1}',
    '{"time": 1}',
    "[1, 2]",
    "null",
    "",
    '{"message": "half',
]


def test_hostile_lines_are_shown_or_left_out_and_never_control_the_terminal(client, cluster, written):
    written("logs", "main-0-0", *HOSTILE, record(1, ALL), record(2, "end"))
    ran = cluster.ok("job.logs", "written", "--structured")
    assert not forbidden(ran.out) and "Traceback" not in ran.err
    assert ran.out.endswith(" INFO     main-0 end\n") and "binary" in ran.out and "half" in ran.out
    strict = cluster.ok("job.logs", "written", "--structured", "-o", "json")
    found = [json.loads(line, parse_constant=pytest.fail) for line in strict.out.splitlines()]
    assert [one["message"] for one in found][-2:] == [ALL.replace("\udcff\ud800", "\ufffd\ufffd"), "end"]
    assert (
        len(found) == 5 and not forbidden(strict.out) and "lines of output without a log record" in strict.err
    )
    assert all((one["role"], one["index"], one["attempt"]) == ("main", 0, 0) for one in found)


def test_hostile_metrics_are_left_out(client, cluster, written):
    wrong = ["text", True, [1], {}, 10**400]
    written("metrics", "main-0-0", *HOSTILE, *(point(1, value) for value in wrong), point(1, 1, name=7))
    written("metrics", "main-0-0", point(1, 1, time="now"), {"name": "loss", "value": 1}, point(3, math.nan))
    written("metrics", "main-0-0", point(4, None), point(math.inf, 2.5), point("x", math.inf, name=ALL))
    found = {metric.name: metric for metric in sdk.jobs.read_metrics(client, "written")}
    assert len(found) == 2
    assert [one.step for one in found["loss"].points] == [3, 4, None]
    assert found["loss"].min == found["loss"].max == found["loss"].last == 2.5
    for form in ("table", "csv", "json", "yaml"):
        ran = cluster.ok("job.metrics", "written", "-o", form)
        assert not forbidden(ran.out + ran.err) and "Traceback" not in ran.err
    assert not forbidden(cluster.ok("job.metrics", "written", "--plot").out)
    rows = json.loads(cluster.ok("job.metrics", "written", "-o", "json").out, parse_constant=pytest.fail)
    assert [row["value"] for row in rows if row["name"] == "loss"] == [None, None, 2.5]


def test_links_in_place_of_files_and_folders_are_not_followed(client, cluster, written, tmp_path):
    (tmp_path / "secret.jsonl").write_text(json.dumps(record(1, "secret")) + "\n")
    path = written("logs", "main-0-0", record(1, "own"))
    (path.parent / "main-1-0.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (path.parent / "main-2-0.jsonl").symlink_to(path)
    os.mkfifo(path.parent / "main-3-0.jsonl")
    assert messages(client) == ["own"]
    os.rename(path.parent, tmp_path / "logs")
    path.parent.symlink_to(tmp_path / "logs")
    assert messages(client) == []
    path.parent.unlink()


def test_metrics_have_their_last_and_best_values(client, cluster, written):
    written("metrics", "main-0-0", point(0, 3), point(10, 0.5), point(20, 1), point(None, 7, name="acc"))
    written("metrics", "main-1-0", point(5, 2, index=1))
    assert [line.split() for line in cluster.ok("job.metrics", "written").out.splitlines()] == [
        ["JOB", "METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "COUNT"],
        ["written", "acc", "main-0", "7", "7", "7", "-", "1"],
        ["written", "loss", "main-0", "1", "0.5", "3", "20", "3"],
        ["written", "loss", "main-1", "2", "2", "2", "5", "1"],
    ]
    ran = cluster.ok("job.metrics", "written", "--metric", "a*", "-o", "csv")
    assert list(csv.DictReader(io.StringIO(ran.out))) == [
        {
            **{"job": "written", "name": "acc", "role": "main", "index": "0"},
            **{"attempt": "0", "step": "", "time": "1.0", "value": "7.0"},
        }
    ]


def test_steps_that_a_retried_job_took_again_count_once(client, written):
    written("metrics", "main-0-0", *(point(step, step) for step in range(6)), point(4, 4, name="acc"))
    written("metrics", "main-0-1", *(point(step, 10 + step, attempt=1) for step in (3, 4)))
    written("metrics", "main-0-2", point(4, 24, attempt=2), point(2, 22, attempt=2, name="acc"))
    acc, loss = sdk.jobs.read_metrics(client, "written")
    assert [(one.step, one.value) for one in loss.points] == [(0, 0), (1, 1), (2, 2), (3, 13), (4, 24)]
    assert [(one.step, one.value) for one in acc.points] == [(2, 22)]


def test_several_jobs_are_drawn_in_one_plot_and_picture(client, cluster, written):
    written("metrics", "main-0-0", *(point(step, step**2) for step in range(50)))
    written("metrics", "main-0-0", *(point(step, 100 - step) for step in range(50)), job="other")
    ran = cluster.ok("job.metrics", "written", "other", "--plot", "--picture", "plot.svg")
    assert "*  written" in ran.out and "+  other" in ran.out and "plot written to plot.svg" in ran.err
    picture = ElementTree.parse(cluster.project / "plot.svg").getroot()
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss", "written", "other", "2000"} <= set(texts)
    assert "step" in texts and ran.out.split("*  written")[0].split()[-1] == "step"
    ran = cluster.ok("job.metrics", "written", "--plot", "--by", "time", "--picture", "plot.svg")
    assert "time\n" in ran.out and ">time<" in (cluster.project / "plot.svg").read_text()
    for words, why in (
        (["--plot", "--by", "epoch"], "no job recorded a metric 'epoch' with steps"),
        (["--plot", "--by", "hour"], "--by must be one of step, time, epoch, got 'hour'"),
        (["--by", "time"], "add --plot or --picture FILE.svg"),
    ):
        refused = cluster.inv("job.metrics", "written", *words)
        assert refused.code == 120 and why in refused.err
    written("metrics", "main-0-0", *(point(step, step / 10, name="epoch") for step in range(50)))
    assert "epoch\n" in cluster.ok("job.metrics", "written", "--plot", "--by", "epoch").out
    refused = cluster.inv("job.metrics", "written", "--picture", "plot.png")
    assert refused.code == 120 and ".svg" in refused.err and not (cluster.project / "plot.png").exists()
    lost = cluster.inv("job.metrics", "written", "--picture", "no-folder/plot.svg")
    assert lost.code == 123 and "cannot write no-folder/plot.svg: No such file" in lost.err
    assert "(known: epoch, loss)" in cluster.ok("job.metrics", "written", "--metric", "lost").err


def test_a_sweep_is_shown_without_the_jobs_that_are_not_there(client, cluster, written):
    record = cluster.project / ".openpai" / "sweeps" / "local" / "partial.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    jobs = [{"job": name, "point": {}} for name in ("written", "never-submitted")]
    record.write_text("".join(json.dumps(line) + "\n" for line in ({"identity": "x"}, *jobs)))
    written("metrics", "main-0-0", point(1, 2))
    ran = cluster.ok("job.metrics", "partial", "-o", "json")
    assert [row["job"] for row in ran.json()] == ["written"]
    assert "left out: no job named 'never-submitted'" in ran.err


def test_a_job_without_metrics_is_reported_and_an_unknown_job_is_refused(client, cluster):
    ran = cluster.ok("job.metrics", "empty")
    assert "no metrics found" in ran.err and ran.out.split() == list(
        ("JOB", "METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "COUNT")
    )
    assert cluster.ok("job.metrics", "empty", "-o", "json").json() == []
    assert cluster.inv("job.metrics", "no-such-job").code == 122
    assert cluster.inv("job.metrics").code == 120


def test_only_new_bytes_are_read_while_files_grow(client, written, monkeypatch):
    asked = []

    def read(self, path, offset=0, length=None):
        asked.append((Path(path).name, offset))
        return original(self, path, offset, length)

    original = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", read)
    reader = sdk.jobs.MetricReader(client, "written")
    assert reader.read() == []
    path = written("metrics", "main-0-0", point(0, 1), point(1, 2))
    size = path.stat().st_size
    assert [metric.count for metric in reader.read()] == [2]
    assert [metric.count for metric in reader.read()] == [2]
    with path.open("a") as file:
        file.write(json.dumps(point(2, 3))[:20])
    assert [metric.count for metric in reader.read()] == [2]  # a line is read when it is complete
    with path.open("a") as file:
        file.write(json.dumps(point(2, 3))[20:] + "\n")
    assert [metric.count for metric in reader.read()] == [3]
    assert asked == [("main-0-0.jsonl", 0), ("main-0-0.jsonl", size), ("main-0-0.jsonl", size + 20)]


@pytest.fixture
def asked(cluster, monkeypatch):
    """The parts of files that are read, as names and offsets; metrics are long from 50 points on."""
    found = []

    def read(self, path, offset=0, length=None):
        found.append((Path(path).name, offset))
        return original(self, path, offset, length)

    original = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", read)
    monkeypatch.setattr(metrics, "KEPT_FROM", 50)
    (cluster.home / "cache" / "jobs.db").unlink(missing_ok=True)  # files only grow, except between tests
    for name, value in (("STRETCHES", 10), ("MOST_KEPT", 20), ("MOST_HELD", 50)):
        monkeypatch.setattr(metric_points, name, value)
    return found


def read_thinned(client):
    (metric,) = sdk.jobs.MetricReader(client, "written", is_thinned=True).read()
    return metric


def test_a_long_metric_is_read_once_by_all_processes(client, written, asked):
    path = written("metrics", "main-0-0", *(point(step, abs(step - 70)) for step in range(100)))
    size = path.stat().st_size
    first = read_thinned(client)
    assert (first.count, first.last, first.min, first.max, first.step) == (100, 29, 0, 70, 99)
    assert len(first.points) < 40 and {(70, 0), (0, 70), (99, 29)} <= {
        (one.step, one.value) for one in first.points
    }
    assert asked == [("main-0-0.jsonl", 0)]
    assert read_thinned(client) == first and len(asked) == 1
    with path.open("a") as file:
        file.write(json.dumps(point(100, -5)) + "\n" + json.dumps(point(101, 3))[:20])
    grown = read_thinned(client)
    assert (grown.count, grown.min, grown.step) == (101, -5, 100)
    assert asked[1:] == [("main-0-0.jsonl", size)]
    assert len(sdk.jobs.read_metrics(client, "written")[0].points) == 101


def test_a_later_attempt_replaces_points_of_a_long_metric_exactly(client, written, asked):
    written("metrics", "main-0-0", *(point(step, step) for step in range(100)))
    assert read_thinned(client).count == 100
    path = written("metrics", "main-0-1", *(point(step, -step, attempt=1) for step in range(60, 120)))
    for _ in range(2):  # the second is kept
        found = read_thinned(client)
        assert (found.count, found.max, found.min, found.step) == (120, 59, -119, 119)
        assert len(found.points) < 40 and {one.attempt for one in found.points} == {0, 1}
    reader = sdk.jobs.MetricReader(client, "written", is_thinned=True)
    assert [metric.count for metric in reader.read()] == [120]
    with path.open("a") as file:
        file.write(json.dumps(point(120, 500, attempt=1)) + "\n")
    assert [(metric.count, metric.max) for metric in reader.read()] == [(121, 500)]
    assert (read_thinned(client).count, read_thinned(client).max) == (121, 500)


def test_metrics_in_the_logs_of_an_ended_job_are_read_once(client, cluster, asked, monkeypatch):
    print_points = f"import json\nfor step in range(90): print(json.dumps({point(0, 1)!r} | dict(step=step)))"
    document = json.loads(json.dumps(DOCUMENT).replace("no-folder", "printed"))
    document["taskRoles"]["main"]["commands"] = [f"python3 -c {shlex.quote(print_points)}"]
    (cluster.project / "printed.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    cluster.ok("job.submit", "printed.yaml")
    cluster.ok("job.wait", "printed")
    (first,) = sdk.jobs.MetricReader(client, "printed", is_thinned=True).read()
    assert (first.count, first.step) == (90, 89)
    monkeypatch.setattr(
        json_lines.LogLines, "_read", lambda self, piece: pytest.fail("the log is read again")
    )
    reader = sdk.jobs.MetricReader(client, "printed", is_thinned=True)
    assert reader.read() == [first] == reader.read()


def test_a_damaged_record_of_metrics_is_replaced(client, written, asked):
    written("metrics", "main-0-0", *(point(step, step) for step in range(80)))
    job = read_thinned(client) and sdk.jobs.find(client, "written")
    versions = {job.key: str(job.submitted)}
    for wrong in (
        7,
        [],
        ["", {"a": -1}, []],
        ["", [], []],
        ["", {"a": "b"}, [[["x"], 0, []]]],
        ["", {}, [[["loss", "main", 0], 0, [1, 2]]]],
    ):
        job_cache.save(client, "metrics", versions, {job.key: wrong})
        asked.clear()
        assert read_thinned(client).count == 80 and asked == [("main-0-0.jsonl", 0)]
    asked.clear()
    assert read_thinned(client).count == 80 and asked == []


def test_a_long_log_is_merged_without_reading_it_all_first(client, written, monkeypatch):
    read = []

    def counted(self, path, offset=0, length=None):
        for piece in original(self, path, offset, length):
            read.append(len(piece))
            yield piece

    original = LocalStore.read
    lines = [record(number, "x" * 1000) for number in range(3000)]
    for index in range(3):
        written("logs", f"main-{index}-0", *lines)
    monkeypatch.setattr(LocalStore, "read", counted)
    found = sdk.logs.read_structured(client, "written")
    next(found)
    assert sum(read) <= 3 << 20
    assert sum(1 for _ in found) == 3 * 3000 - 1
    assert sum(read) > 9 << 20


def test_following_shows_records_and_metrics_until_the_job_ends(cluster):
    gate = cluster.project / "gate"
    line = 'echo printed; cd "$PAI_OUTPUT_DIR"; mkdir -p .pai/logs .pai/metrics; cd .pai; '
    line += f"echo '{json.dumps(record(1, 'begun'))}' >> logs/main-0-0.jsonl; "
    line += """printf '{"message": "unfin' >> logs/main-0-0.jsonl; """
    line += f"until test -e {gate}; do sleep 0.05; done; "
    line += """printf 'ished"}\\n' >> logs/main-0-0.jsonl; """
    line += f"echo '{json.dumps(record(2, 'ended'))}' >> logs/main-0-0.jsonl; "
    line += f"echo '{json.dumps(point(1, 2))}' >> metrics/main-0-0.jsonl; exit 3"
    cluster.ok("job.sub", line, "-j", "followed", "--cpu", "1", "--mem", "64m")
    logs = cluster.start("pai", "job.logs", "followed", "--structured", "--follow")
    assert logs.stdout.readline().endswith("begun\n")
    metrics = cluster.start("pai", "job.metrics", "followed", "--follow")
    assert cluster.ok("job.logs", "followed", "--structured").out.count("\n") == 1
    gate.touch()
    out, err = logs.communicate(timeout=60)
    assert [line.split()[-1] for line in out.splitlines()] == ["unfinished", "ended"]
    assert logs.returncode == 3, err
    out, err = metrics.communicate(timeout=60)
    assert out.splitlines()[1].split()[:4] == ["followed", "loss", "main-0", "2"], err
    assert metrics.returncode == 0


def test_results_are_sorted_by_a_value_and_numbers_are_numbers(cluster):
    command = """test {lr} = 7 || echo '{"acc": "'{lr}'"}'"""
    cluster.ok("job.sub", command, "-j", "ranked", "--sweep", "lr=.5,10,9,1e-2,7,007", "--cpu", "1")
    rows = cluster.ok("job.results", "ranked", "-o", "json").json()
    assert [row["point"]["lr"] for row in rows] == [0.5, 10, 9, 0.01, 7, "007"]

    def best(*flags):
        ran = cluster.ok("job.results", "ranked", *flags, "-o", "json")
        return [row["point"]["lr"] for row in ran.json()]

    assert best("--sort", "acc") == [10, 9, 0.5, 0.01, "007", 7]
    assert best("--sort", "acc", "--best", "2") == [10, 9]
    assert best("--sort", "acc", "--best", "9", "--lowest") == [0.01, 0.5, 9, 10, "007"]
    assert best("--sort", "lr", "--lowest")[-2:] == [10, "007"]
    for flags, expected in (
        (("--sort", "loss"), "no job has a value 'loss' (known: name, state, lr, acc)"),
        (("--best", "3"), "--best needs --sort"),
        (("--sort", "acc", "--best", "0"), "at least 1"),
    ):
        ran = cluster.inv("job.results", "ranked", *flags)
        assert ran.code == 120 and expected in ran.err


def test_filter_of_a_wrong_level_is_an_error_of_ours():
    with pytest.raises(ConfigError, match="did you mean 'WARNING'"):
        sdk.logs.parse_filter(level="warnin")


def test_the_examples_of_the_page_run_in_order(client, cluster, capsys):
    page = (ROOT / "docs" / "metrics.md").read_text()
    [(name, text)] = re.findall(r"<!-- file (\S+) -->\n```python\n(.*?)```", page, re.S)
    (cluster.project / name).write_text(text)
    for line in commands(page):
        ran = cluster.run("sh", "-c", line)
        assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
    assert len((cluster.project / "records.jsonl").read_text().splitlines()) == 4
    assert len((cluster.project / "losses.csv").read_text().splitlines()) == 1 + 2 * 20
    assert "rates-rate-8" in (cluster.project / "losses.svg").read_text()
    [block] = re.findall(r"\n\n```python\n(.*?)```", page, re.S)
    exec(block, {})
    assert capsys.readouterr().out.startswith("loss main-0 0.3 [6.0, 3.0, 2.0, ")
