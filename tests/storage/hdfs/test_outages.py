"""A pair of name nodes and their data node, whose processes are killed: files are copied all the same."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import threading
import time

import pytest

from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.job_storage import WebHdfs as Seen
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying import resume
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import Errand, copies
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect
from openpai_tasks.storage.job_files.workspace import Workspace
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import fingerprint
from tests.needs import needs
from tests.storage import hdfs_jars
from tests.storage.hdfs.test_jobs import SHELLS, script
from tests.storage.hdfs_server import HdfsPair

MEGABYTE = 1 << 20
NAMES = [f"{number}.bin" for number in range(20)]


@pytest.fixture(scope="module")
def pair():
    """Not the HDFS that other tests use: here, what they need is killed."""
    if reason := hdfs_jars.missing():
        pytest.skip(f"no HDFS: {reason}")
    pair = HdfsPair().start()
    yield pair
    pair.stop()


@pytest.fixture
def hdfs(pair):
    """Name node one is active, and the data node is up."""
    if not pair.is_active("one"):
        pair.activate("one")
    return pair.repair()


@pytest.fixture
def store(hdfs, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    store = HdfsStore([hdfs.name_node], "root", root=f"/{tmp_path.name}")
    store.make_folder("/")
    yield store
    store.close()


def at(store, path) -> Location:
    return Location(store, str(path), str(path))


def test_files_are_read_after_the_active_name_node_died(pair, tmp_path):
    (tmp_path / "sent").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / "sent" / name).write_bytes(os.urandom(100_000 if number < 3 else 0))
    store, here = HdfsStore(pair.name_nodes, "root"), LocalStore()
    there = Location(store, "/data", "hdfs")

    pair.activate("two")  # the first name node in the list is on standby
    sent = Location(here, str(tmp_path / "sent"), "sent")
    assert copy([Errand(sent, here.stat(sent.path), there)]).files == len(NAMES)

    pair.kill_name_node("two")
    pair.activate("one")
    assert [found.name for found in walk(there)] == sorted(NAMES)
    back = Location(here, str(tmp_path / "back"), "back")
    done = copy([Errand(there, store.stat("/data"), back)])
    assert (done.files, done.failed) == (len(NAMES), ())
    assert filecmp.cmpfiles(sent.path, back.path, NAMES, shallow=False) == (NAMES, [], [])
    store.close()


def test_copy_is_retried_after_its_data_node_was_killed(hdfs, store, tmp_path, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(resume, "LARGE", 4 * MEGABYTE)
    content = os.urandom(12 * MEGABYTE)
    (tmp_path / "f").write_bytes(content)
    half, is_back, results = threading.Event(), threading.Event(), []

    class Half(Watch):
        total = 0

        def moved(self, count):
            self.total += count
            if self.total > 5 * MEGABYTE and not half.is_set():
                half.set()
                hdfs.kill_data_node()

        def wait(self, seconds):
            is_back.wait(100)
            return super().wait(seconds)

    def run():
        patient = HdfsStore([hdfs.name_node], "root", root=store.root)  # until the block is reported
        results.append(copy(copies([at(LocalStore(), tmp_path / "f")], at(patient, "/")), watch=Half()))
        patient.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert half.wait(60)
    time.sleep(0.1)
    hdfs.repair()  # in the main thread, because the process ends with its thread
    is_back.set()
    thread.join()
    assert results[0].failed == ()
    assert store.digest("/f") == fingerprint(store.hasher(), [content])
    assert [entry.name for entry in store.list("/")] == ["f"]


def test_sources_arrive_although_a_data_node_dies_during_the_upload(hdfs, store, tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(8 * MEGABYTE))
    archive = pack(collect(["data"], tmp_path))
    half, is_back = threading.Event(), threading.Event()
    sent, pieces = [], archive.pieces

    def dying():
        for number, piece in enumerate(pieces()):
            if number == 4 and not half.is_set():
                hdfs.kill_data_node()
                half.set()
            yield piece

    object.__setattr__(archive, "pieces", dying)

    def send():
        with retry._waiting(lambda seconds: not is_back.wait(100)):
            sent.append(Workspace("/w", store).send(archive))

    thread = threading.Thread(target=send)
    thread.start()
    assert half.wait(60)
    time.sleep(0.1)
    hdfs.repair()  # in the main thread, because the process ends with its thread
    is_back.set()
    thread.join()
    assert sent == [True] and Workspace("/w", store).read(archive.sha256).files == archive.files


@needs("curl")
def test_output_upload_survives_a_data_node_outage(hdfs, store, tmp_path):
    home = Seen(store.urls("/my%20team"), "root")
    command = 'echo hi > "$PAI_OUTPUT_DIR/a"; echo done; read line < "$GATE"'
    os.mkfifo(tmp_path / "gate")
    patient = tmp_path / "patient" / "sleep"  # another test checks the length of the pauses
    patient.parent.mkdir()
    patient.write_text(f"#!/bin/sh\nuntil test -e '{tmp_path}/back'; do {shutil.which('sleep')} 0.1; done\n")
    patient.chmod(0o755)
    path = f"{patient.parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [*SHELLS["bash"], script(JobRequest(command, "n", "i", home=home))],
        cwd=tmp_path,
        env={"PATH": path, "PAI_JOB_NAME": "me~one", "GATE": str(tmp_path / "gate")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "done\n"
    hdfs.kill_data_node()
    try:
        (tmp_path / "gate").write_text("go on\n")
        assert process.stderr is not None and "curl: (7)" in process.stderr.readline()
    finally:
        hdfs.start_data_node()
    hdfs.until_data_node_answers()
    (tmp_path / "back").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"".join(store.read(f"{Workspace('/my team', store).output('one')}/a")) == b"hi\n"
