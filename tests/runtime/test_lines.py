"""Log lines and metrics: none is lost or torn, and a program never waits for them."""

from __future__ import annotations

import json
import math
import re
import signal
import struct
import time

import google_crc32c
import pytest

from openpai_tasks import runtime
from tests.runtime.programs import Program


def lines(program: Program, kind: str, name: str = "main-0-0") -> list[dict]:
    return [
        json.loads(line)
        for line in (program.output / ".pai" / kind / f"{name}.jsonl").read_text().splitlines()
    ]


MANY = """
import logging, sys
import runtime

runtime.STOP_SECONDS = 250.0  # the machine may be busy
runtime.setup_logging()
logger = logging.getLogger(f"worker.{sys.argv[1]}")
logging.getLogger().handlers[0].setLevel("ERROR")  # not to the terminal
for number in range(10000):
    logger.info("line %d of %s", number, sys.argv[1] * (number % 50))
"""


def test_eight_processes_log_10000_lines_each(tmp_path):
    """In four tasks with a file each, to which two processes write at the same time."""
    program = Program(tmp_path, MANY)
    index = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    started = [program.start(str(one), **{index: str(one // 2)}) for one in range(8)]
    for process in started:
        assert process.communicate(timeout=250) == ("", "") and process.returncode == 0
    for one in range(8):
        found = lines(program, "logs", f"main-{one // 2}-0")
        messages = [line["message"] for line in found if line["logger"] == f"worker.{one}"]
        assert messages == [f"line {number} of {str(one) * (number % 50)}" for number in range(10000)]
        assert len(found) == 20000 and {line["index"] for line in found} == {one // 2}


def test_line_has_the_agreed_fields(tmp_path):
    program = Program(
        tmp_path,
        """
import logging
import runtime

runtime.setup_logging("DEBUG")
logging.getLogger("a.b").debug("größe %s", "x\\ny")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("failed")
""",
        FC_FRAMEWORK_ATTEMPT_ID="3",
    )
    code, out, err = program.run()
    assert (code, out) == (0, "") and err.startswith(
        "größe x\ny\nfailed\nTraceback"
    )  # the terminal has it, too
    first, second = lines(program, "logs", "main-0-3")
    assert list(first) == ["time", "level", "logger", "message", "job", "role", "index", "attempt"]
    assert isinstance(first.pop("time"), float)
    same = {"job": "train-1", "role": "main", "index": 0, "attempt": 3}
    assert first == {"level": "DEBUG", "logger": "a.b", "message": "größe x\ny", **same}
    assert second["level"] == "ERROR" and second["exception"].endswith("ZeroDivisionError: division by zero")


def test_without_an_output_folder_lines_go_to_stderr(tmp_path):
    text = (
        "import logging, runtime\nruntime.setup_logging()\nlogging.info('hello')\nruntime.log_metric('a', 1)"
    )
    code, out, err = Program(tmp_path, text, PAI_OUTPUT_DIR="").run()
    log, metric = map(json.loads, err.splitlines())
    assert (code, out, log["message"], metric["name"]) == (0, "", "hello", "a")


BLOCKED = """
import json, logging, os, sys
import runtime

runtime.LOG_BYTES = 100_000
runtime.setup_logging()
logging.getLogger().handlers[0].setLevel("ERROR")
for number in range(5000):
    logging.info("line %d", number)
print("went on", flush=True)
written = dropped = 0
with open(sys.argv[1]) as file:
    while written + dropped < 5000:
        line = json.loads(file.readline())
        written += line["level"] == "INFO"
        dropped += int(line["message"].split()[0]) if line["level"] == "WARNING" else 0
print(written, dropped, line["message"].partition(" ")[2])
"""


def test_lines_beyond_the_bound_are_dropped_and_counted(tmp_path):
    """The file is a pipe that nobody reads before the program has logged all lines."""
    program = Program(tmp_path, BLOCKED)
    path = program.output / ".pai/logs/main-0-0.jsonl"
    path.parent.mkdir(parents=True)
    runtime.os.mkfifo(path)
    code, out, err = program.run(str(path))
    assert (code, err) == (0, "")
    went_on, written, dropped, report = re.fullmatch(r"(.*)\n(\d+) (\d+) (.*)\n", out).groups()
    assert went_on == "went on" and 0 < int(written) < 5000 and int(written) + int(dropped) == 5000
    assert report == "log lines were dropped: they came faster than they could be written"


@pytest.mark.parametrize("way", ["SIGTERM", "exit", "exception", "fork"])
def test_nothing_is_lost_at_the_end(tmp_path, way):
    program = Program(
        tmp_path,
        """
import logging, multiprocessing, os, signal, sys
import runtime

runtime.STOP_SECONDS = 250.0  # the machine may be busy
runtime.setup_logging()

def work(count):
    for number in range(count):
        logging.info("line %d", number)
        runtime.log_metric("number", number, step=number)

work(1000)
if sys.argv[1] == "SIGTERM":
    os.kill(os.getpid(), signal.SIGTERM)
elif sys.argv[1] == "exit":
    sys.exit(3)
elif sys.argv[1] == "exception":
    raise ValueError("x")
else:
    child = multiprocessing.get_context("fork").Process(target=work, args=(500,))
    child.start()
    child.join()
""",
    )
    code, _, _ = program.run(way)
    assert code == {"SIGTERM": -signal.SIGTERM, "exit": 3, "exception": 1, "fork": 0}[way]
    wanted = 1500 if way == "fork" else 1000
    assert len(lines(program, "logs")) == len(lines(program, "metrics")) == wanted


def test_full_disk_does_not_end_the_program(tmp_path):
    text = "import logging, runtime\nruntime.setup_logging()\nlogging.info('a')\nruntime.log_metric('b', 1)"
    program = Program(tmp_path, f"{text}\nprint('done')")
    for kind in "logs", "metrics":
        (program.output / ".pai" / kind).mkdir(parents=True)
        (program.output / ".pai" / kind / "main-0-0.jsonl").symlink_to("/dev/full")
    code, out, err = program.run()
    assert (code, out) == (0, "done\n")
    assert "cannot write 1 line of logs" in err and "cannot write 1 line of metrics" in err


def test_metric_has_the_agreed_fields_and_values(tmp_path):
    program = Program(
        tmp_path,
        """
import runtime

class Tensor:
    def item(self):
        return 0.25

for value in (0.3, 1, True, float("nan"), float("inf"), -float("inf"), Tensor()):
    runtime.log_metric('lo"ss', value, step=10)
runtime.log_metric("loss", 0.5)
""",
    )
    assert program.run() == (0, "", "")
    *found, last = lines(program, "metrics")
    assert isinstance(last["time"], float) and abs(last["time"] - time.time()) < 3600
    assert list(last) == ["time", "name", "value", "step", "role", "index", "attempt"]
    assert (last["step"], last["role"], last["index"], last["attempt"]) == (None, "main", 0, 0)
    values = [point["value"] for point in found]
    assert values[:3] == [0.3, 1, 1] and math.isnan(values[3])
    assert values[4:] == [math.inf, -math.inf, 0.25] and {point["name"] for point in found} == {'lo"ss'}


def test_scalars_of_numpy_are_numbers():
    import numpy

    for value in (numpy.float32(0.5), numpy.array(0.5), numpy.array([0.5]), numpy.float64(0.5)):
        assert runtime._number(value, "loss") == 0.5 and type(runtime._number(value, "loss")) is float
    assert type(runtime._number(numpy.int64(3), "step")) is int


def test_array_of_numpy_is_refused():
    import numpy

    with pytest.raises(TypeError, match="loss must be one number, got"):
        runtime.log_metric("loss", numpy.array([1, 2]))


@pytest.mark.parametrize("value", ["0.5", None, [1, 2], {}])
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="loss must be one number, got"):
        runtime.log_metric("loss", value)
    with pytest.raises(TypeError, match="the name of a metric must be text"):
        runtime.log_metric(value if isinstance(value, list) else 1, 0.5)


def test_points_beyond_the_bound_are_dropped_and_counted(tmp_path):
    text = (
        "import runtime\nruntime.METRIC_POINTS = 10\nfor one in range(25):\n    runtime.log_metric('a', one)"
    )
    program = Program(tmp_path, text)
    code, _, err = program.run()
    count = len(lines(program, "metrics"))
    assert code == 0 and 10 <= count < 25
    assert f"{25 - count} points of metrics came faster than they could be written, and were dropped" in err


def records(path):
    """The records of a file of TensorFlow's, whose checksums must be right."""
    content, found = path.read_bytes(), []

    def checked(part, crc):
        value = google_crc32c.value(part)
        assert struct.unpack("<I", crc)[0] == ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
        return part

    while content:
        (size,) = struct.unpack("<Q", checked(content[:8], content[8:12]))
        found.append(checked(content[12 : 12 + size], content[12 + size : 16 + size]))
        content = content[16 + size :]
    return found


@pytest.mark.parametrize("first", ["", "import numpy\n"])
def test_many_events_have_correct_checksums(tmp_path, first):
    """With NumPy, those of the same length are computed together."""
    text = f"""{first}import runtime
for step in range(300):
    runtime.log_metric("loss", step / 7, step=step * 50)
"""
    program = Program(tmp_path, text)
    (program.work / "tensorboard").mkdir()
    assert program.run() == (0, "", "")
    [path] = (program.output / "tensorboard/main-0-0").iterdir()
    _, *events = records(path)
    assert [struct.unpack("<f", event[-4:])[0] for event in events] == pytest.approx(
        [step / 7 for step in range(300)]
    )


def test_event_files_are_written_where_tensorboard_is_installed(tmp_path):
    """The expected bytes are those that TensorBoard's own writer produces, and its reader accepts."""
    text = "import runtime\nruntime.log_metric('loss', 0.25, step=300)\nruntime.log_metric('big', 1e300)"
    hide = "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
    program = Program(tmp_path, hide + text)
    assert program.run() == (0, "", "") and not (program.output / "tensorboard").exists()
    (program.work / "tensorboard").mkdir()
    assert program.run(FC_FRAMEWORK_ATTEMPT_ID="1") == (0, "", "")
    [path] = (program.output / "tensorboard/main-0-1").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    version, first, second = records(path)
    assert version[9:] == b"\x1a\x0dbrain.Event:2"
    point = b"\x0a\x0b\x0a\x04loss\x15" + struct.pack("<f", 0.25)
    assert first[9:] == b"\x10\xac\x02\x2a" + bytes([len(point)]) + point
    assert second.endswith(b"big\x15" + struct.pack("<f", math.inf))
