"""Packing from the command line, to the embedded cluster's storage and back; and its errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from openpai_tasks.sdk.files.dataset import PackedDataset
from tests.memory import measurable, peak
from tests.test_docs import ROOT, commands

HOME = "pai://local/home"


@pytest.fixture
def files(cluster):
    """The shared cluster with an empty storage and a small tree."""
    cluster.run("sh", "-c", f"rm -rf '{cluster.home}'/local/storage/home/*/* data out set* big photos again")
    data = cluster.project / "data"
    (data / "sub" / "empty").mkdir(parents=True)
    (data / "run.sh").write_text("#!/bin/sh\n")
    (data / "run.sh").chmod(0o755)
    (data / "sub" / "odd #%?\né").write_text("odd")
    (data / "none").touch()
    return cluster


def storage(shell):
    (folder,) = (shell.home / "local/storage/home").iterdir()
    return folder


@pytest.mark.parametrize("format", ["tar", "tfrecord", "sequencefile"])
def test_a_folder_is_packed_and_unpacked(files, format):
    target = f"{HOME}/set"
    packed = files.ok("storage.pack", "data", target, "--format", format, "-o", "json").json()
    assert (packed["files"], packed["folders"], packed["bytes"], packed["shards"]) == (3, 2, 13, 1)
    assert packed["url"] == target and packed["format"] == format
    assert (
        sum(entry["size"] for entry in files.ok("storage.ls", target, "-o", "json").json())
        > packed["packed_bytes"]
    )
    assert files.ok("storage.unpack", target, "out").out.startswith("3 copied (13 B), 0 skipped, 0 failed")
    assert subprocess.run(["diff", "-r", "data", "out"], cwd=files.project).returncode == 0
    assert os.access(files.project / "out/run.sh", os.X_OK)


def test_existing_files_are_skipped_and_a_set_is_replaced_only_on_request(files):
    files.ok("storage.pack", "data", "set")
    files.ok("storage.unpack", "set", "out")
    assert files.ok("storage.unpack", "set", "out", "-o", "json").json()["skipped"] == 3
    again = files.pai("storage.pack", "data", "set")
    assert (again.code, again.out) == (123, "") and "--replace" in again.err
    replaced = files.ok("storage.pack", "data", "set", "--replace").out
    assert replaced.startswith("3 packed (13 B) into 1 shard (")


def test_bad_input_ends_in_one_line(files):
    (files.project / "file").write_text("x")
    (files.project / "set").mkdir()
    (files.project / "set" / "index.jsonl").write_text(
        '{"what": "openpai-tasks packed files", "version": 7}\n'
    )
    pack, unpack = "storage.pack", "storage.unpack"
    for code, expected, *words in (
        (123, "is a file, not a folder", pack, "file", "out"),
        (120, "no format named 'zip' (known: tar, tfrecord", pack, "data", "out", "--format", "zip"),
        (120, "--shard-size needs bytes or a size", pack, "data", "out", "--shard-size", "huge"),
        (123, "cannot be packed into itself", pack, "data", "data/out"),
        (123, "has no index.jsonl", unpack, "data", "out"),
        (123, "unsupported index version 7: this openpai-tasks reads version 1", unpack, "set", "out"),
        (123, "is not a shard", unpack, "file", "out"),
        (123, "no such file or folder", unpack, "missing", "out"),
    ):
        ran = files.inv(*words)
        assert (ran.code, ran.out) == (code, ""), (words, ran)
        assert ran.err.startswith("error: ") and expected in ran.err and ran.err.count("\n") == 1
        assert not (files.project / "out").exists()


def test_broken_set_is_reported_and_damaged_files_are_not_written(files):
    files.ok("storage.pack", "data", f"{HOME}/set", "--format", "tfrecord")
    (shard,) = (storage(files) / "set").glob("*.tfrecord")
    content = shard.read_bytes()
    shard.write_bytes(content[:-10])
    ran = files.inv("storage.unpack", f"{HOME}/set", "out")
    assert ran.code == 123 and "truncated or changed" in ran.err and not (files.project / "out").exists()
    shard.write_bytes(content.replace(b"odd", b"0dd"))
    ran = files.inv("storage.unpack", f"{HOME}/set", "out", "-o", "json")
    (failure,) = json.loads(ran.out)["failed"]
    assert ran.code == 123 and "damaged" in failure["reason"] and "1 of 3 did not arrive" in ran.err
    assert sorted(os.listdir(files.project / "out")) == ["none", "run.sh", "sub"]
    assert os.listdir(files.project / "out" / "sub") == ["empty"]
    shard.unlink()
    ran = files.inv("storage.unpack", f"{HOME}/set", "out")
    assert ran.code == 123 and "is missing" in ran.err


def end_pack(files, number):
    """Pack a large file, end the command by a signal while it writes, and return its exit code."""
    (files.project / "big").mkdir()
    (files.project / "big" / "large.bin").touch()
    os.truncate(files.project / "big" / "large.bin", 3 << 30)
    process = files.start("inv", "storage.pack", "big", "set")
    end = time.monotonic() + 60
    while not any((files.project / "set").glob(".pai-part-*")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate()
    return process.returncode


def test_killed_pack_leaves_no_set_and_can_be_repeated(files):
    end_pack(files, signal.SIGKILL)
    left = os.listdir(files.project / "set")
    assert left and all(name.startswith(".pai-part-") for name in left)
    os.truncate(files.project / "big" / "large.bin", 5)
    assert files.inv("storage.unpack", "set", "out").code == 123
    files.ok("storage.pack", "big", "set")
    files.ok("storage.unpack", "set", "out")
    assert (files.project / "out" / "large.bin").read_bytes() == bytes(5)


def test_interrupted_pack_leaves_no_files(files):
    assert end_pack(files, signal.SIGINT) == 130
    assert os.listdir(files.project / "set") == []


def test_page_about_packing_is_correct(files, monkeypatch):
    for line in commands((ROOT / "docs" / "packing.md").read_text()):
        ran = files.run("sh", "-c", line)
        assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
    monkeypatch.setenv("OPENPAI_HOME", str(files.home))
    monkeypatch.chdir(files.project)
    dataset, samples = (PackedDataset(f"{HOME}/photos", group=group) for group in (False, True))
    assert len(dataset) == 6 and dataset[0] == ("train/1.jpg", b"pixels 1\n")
    assert dataset["train/2.txt"].data == b"cat\n"
    assert samples[0] == {"__key__": "train/1", "jpg": b"pixels 1\n", "txt": b"cat\n"}
    head = json.loads((storage(files) / "photos" / "index.jsonl").read_text().splitlines()[0])
    assert json.dumps(head)[:40] in (ROOT / "docs" / "packing.md").read_text()
    (shard,) = head["shards"]
    assert (head["files"], head["bytes"], shard["size"]) == (6, 39, 7680)
    assert re.fullmatch(r"photos-[0-9a-f]{10}-000000\.tar", shard["name"])


def test_file_of_the_user_in_the_target_is_reported_and_kept(files):
    (files.project / "set").mkdir()
    mine = files.project / "set" / "backup-20260101.tar"
    mine.write_bytes(b"years")
    for words in ((), ("--replace",)):
        ran = files.inv("storage.pack", "data", "set", *words)
        assert (ran.code, ran.out) == (123, "") and "contains 'backup-20260101.tar'" in ran.err
        assert ran.err.count("\n") == 1 and "--replace" not in ran.err
        assert os.listdir(files.project / "set") == [mine.name] and mine.read_bytes() == b"years"


def test_set_survives_a_replacement_that_has_no_space_for_its_index(files):
    files.ok("storage.pack", "data", "set")
    before = {path.name: path.read_bytes() for path in (files.project / "set").iterdir()}
    for number in range(400):
        (files.project / "data" / f"{'long' * 40}{number}").touch()
    limited = "ulimit -f 40; exec inv storage.pack data set --replace --shard-size 16K"
    ran = files.run("bash", "-c", limited)
    assert ran.code == 123 and ran.err.count("\n") == 1 and "index.jsonl" not in ran.out, ran
    assert {path.name: path.read_bytes() for path in (files.project / "set").iterdir()} == before
    files.ok("storage.unpack", "set", "out")
    assert sorted(os.listdir(files.project / "out")) == ["none", "run.sh", "sub"]
    files.ok("storage.pack", "data", "set", "--replace")
    assert not {*os.listdir(files.project / "set")} & {*before} - {"index.jsonl"}


@measurable
def test_memory_does_not_grow_with_the_size_or_number_of_files(files):
    big = files.project / "big"
    big.mkdir()
    (big / "large.bin").touch()
    os.truncate(big / "large.bin", 300 << 20)
    for number in range(3000):
        (big / f"{number}.txt").write_text("x" * 1000)
    for words in (("pack", "big", "set", "--shard-size", "64M"), ("unpack", "set", "out")):
        process = files.start("inv", f"storage.{words[0]}", *words[1:], fresh=True, stdout=subprocess.DEVNULL)
        assert peak(process) < 200 << 20
        assert process.wait() == 0, process.stderr.read()
