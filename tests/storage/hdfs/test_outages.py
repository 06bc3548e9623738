"""A pair of name nodes and their data node, whose processes are killed: files are copied all the same."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import threading

import pytest

from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.job_storage import HdfsFolder as Seen
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying import resume
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import CopyItem, plan_copy
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
    assert copy([CopyItem(sent, here.stat(sent.path), there)]).files == len(NAMES)

    pair.kill_name_node("two")
    pair.activate("one")
    assert [found.name for found in walk(there)] == sorted(NAMES)
    back = Location(here, str(tmp_path / "back"), "back")
    done = copy([CopyItem(there, store.stat("/data"), back)])
    assert (done.files, done.failed) == (len(NAMES), ())
    assert filecmp.cmpfiles(sent.path, back.path, NAMES, shallow=False) == (NAMES, [], [])
    store.close()


class Half(Watch):
    """Report when half of the file is copied, and go on when the data node is dead."""

    def __init__(self, outage):
        super().__init__()
        self.outage, self.total, self.is_half = outage, 0, threading.Event()

    def moved(self, count):
        self.total += count
        if self.total > 5 * MEGABYTE and not self.is_half.is_set():
            self.is_half.set()
            assert self.outage.began.wait(100)

    def wait(self, seconds):
        self.outage.ended.wait(100)
        return super().wait(seconds)


class Outage:
    """A data node dies while a file is copied, sources are sent and a job is about to keep its output."""

    def __init__(self, hdfs, folder):
        self.folder, self.began, self.ended = folder, threading.Event(), threading.Event()
        self.store = HdfsStore([hdfs.name_node], "root", root="/outage")
        self.store.make_folder("/")
        self.content = os.urandom(12 * MEGABYTE)
        (folder / "f").write_bytes(self.content)
        (folder / "data").write_bytes(os.urandom(8 * MEGABYTE))
        self.archive = pack(collect(["data"], folder).files)
        self.copied, self.sent, self.watch, self.is_half_sent = [], [], Half(self), threading.Event()
        threads = [threading.Thread(target=target) for target in (self.copy, self.send)]
        for thread in threads:
            thread.start()
        self.job = start_job(self.store, folder) if shutil.which("curl") else None
        assert self.watch.is_half.wait(60) and self.is_half_sent.wait(60)
        hdfs.kill_data_node()
        self.began.set()
        self.complaint = self.job and let_it_end(self.job, folder)
        hdfs.repair()  # in the main thread, because the process ends with its thread
        self.ended.set()
        (folder / "back").touch()
        for thread in threads:
            thread.join()

    def copy(self):
        patient = HdfsStore(
            [self.store.hosts[0]], "root", root=self.store.root
        )  # until the block is reported
        file, target = at(LocalStore(), self.folder / "f"), at(patient, "/")
        self.copied.append(copy(plan_copy([file], target), watch=self.watch))
        patient.close()

    def send(self):
        pieces = self.archive.pieces

        def dying():
            for number, piece in enumerate(pieces()):
                if number == 4 and not self.is_half_sent.is_set():
                    self.is_half_sent.set()
                    assert self.began.wait(100)
                yield piece

        object.__setattr__(self.archive, "pieces", dying)
        with retry._waiting_with(lambda seconds: not self.ended.wait(100)):
            self.sent.append(Workspace("/w", self.store).send(self.archive))


def start_job(store, folder):
    """Start a job that has written its output, and ends when it may read a line."""
    home = Seen(store.urls("/my%20team"), "root")
    command = 'echo hi > "$PAI_OUTPUT_DIR/a"; echo done; read line < "$GATE"'
    os.mkfifo(folder / "gate")
    patient = folder / "patient" / "sleep"  # another test checks the length of the pauses
    patient.parent.mkdir()
    patient.write_text(f"#!/bin/sh\nuntil test -e '{folder}/back'; do {shutil.which('sleep')} 0.1; done\n")
    patient.chmod(0o755)
    path = f"{patient.parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [*SHELLS["bash"], script(JobRequest(command, "n", "i", home=home))],
        cwd=folder,
        env={"PATH": path, "PAI_JOB_NAME": "me~one", "GATE": str(folder / "gate")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "done\n"
    return process


def let_it_end(job, folder):
    """Let the command of the job end; return the first line about its output."""
    (folder / "gate").write_text("go on\n")
    return job.stderr.readline()


@pytest.fixture(scope="module")
def outage(pair, tmp_path_factory):
    """What happens during one outage, as a data node takes seconds to start again."""
    if not pair.is_active("one"):
        pair.activate("one")
    folder = tmp_path_factory.mktemp("outage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPAI_HOME", str(folder / "home"))
        patch.setattr(retry, "FIRST_PAUSE", 0.01)
        patch.setattr(resume, "LARGE", 4 * MEGABYTE)
        outage = Outage(pair, folder)
    yield outage
    outage.store.close()


def test_copy_is_retried_after_its_data_node_was_killed(outage):
    assert outage.copied[0].failed == ()
    store = outage.store
    assert store.digest("/f") == fingerprint(store.hasher(), [outage.content])
    assert {entry.name for entry in store.list("/")} <= {"f", "w", "my team"}


def test_sources_arrive_although_a_data_node_dies_during_the_upload(outage):
    archive = outage.archive
    assert outage.sent == [True] and Workspace("/w", outage.store).read(archive.sha256).files == archive.files


@needs("curl")
def test_output_upload_survives_a_data_node_outage(outage):
    outage.job.communicate(timeout=60)
    assert "curl: (7)" in outage.complaint and outage.job.returncode == 0
    output = Workspace("/my team", outage.store).output("one")
    assert b"".join(outage.store.read(f"{output}/a")) == b"hi\n"
