"""Files that are generated and not copied (sources, notes, shards): a bad connection costs a retry."""

from __future__ import annotations

import os

import pytest

from openpai_tasks.errors import NotFound, PathError, Unreachable
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect
from openpai_tasks.storage.job_files.workspace import Reference, Workspace
from openpai_tasks.storage.local.store import LocalStore
from tests.storage.gateway import Fault, Gateway

MEGABYTE = 1 << 20


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(24 * MEGABYTE))
    return pack(collect(["data"], tmp_path).files)


def test_sources_arrive_over_a_connection_that_is_cut(hdfs, archive, tmp_path):
    cut = Fault("CREATE", "cut", 4096, is_upload=True), Fault("CREATE", "cut", 10, times=2, is_upload=True)
    with Gateway(hdfs.name_node, faults=list(cut)) as gateway:
        store = HdfsStore([gateway.host], "root", prefix="/webhdfs/api/v1", root=f"/{tmp_path.name}")
        workspace = Workspace("/w", store)
        assert workspace.send(archive)
        workspace.refer(Reference("job", "ann", "lab", archive.sha256, archive.size, 1, 0), archive.sha256)
        assert not any(fault.times for fault in cut)
        assert not workspace.send(archive) and workspace.references_of("job")
        assert [entry.name for entry in store.list("/w/sources")] == [f"{archive.sha256}.tar.gz"]
        store.remove("/", recursive=True)
        store.close()


def test_failed_put_starts_over_and_finally_gives_up(tmp_path, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    begun = []

    def cut():
        begun.append("x")
        yield b"x"
        if len(begun) < 3:
            raise Unreachable("cut")

    assert put(LocalStore(), f"{tmp_path}/f", cut) == 1 and len(begun) == 3
    with pytest.raises(Unreachable):
        put(LocalStore(), f"{tmp_path}/g", lambda: cut() if begun.clear() is None else ())
    with pytest.raises(PathError, match="neither a file"):
        put(LocalStore(), os.devnull, lambda: [b"x"])
    assert os.listdir(tmp_path) == ["f"]


def test_part_that_the_server_creates_after_its_removal_is_removed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    tries = []

    class LateStore(LocalStore):
        def write(self, path, pieces, size=None):
            tries.append(path)
            if len(tries) == 1:
                raise Unreachable("cut")
            super().write(path, pieces, size)

        def remove(self, path, recursive=False):
            if len(tries) == 1:  # the first removal finds nothing: the server has not created it yet
                (tmp_path / os.path.basename(path)).write_bytes(b"")
                raise NotFound(path, 404)
            super().remove(path, recursive)

    assert put(LateStore(), f"{tmp_path}/f", lambda: [b"x"]) == 1 and len(tries) == 2
    assert os.listdir(tmp_path) == ["f"]
