"""Checkpoints survive a kill at any moment, and damaged ones are never used."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest

from openpai_tasks import runtime
from tests.hostile import Hostile, drip
from tests.runtime.programs import JOB, Program

TRAINING = """
import json, os, random
import runtime

ckpt = runtime.checkpoint("state", keep=2)
path = ckpt.latest()
state = json.load(open(path)) if path else {"step": 0, "loss": 1.0, "random": 7}
while state["step"] < 100:
    print("step", flush=True)
    state["random"] = random.Random(state["random"]).getrandbits(32)
    state["loss"] *= 1 - state["random"] / 2**38
    state["step"] += 1
    runtime.log_metric("loss", state["loss"], step=state["step"])

    def write(path):
        with open(path, "w") as file:
            text = json.dumps(state)
            file.write(text[:20])
            file.flush()
            file.write(text[20:])

    ckpt.save(write)
print(state["loss"])
"""


def values(program: Program) -> dict[int, float]:
    """The last value of each step, and all steps in the files."""
    found = {}
    for path in sorted(program.output.glob(".pai/metrics/*.jsonl")):
        for line in path.read_text().splitlines():
            point = json.loads(line)
            found[point["step"]] = point["value"]
    return found


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The output folder of a job that this process runs in."""
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PAI_OUTPUT_DIR", str(tmp_path / "jobs" / "train-1" / "output"))
    return tmp_path / "jobs"


def text_writer(text):
    return lambda path: Path(path).write_text(text)


def test_training_killed_ten_times_ends_with_the_same_numbers(tmp_path):
    """Each process is killed after a random number of steps, at any point of a step."""
    for name in "undisturbed", "killed":
        (tmp_path / name).mkdir()
    undisturbed = Program(tmp_path / "undisturbed", TRAINING)
    code, out, err = undisturbed.run()
    assert (code, err) == (0, "")
    killed, seed = Program(tmp_path / "killed", TRAINING), random.randrange(1 << 32)
    chance = random.Random(seed)
    for attempt in range(10):
        process = killed.start(FC_FRAMEWORK_ATTEMPT_ID=str(attempt))
        for _ in range(chance.randrange(1, 9)):
            process.stdout.readline()
        for _ in range(chance.randrange(3000)):
            pass  # somewhere within the step
        process.kill()
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0), seed  # 0 if this test got no processor for so long
    code, again, err = killed.run(FC_FRAMEWORK_ATTEMPT_ID="10")
    assert (code, err) == (0, ""), seed
    assert again.splitlines()[-1] == out.splitlines()[-1], seed
    assert values(killed) == values(undisturbed), seed
    left = list((killed.output / ".pai/checkpoints/state").iterdir())
    assert sorted(path.suffix for path in left) == ["", "", ".json", ".json"], seed


def test_there_is_no_checkpoint_at_first(job, tmp_path, monkeypatch):
    """Files in the working folder are none, whatever their names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "00000001.json").write_text("{}")
    assert runtime.checkpoint("state").latest() is None


def test_last_ones_are_kept_under_rising_numbers(job):
    ckpt = runtime.checkpoint("state.txt", keep=2)
    saved = [ckpt.save(text_writer(str(number))) for number in range(5)]
    assert Path(ckpt.latest()).read_text() == "4" and ckpt.latest() == saved[-1]
    assert saved[-1].startswith(str(job / "train-1/output/.pai/checkpoints/state.txt/00000005-"))
    assert saved[-1].endswith(".txt")
    assert [os.path.exists(path) for path in saved] == [False] * 3 + [True] * 2
    assert runtime.checkpoint("other").latest() is None


def test_remains_of_killed_processes_are_removed(job):
    """Files without a manifest, and manifests that were not complete."""
    ckpt = runtime.checkpoint("state")
    ckpt.save(text_writer("1"))
    for name in ("00000002-0123abcd", ".pai-part-0123456789abcdef"):
        Path(ckpt.folder, name).write_text("")
    for text in "2", "3":
        ckpt.save(text_writer(text))
    assert len(list(Path(ckpt.folder).iterdir())) == 2 * 3 and Path(ckpt.latest()).read_text() == "3"


def test_checkpoint_can_be_a_folder(job):
    def write(path):
        os.makedirs(f"{path}/sub")
        Path(path, "a").write_text("1")
        Path(path, "sub", "b").write_text("2")

    ckpt = runtime.checkpoint()
    ckpt.save(write)
    found = Path(ckpt.latest())
    assert (found / "sub/b").read_text() == "2"
    (found / "sub/b").unlink()
    assert ckpt.latest() is None


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "manifest", "empty manifest", "no manifest"])
def test_damaged_checkpoint_is_passed_over(job, damage, capfd):
    ckpt = runtime.checkpoint()
    first = ckpt.save(text_writer("first"))
    second = Path(ckpt.save(text_writer("second")))
    manifest = second.with_name("00000002.json")
    if damage == "gone":
        second.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        target, text = {
            "changed": (second, "secund"),
            "cut": (second, "sec"),
            "manifest": (manifest, manifest.read_text()[:-9]),
            "empty manifest": (manifest, ""),
        }[damage]
        target.write_text(text)
    assert ckpt.latest() == first
    assert ("checkpoint 2 in " in capfd.readouterr().err) is (damage != "no manifest")
    third = ckpt.save(text_writer("third"))
    assert ckpt.latest() == third and Path(third).name.startswith(
        "00000002" if damage == "no manifest" else "00000003"
    )


def test_failed_save_leaves_the_checkpoint_before_it(job):
    ckpt = runtime.checkpoint()
    first = ckpt.save(text_writer("first"))

    def fail(path):
        Path(path).write_text("half")
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        ckpt.save(fail)
    with pytest.raises(FileNotFoundError, match="created nothing at"):
        ckpt.save(lambda path: None)
    assert ckpt.latest() == first and len(os.listdir(ckpt.folder)) == 2


def test_resubmitted_job_finds_the_checkpoints_of_earlier_jobs(job, monkeypatch):
    """The last of them counts that has any; then the job's own."""
    monkeypatch.setenv("PAI_OUTPUT_DIR", str(job / "first" / "output"))
    first = runtime.checkpoint().save(text_writer("first"))
    monkeypatch.setenv("PAI_OUTPUT_DIR", str(job / "third" / "output"))
    assert runtime.checkpoint().latest() is None
    monkeypatch.setenv("PAI_EARLIER_JOBS", "second first ../../x ..")
    assert runtime.checkpoint().latest() == first
    own = runtime.checkpoint().save(text_writer("third"))
    assert runtime.checkpoint().latest() == own and "/third/" in own
    assert Path(first).exists()


def test_outside_of_a_job_checkpoints_stay_in_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = runtime.checkpoint().save(text_writer("here"))
    assert Path(path).parent == tmp_path / ".openpai/checkpoints/state"  # which is never sent as a source
    assert runtime.checkpoint().latest() == path


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a.b.c"])
def test_unfit_names_are_refused(name):
    with pytest.raises(ValueError, match="invalid name"):
        runtime.checkpoint(name)


LISTING = b'{"FileStatuses": {"FileStatus": [{"pathSuffix": "00000001.json"}]}}'


def test_name_node_that_answers_byte_by_byte_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(runtime.time, "sleep", lambda seconds: None)
    for name in ("_ANSWER_SECONDS", "_DATA_SECONDS"):
        monkeypatch.setattr(runtime, name, 0.1)
    (tmp_path / "file").write_bytes(b"")
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LISTING)
    with Hostile(drip(head + LISTING), 0.01) as server:
        there = runtime._Hdfs([server.uri], "me")
        asks = [
            there.numbers,
            lambda: there._ask("GET", "00000001.json", "OPEN"),
            lambda: there._download("data", str(tmp_path / "got")),
            lambda: there._put("data", str(tmp_path / "file")),
        ]
        for ask in asks:
            with pytest.raises(TimeoutError, match=r"no complete answer within 0\.1 s"):
                ask()
