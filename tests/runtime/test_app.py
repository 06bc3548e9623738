"""Callbacks run where and when they should; outputs are kept however the program ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from openpai_tasks import runtime
from openpai_tasks.runtime import App
from tests.runtime.programs import JOB, Program


@pytest.fixture
def log():
    return []


@pytest.fixture
def app(log):
    made = App()
    for event in ("start", "main", "end"):
        made.on(event)(lambda event=event: log.append(event))
    made.on("error")(lambda error: log.append(repr(error)))
    return made


def test_callbacks_run_in_order(app, log):
    app.run()
    assert log == ["start", "main", "end"]


def test_program_learns_that_it_should_save_and_stop(tmp_path):
    """SIGTERM no longer ends it, also with metrics, whose handler would."""
    loop = "while not runtime.should_stop(): print('step', flush=True)\nprint('saved'); sys.exit(143)"
    text = f"import runtime\nruntime.log_metric('loss', 1)\nassert not runtime.should_stop()\n{loop}"
    process = Program(tmp_path, text).start()
    assert process.stdout is not None and process.stdout.readline() == "step\n"
    process.terminate()
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out.splitlines()[-1], err) == (143, "saved", "")


def test_result_is_that_of_main():
    app = App()
    app.on("main")(lambda: 42)
    assert app.run() == 42 and App().run() is None


def test_failure_runs_error_and_end_and_is_raised(app, log):
    @app.on("main")
    def fail():
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        app.run()
    assert log == ["start", "main", "ValueError('x')", "end"]


def test_error_callback_that_fails_does_not_hide_the_error(app, log, capfd):
    app.on("main")(lambda: [][1])
    app.on("error")(lambda error: 1 / 0)
    app.on("error")(lambda error: log.append("second"))
    with pytest.raises(IndexError):
        app.run()
    assert log[-2:] == ["second", "end"] and "ZeroDivisionError" in capfd.readouterr().err


def test_main_runs_only_where_its_conditions_hold(monkeypatch, log):
    app = App()
    for condition in (
        {"place": "local"},
        {"place": "batch"},
        {"role": "worker"},
        {"chief": True},
        {"chief": False},
    ):
        app.on("main", **condition)(lambda condition=condition: log.append(condition))
    app.run()
    assert log == [{"place": "local"}, {"chief": True}]
    log.clear()
    worker = {**JOB, "PAI_TASK_ROLE_LIST": "worker", "PAI_CURRENT_TASK_ROLE_NAME": "worker"}
    for name, value in {**worker, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    app.run()
    assert log == [{"place": "batch"}, {"role": "worker"}, {"chief": False}]


@pytest.mark.parametrize("given", [{"event": "stop"}, {"event": "main", "place": "cloud"}])
def test_unknown_events_and_places_are_refused(given):
    with pytest.raises(ValueError, match="unknown"):
        App().on(**given)


STOPPED = """
import time
import runtime
from runtime import app

@app.on("main")
def main():
    print("main", flush=True)
    while True:  # a signal just before one long wait would not end it
        time.sleep(0.01)

@app.on("error")
def error(reason):
    print(repr(reason))

@app.on("end")
def end():
    with open("model.pt", "w") as file:
        file.write("saved at the end")

runtime.save_outputs("*.pt")
app.run()
"""


def test_stopped_job_runs_its_callbacks_and_keeps_its_outputs(tmp_path):
    program = Program(tmp_path, STOPPED)
    process = program.start()
    assert process.stdout.readline() == "main\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (143, "SystemExit(143)\n", "")
    assert (program.output / "model.pt").read_text() == "saved at the end"


# Outputs


SAVING = """
import os, signal, sys
import runtime

os.makedirs("model/deep/er")
for name in "model/a.pt", "model/b b.pt", "model/note.txt", "model/deep/er/c.pt":
    with open(name, "w") as file:
        file.write("early")
print(runtime.save_outputs(*sys.argv[2:]))
with open("model/a.pt", "w") as file:
    file.write("final text")
if sys.argv[1] == "raise":
    raise ValueError
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGTERM)
"""


def kept(program: Program) -> dict[str, str]:
    files = (path for path in program.output.rglob("*") if path.is_file())
    return {str(path.relative_to(program.output)): path.read_text() for path in files}


@pytest.mark.parametrize("end", ["", "raise", "kill"])
def test_outputs_are_kept_as_they_are_at_the_end(tmp_path, end):
    program = Program(tmp_path, SAVING)
    _, out, _ = program.run(end, "model/*.pt")
    assert out == "['model/a.pt', 'model/b b.pt']\n" or end == "kill"
    assert kept(program) == {"model/a.pt": "final text", "model/b b.pt": "early"}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("model/**/*.pt", ["model/a.pt", "model/b b.pt", "model/deep/er/c.pt"]),
        ("model/deep", ["model/deep/er/c.pt"]),
        ("nothing/*", []),
    ],
)
def test_patterns_match_folders_too(tmp_path, pattern, names):
    program = Program(tmp_path, SAVING)
    assert program.run("", pattern)[0] == 0
    assert sorted(kept(program)) == names


def test_each_of_several_tasks_has_a_folder_for_its_outputs(tmp_path):
    program = Program(tmp_path, SAVING, PAI_TASKS_NUM="2", PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX="1")
    program.run("", "model/a.pt")
    assert kept(program) == {"main-1/model/a.pt": "final text"}


def test_outside_of_a_job_files_stay_where_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.pt").write_text("x")
    assert runtime.save_outputs("*.pt") == [] and os.listdir() == ["a.pt"]
    runtime._patterns.clear()


@pytest.mark.parametrize("pattern", ["/etc/*", "../*.pt", "a/../b"])
def test_patterns_outside_of_the_working_folder_are_refused(pattern):
    with pytest.raises(ValueError, match="invalid pattern"):
        runtime.save_outputs(pattern)
