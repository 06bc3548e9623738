"""The archive of a job's sources: the same files are the same bytes."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tracemalloc

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.storage.job_files import archive
from openpai_tasks.storage.job_files.archive import MADE, pack, read_archive
from openpai_tasks.storage.job_files.sources import SourceFile, collect
from openpai_tasks.storage.retry import CorruptData
from tests.needs import require

LONG = "deep/" * 30 + "name-that-no-old-tar-can-hold-" * 4


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in ("b.txt", "a space.py", "ünïcode", LONG, os.fsdecode(b"no-utf8-\xff")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "key").write_text("private")
    (folder / "key").chmod(0o600)
    return folder


def content(archive):
    return b"".join(archive.pieces())


def test_same_files_make_the_same_archive_regardless_of_time_and_place(project, tmp_path):
    first = pack(collect(["."], project).files)
    subprocess.run(["cp", "-R", str(project), str(tmp_path / "other")], check=True)
    (tmp_path / "other" / "key").chmod(0o600)
    for path in (tmp_path / "other").rglob("*"):
        os.utime(path, (1, 1))
    second = pack(tuple(reversed(collect(["."], tmp_path / "other").files)))
    assert content(first) == content(second) and first.sha256 == second.sha256
    assert first.sha256 == hashlib.sha256(content(first)).hexdigest() and first.size == len(content(first))
    (project / "b.txt").write_text("other")
    assert pack(collect(["."], project).files).sha256 != first.sha256


def test_changed_file_mode_changes_the_archive(project):
    before = pack(collect(["."], project).files)
    (project / "run.sh").chmod(0o644)
    after = pack(collect(["."], project).files)
    assert before.sha256 != after.sha256
    assert [name for name in before.files if before.files[name] != after.files[name]] == ["run.sh"]


def test_archive_is_anonymous_and_keeps_file_modes(project):
    with tarfile.open(fileobj=io.BytesIO(content(pack(collect(["."], project).files)))) as tar:
        infos = {info.name: info for info in tar}
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in infos.values()} == {
        (0, 0, "", "", MADE)
    }
    assert (infos["run.sh"].mode, infos["key"].mode) == (0o755, 0o600)
    assert list(infos) == sorted(infos)


@pytest.mark.parametrize("tar", [["tar"], ["busybox", "tar"]], ids=["tar", "busybox"])
def test_tar_and_busybox_unpack_the_archive(project, tmp_path, tar):
    require(tar[0])
    target = tmp_path / "out"
    target.mkdir()
    (tmp_path / "a.tgz").write_bytes(content(pack(collect(["."], project).files)))
    subprocess.run([*tar, "-xzf", str(tmp_path / "a.tgz"), "-C", str(target)], check=True)
    assert subprocess.run(["diff", "-r", str(project), str(target)]).returncode == 0
    assert os.access(target / "run.sh", os.X_OK) and not os.access(target / "b.txt", os.X_OK)


def test_received_archive_equals_the_packed_one(project):
    made = pack(collect(["."], project).files)
    again = read_archive(made.pieces(), made.sha256)
    assert again == made and again.files == made.files and content(again) == content(made)


def test_damaged_archive_is_refused(project):
    made = pack(collect(["."], project).files)
    with pytest.raises(CorruptData, match=made.sha256):
        read_archive([content(made)[:-1]], made.sha256)


@pytest.mark.parametrize("size", [1, 3])
def test_source_file_that_has_disappeared_is_an_error(project, size):
    with pytest.raises(PathError, match="gone"):
        pack([SourceFile(project / "gone", "gone", size)])


def crafted(*parts):
    """Return an archive of these bytes: each is a pair, so that a few bytes become many."""
    content = io.BytesIO()
    with gzip.GzipFile("", "wb", 6, content, mtime=0) as packed:
        for piece, times in parts:
            for _ in range(times):
                packed.write(piece)
    return content.getvalue()


def header(kind, size=0, name="x"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


BOMBS = {
    "many headers": [(header(tarfile.DIRTYPE) * 512, 9)],
    "one large header": [(header(tarfile.XHDTYPE, 1 << 32), 1), (bytes(1 << 16), 8)],
    "a long name": [(header(tarfile.GNUTYPE_LONGNAME, 1 << 30), 1), (bytes(1 << 16), 8)],
    "headers of headers": [((header(tarfile.XHDTYPE, 512) + bytes(512)) * 4096, 1)],
    "a sparse file": [(header(tarfile.GNUTYPE_SPARSE, 1 << 40), 1), (bytes(1024), 1)],
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_archive_that_unpacks_to_large_headers_is_refused(bomb, monkeypatch):
    monkeypatch.setattr(archive, "MOST_HEADERS", 2 << 20)
    packed = crafted(*BOMBS[bomb])
    tracemalloc.start()
    try:
        with pytest.raises(PathError, match=r"\.tar\.gz cannot be read: "):
            read_archive([packed], hashlib.sha256(packed).hexdigest())
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


CONTENTS = {
    "a large file": [(header(tarfile.REGTYPE, 8 << 20), 1), (bytes(1 << 20), 8)],
    "a file that claims to be large": [(header(tarfile.REGTYPE, 8 << 30), 1)],
    "many files": [(header(tarfile.REGTYPE, 1 << 18) + bytes(1 << 18), 8)],
    "content of no file": [(header(b"Z", 8 << 20), 1), (bytes(1 << 20), 8)],
    "content of a folder": [(header(tarfile.DIRTYPE, 8 << 20), 1), (bytes(1 << 20), 8)],
}


@pytest.mark.parametrize("bomb", CONTENTS)
def test_archive_that_unpacks_to_much_more_than_its_size_is_refused(bomb, monkeypatch):
    monkeypatch.setattr(archive, "LEAST_LIMIT", 1 << 20)
    packed = crafted(*CONTENTS[bomb], (bytes(1024), 1))
    with pytest.raises(PathError, match=r"\.tar\.gz cannot be read: it unpacks to more than 1 MB$"):
        read_archive([packed], hashlib.sha256(packed).hexdigest())


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, b"Z"])
def test_archive_whose_reading_would_go_back_is_refused(kind):
    packed = crafted((header(tarfile.DIRTYPE) * 4 + header(kind, -1024) + bytes(1024), 1))
    with pytest.raises(
        PathError, match=r"\.tar\.gz cannot be read: ('x' is sparse or has no valid size|damaged header: .*)$"
    ):
        read_archive([packed], hashlib.sha256(packed).hexdigest())
