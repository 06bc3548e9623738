"""Interrupted large copies resume where they stopped, and never use the part of another copy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openpai_tasks.errors import Unreachable
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.copying.resume import LARGE, open_note
from openpai_tasks.storage.copying.transfer import is_stale, transfer
from openpai_tasks.storage.hdfs import store as hdfs_store
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.parts import PART, PART_NAME
from openpai_tasks.storage.store import base
from tests.storage.gateway import Fault, Gateway

SIZE = LARGE + 12_345


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(hdfs_store, "RECOVERY", 100.0)  # a slow data node takes long to report what it has


@pytest.fixture
def data(tmp_path):
    """A large file and its content."""
    content = os.urandom(SIZE)
    (tmp_path / "large").write_bytes(content)
    return tmp_path / "large", content


class Counting(Watch):
    """Counts the bytes moved, and stops the copy after ``most`` bytes."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most, self.moved_bytes = most, 0

    def moved(self, count: int) -> None:
        self.moved_bytes += count
        if self.most is not None and self.moved_bytes >= self.most:
            self.stop()


class Counted(LocalStore):
    """A store on this machine that counts the bytes written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def _stream(self, path, pieces, how):
        def counted():
            for piece in pieces:
                self.written += len(piece)
                yield piece

        super()._stream(path, counted(), how)


def entry_of(store, path):
    entry = store.stat(str(path))
    assert entry
    return entry


def send(source, path, target, to, watch=None) -> int:
    return transfer(source, entry_of(source, path), target, str(to), watch or Watch())


def parts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if PART_NAME.fullmatch(path.name)]


def notes(tmp_path: Path) -> list[Path]:
    """The notes; the claims of copies that failed have shorter names."""
    return [path for path in (tmp_path / "home/transfers").iterdir() if len(path.name) == 64]


def interrupt_copy(data, folder: Path, most: int = SIZE // 2) -> None:
    """Interrupt a copy to ``folder/copy`` half-way."""
    folder.mkdir(exist_ok=True)
    with pytest.raises(Interrupted):
        send(LocalStore(), data[0], LocalStore(), folder / "copy", Counting(most))
    assert len(parts(folder)) == 1 and not (folder / "copy").exists()


def test_interrupted_copy_resumes_where_it_stopped(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    target = Counted()
    send(LocalStore(), data[0], target, tmp_path / "to/copy")
    assert (tmp_path / "to/copy").read_bytes() == data[1]
    assert 0 < target.written < SIZE * 0.6
    assert parts(tmp_path / "to") == [] and notes(tmp_path) == []


def test_copy_of_a_changed_source_starts_over(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    content = os.urandom(SIZE)
    data[0].write_bytes(content)
    os.utime(data[0], (5, 5))
    target = Counted()
    send(LocalStore(), data[0], target, tmp_path / "to/copy")
    assert (tmp_path / "to/copy").read_bytes() == content and target.written == SIZE
    assert parts(tmp_path / "to") == [] and notes(tmp_path) == []


def test_damaged_part_is_not_used(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    (name,) = parts(tmp_path / "to")
    with open(tmp_path / "to" / name, "r+b") as file:
        file.write(b"damage")
    target = Counted()
    send(LocalStore(), data[0], target, tmp_path / "to/copy")
    assert (tmp_path / "to/copy").read_bytes() == data[1]
    assert target.written > SIZE  # the missing bytes, and then the whole file
    assert parts(tmp_path / "to") == [] and notes(tmp_path) == []


def test_part_that_is_longer_than_the_source_is_not_used(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    (name,) = parts(tmp_path / "to")
    with open(tmp_path / "to" / name, "ab") as file:
        file.write(bytes(SIZE))
    send(LocalStore(), data[0], LocalStore(), tmp_path / "to/copy")
    assert (tmp_path / "to/copy").read_bytes() == data[1]


def test_copy_succeeds_when_its_part_has_disappeared(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    (tmp_path / "to" / parts(tmp_path / "to")[0]).unlink()
    send(LocalStore(), data[0], LocalStore(), tmp_path / "to/copy")
    assert (tmp_path / "to/copy").read_bytes() == data[1]


def test_two_copies_at_once_do_not_share_a_part(data, tmp_path):
    source, entry, path = LocalStore(), entry_of(LocalStore(), data[0]), str(tmp_path / "to/copy")
    interrupt_copy(data, tmp_path / "to")
    with open_note(source, entry, LocalStore(), path) as first:
        assert first is not None and first.part
        with open_note(source, entry, LocalStore(), path) as second:
            assert second is None
        before = (tmp_path / "to" / parts(tmp_path / "to")[0]).read_bytes()
        send(source, data[0], LocalStore(), path)  # the second copy has a separate part
        assert Path(path).read_bytes() == data[1]
        assert [(tmp_path / "to" / name).read_bytes() for name in parts(tmp_path / "to")] == [before]


def test_copy_to_another_target_has_another_part(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    target = Counted()
    send(LocalStore(), data[0], target, tmp_path / "to/other")
    assert target.written == SIZE and len(parts(tmp_path / "to")) == 1


def test_no_part_is_kept_when_no_data_arrived(data, tmp_path):
    class Silent(LocalStore):
        def read(self, path, offset=0, length=None):
            raise Unreachable(f"{path}: no answer")
            yield

    (tmp_path / "to").mkdir()
    with pytest.raises(Unreachable):
        send(Silent(), data[0], LocalStore(), tmp_path / "to" / "f")
    assert list((tmp_path / "to").iterdir()) == [] == notes(tmp_path)
    with pytest.raises(Interrupted):
        send(LocalStore(), data[0], LocalStore(), tmp_path / "to" / "f", Counting(most=1 << 20))
    with pytest.raises(Unreachable):
        send(Silent(), data[0], LocalStore(), tmp_path / "to" / "f")
    assert len(list((tmp_path / "to").iterdir())) == 1  # what came before is kept


def test_full_disk_leaves_no_part_and_no_note(data, tmp_path):
    class Full(Counted):
        def _stream(self, path, pieces, how):
            super()._stream(path, pieces, how)
            if how == os.O_APPEND:
                raise self.full(path)

        def full(self, path):
            from openpai_tasks.errors import PathError

            return PathError(f"{path}: no space left on device")

    (tmp_path / "to").mkdir()
    with pytest.raises(OSError, match="no space left"):
        send(LocalStore(), data[0], Full(), tmp_path / "to/copy")
    assert list((tmp_path / "to").iterdir()) == [] and notes(tmp_path) == []


def test_copy_works_without_a_writable_home_folder(data, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", "/dev/null/none")
    send(LocalStore(), data[0], LocalStore(), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data[1]


COPY = """
import sys, time
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import transfer
from openpai_tasks.storage.hdfs.store import HdfsStore
way, here, there, host, prefix, at = sys.argv[1:]
class Stopping(Watch):
    total = 0
    def moved(self, count):
        self.total += count
        if self.total >= int(at):
            print("there", flush=True)
            time.sleep(600)
local, remote = LocalStore(), HdfsStore([host], "root", prefix=prefix)
source, one, target, other = (local, here, remote, there) if way == "up" else (remote, there, local, here)
transfer(source, source.stat(one), target, other, Stopping())
"""


def run_and_kill(way: str, here: Path, there: str, host: str, prefix: str, at: int) -> None:
    """Run the copy in a process, and kill it when ``at`` bytes have moved."""
    command = [sys.executable, "-c", COPY, way, str(here), there, host, prefix, str(at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "there\n"
        process.kill()


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("prefix", ["/webhdfs/v1", "/webhdfs/api/v1"], ids=["direct", "gateway"])
def test_killed_copy_resumes_where_it_stopped(hdfs, data, tmp_path, way, prefix):
    with contextlib.ExitStack() as stack:
        behind = prefix != "/webhdfs/v1"
        host = stack.enter_context(Gateway(hdfs.name_node)).host if behind else hdfs.name_node
        store = HdfsStore([host], "root", prefix=prefix)
        folder = f"/resume-{way}-{behind}"
        here, there = (data[0] if way == "up" else tmp_path / "back"), f"{folder}/f"
        store.make_folder(folder)
        if way == "down":
            store.write(there, [data[1]], SIZE)
        run_and_kill(way, here, there, host, prefix, SIZE // 2)
        if way == "up":
            assert [entry.name for entry in store.list(folder) if not PART_NAME.fullmatch(entry.name)] == []
        else:
            assert not here.exists()
        moved = repeat_copy(store, here, there, way)
        assert moved < SIZE * 0.75
        assert b"".join(store.read(there)) == data[1] == here.read_bytes()
        assert [entry.name for entry in store.list(folder)] == ["f"]
        store.close()


def repeat_copy(store: HdfsStore, here: Path, there: str, way: str) -> int:
    """Repeat the copy, and return the number of bytes that crossed the network."""
    crossed = []

    class Seen(HdfsStore):
        def read(self, path, offset=0, length=None):
            for piece in super().read(path, offset, length):
                crossed.append(len(piece))
                yield piece

        def append(self, path, pieces, size):
            crossed.append(size)
            super().append(path, pieces, size)

        def write_checked(self, path, pieces, size):
            done = super().write_checked(path, pieces, size)
            crossed.append(size if done else 0)
            return done

        def read_checked(self, path, size):
            pieces = super().read_checked(path, size)
            crossed.append(size if pieces else 0)
            return pieces

    remote = Seen(store.hosts, "root", prefix=store._prefix)
    if way == "up":
        send(LocalStore(), here, remote, there)
    else:
        send(remote, there, LocalStore(), here)
    remote.close()
    return sum(crossed)


def test_broken_connection_costs_only_the_data_in_flight(hdfs, data, tmp_path):
    """A retry within the same copy, in the same process, resumes too."""
    with Gateway(hdfs.name_node) as gateway:
        store = HdfsStore([gateway.host], "root", prefix="/webhdfs/api/v1", retries=RetryPolicy(3, 0.02))
        store.make_folder("/resume-line")
        gateway.faults.append(Fault("APPEND", "cut", 3 * SIZE // 4, is_upload=True))
        send(LocalStore(), data[0], store, "/resume-line/f")
        assert b"".join(store.read("/resume-line/f")) == data[1]
        assert gateway.count("CREATE") == 2 and gateway.count("APPEND") >= 4  # never started over
        store.close()


def age_part(folder: Path, note: Path, days: float) -> Path:
    """Make the part look as if its copy had begun, and last moved data, ``days`` ago."""
    (old,) = parts(folder)
    when = time.time() - days * 86400
    part = folder / f"{PART}{int(when):08x}01234567"
    (folder / old).rename(part)
    facts = note.read_text().partition("\n")[0]
    note.write_text(f"{facts}\n{part}")
    os.utime(part, (when, when))
    return part


def test_part_of_a_running_copy_is_never_stale(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    (note,) = notes(tmp_path)
    part = age_part(tmp_path / "to", note, 30)
    entry = entry_of(LocalStore(), str(part))
    os.utime(note, (time.time() - 30 * 86400,) * 2)
    with note.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not is_stale(entry)
        interrupt_copy(data, tmp_path / "other")  # clears the notes that nobody holds
        assert note.exists()
    assert is_stale(entry)


class Peeks(Counted):
    """Records whether another machine finds the part stale just before it is renamed."""

    def rename(self, source, target):
        if base(target) == "copy":
            with pytest.MonkeyPatch.context() as there:
                there.setenv("OPENPAI_HOME", "/none")
                self.was_stale = is_stale(entry_of(self, source))
        super().rename(source, target)


def test_copy_that_took_days_is_not_stale_at_its_end(data, tmp_path):
    os.utime(data[0], (1_000_000_000,) * 2)
    interrupt_copy(data, tmp_path / "to")
    (note,) = notes(tmp_path)
    age_part(tmp_path / "to", note, 30)
    store = Peeks()
    send(LocalStore(), data[0], store, tmp_path / "to" / "copy")
    assert 0 < store.written < SIZE * 0.6  # it resumed
    assert store.was_stale is False and parts(tmp_path / "to") == [] and notes(tmp_path) == []


def test_stale_notes_are_cleared(data, tmp_path):
    interrupt_copy(data, tmp_path / "to")
    (note,) = notes(tmp_path)
    os.utime(note, (time.time() - 9 * 86400,) * 2)
    with open_note(LocalStore(), entry_of(LocalStore(), data[0]), LocalStore(), str(tmp_path / "x")) as other:
        assert other is not None and other.part == ""
        assert note not in notes(tmp_path)
