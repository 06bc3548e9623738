"""Files of PFS: only changed chunks travel, and a file is replaced as a whole where the server can."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.backends.paddlecloud.pfs import connection
from openpai_tasks.backends.paddlecloud.pfs.store import PfsStore
from openpai_tasks.errors import ConfigError, Denied, PathError, Unreachable
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.store import StorageSpec
from tests.backends.paddlecloud.pfs.original_server import OriginalServer
from tests.server.conftest import wait_for
from tests.storage import pfs_server
from tests.storage.relay import TO_CLIENT, TO_SERVER, Fault, Relay

CHUNK = connection.CHUNK // 4  # less travels, by the same rules
SIZE = 3 * CHUNK + 1000
LITTLE = 200_000  # bytes around chunks, however many of them there are in these tests


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)


@pytest.fixture
def server():
    return pfs_server.shared()


@pytest.fixture
def folder(server, tmp_path):
    """The name of a folder for one test, in the server's home."""
    (server.home / tmp_path.name).mkdir(parents=True)
    return tmp_path.name


class Line:
    """A store behind a relay, and the test's folder in it."""

    def __init__(self, server, folder, relay):
        self.relay, self.here = relay, server.home / folder
        self.store = server.store(endpoint=f"http://{relay.host}/paddlecloud")
        self.store.use_chunks(CHUNK)
        self.path = f"/home/{server.user}/{folder}"

    def at(self, name: str) -> Location:
        return Location(self.store, f"{self.path}/{name}", f"pai://lab/pfs{self.path}/{name}")

    def copied(self, source: Location, target: Location, **options) -> dict[str, int]:
        """Copy a file, which must succeed; return the bytes that travelled."""
        before = dict(self.relay.moved)
        assert copy(plan_copy([source], target), **options).failed == ()
        return {way: self.relay.moved[way] - before[way] for way in before}


@pytest.fixture
def line(server, folder):
    with Relay(server.endpoint.split("/")[2]) as relay:
        yield Line(server, folder, relay)


def here(path: Path) -> Location:
    return Location(LocalStore(), str(path), str(path))


def noise(path: Path, size: int = SIZE) -> bytes:
    content = os.urandom(size)
    path.write_bytes(content)
    return content


def change(path: Path, *offsets: int) -> bytes:
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset] ^= 1
    path.write_bytes(content)
    return bytes(content)


def test_only_changed_chunks_are_sent(line, tmp_path):
    noise(tmp_path / "f")
    assert line.copied(here(tmp_path / "f"), line.at("f"))[TO_SERVER] > SIZE
    content = change(tmp_path / "f", CHUNK + 5)
    moved = line.copied(here(tmp_path / "f"), line.at("f"))
    assert (line.here / "f").read_bytes() == content
    assert CHUNK < moved[TO_SERVER] < CHUNK + 1000 + LITTLE
    os.utime(tmp_path / "f")
    assert line.copied(here(tmp_path / "f"), line.at("f"))[TO_SERVER] < LITTLE


@pytest.mark.parametrize("chunk", [connection.CHUNK, connection.CHUNK // 8], ids=["default", "smaller"])
def test_larger_chunks_send_and_fetch_more(line, tmp_path, chunk):
    line.store.use_chunks(chunk)
    size = connection.CHUNK + chunk + 1000
    noise(tmp_path / "f", size)
    assert line.copied(here(tmp_path / "f"), line.at("f"))[TO_SERVER] > size
    content = change(tmp_path / "f", connection.CHUNK + 5)
    moved = line.copied(here(tmp_path / "f"), line.at("f"))
    assert (line.here / "f").read_bytes() == content
    assert chunk < moved[TO_SERVER] < chunk + 1000 + LITTLE
    content = change(line.here / "f", connection.CHUNK + 5)
    moved = line.copied(line.at("f"), here(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == content
    assert chunk < moved[TO_CLIENT] < chunk + LITTLE


def test_only_changed_chunks_are_fetched(line, tmp_path):
    noise(line.here / "f")
    assert line.copied(line.at("f"), here(tmp_path / "f"))[TO_CLIENT] > SIZE
    content = change(line.here / "f", CHUNK + 5)
    moved = line.copied(line.at("f"), here(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == content
    assert CHUNK < moved[TO_CLIENT] < CHUNK + LITTLE


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, SIZE + CHUNK])
def test_a_file_that_grows_or_shrinks_keeps_its_equal_chunks(line, tmp_path, size):
    content = noise(tmp_path / "f", SIZE + CHUNK)
    (line.here / "f").write_bytes(content[:SIZE])
    (tmp_path / "f").write_bytes(content[:size])
    moved = line.copied(here(tmp_path / "f"), line.at("f"))
    assert (line.here / "f").read_bytes() == content[:size]
    assert moved[TO_SERVER] < 2 * CHUNK + LITTLE
    moved = line.copied(line.at("f"), here(tmp_path / "g"))
    assert (tmp_path / "g").read_bytes() == content[:size] and moved[TO_SERVER] < LITTLE


class StopWhen(Watch):
    """Interrupts a copy once it has read some bytes, and the server has got some."""

    def __init__(self, size: int, has_begun: Callable[[], object]) -> None:
        super().__init__()
        self._left, self._has_begun = size, has_begun

    def moved(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            wait_for(self._has_begun)
            self.stop()
        super().moved(size)


@pytest.mark.parametrize("old", [b"", b"old", os.urandom(SIZE)], ids=["new", "short", "long"])
def test_an_interrupted_upload_leaves_the_old_file_and_continues(line, tmp_path, old):
    content, file = noise(tmp_path / "f"), line.here / "f"
    if old:
        file.write_bytes(old)

    def begun() -> list[Path]:
        return [part for part in line.here.glob(f"{PART}*") if part.stat().st_size >= CHUNK]

    with pytest.raises(Interrupted):
        copy(plan_copy([here(tmp_path / "f")], line.at("f")), watch=StopWhen(2 * CHUNK + CHUNK // 2, begun))
    assert file.read_bytes() == old if old else not file.exists()
    (part,) = begun()
    have, starts = part.read_bytes(), range(0, SIZE, CHUNK)
    missing = [at for at in starts if have[at : at + CHUNK] != content[at : at + CHUNK]]
    moved = line.copied(here(tmp_path / "f"), line.at("f"))
    assert file.read_bytes() == content and os.listdir(line.here) == ["f"]
    assert moved[TO_SERVER] < sum(len(content[at : at + CHUNK]) for at in missing) + LITTLE


def fail() -> None:
    raise PathError("the source changed")


@pytest.mark.parametrize("size", [0, 5, 2 * CHUNK + 1])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_copy_that_fails_leaves_the_old_file_and_nothing_else(line, size, is_there):
    old = noise(line.here / "f", 2 * CHUNK + 1) if is_there else b""
    content, path = os.urandom(size), line.at("f").path
    cases = ((size, fail, "source changed"), (size + 1, None, "bytes"), (size - 1, None, "bytes"))
    for claimed, check, reason in cases:
        if claimed < 0:
            continue
        for mtime_ms in (None, 1_500_000_000_000):
            with pytest.raises(PathError, match=reason):
                line.store.write_whole(path, [content], claimed, mtime_ms, check)
        assert os.listdir(line.here) == (["f"] if is_there else [])
        assert not is_there or (line.here / "f").read_bytes() == old


def test_a_replaced_file_keeps_its_mode(line, tmp_path):
    for size in (5, CHUNK + 5):
        noise(line.here / "f", size)
        (line.here / "f").chmod(0o750)
        os.utime(line.here / "f", (1, 1))
        content = noise(tmp_path / "f", size)
        line.copied(here(tmp_path / "f"), line.at("f"))
        there = (line.here / "f").stat()
        assert (line.here / "f").read_bytes() == content and there.st_mode & 0o777 == 0o750
        assert there.st_mtime_ns // 1_000_000 == (tmp_path / "f").stat().st_mtime_ns // 1_000_000


def test_another_writer_of_the_same_file_is_noticed(line, tmp_path):
    old = noise(line.here / "f", 2 * CHUNK)
    os.utime(line.here / "f", (1, 1))
    content = old[:CHUNK] + os.urandom(CHUNK)

    def pieces():
        yield content[:CHUNK]
        yield content[CHUNK:]
        wait_for(lambda: line.relay.asked[-1:] and "GetChunkMeta" in line.relay.asked[-1])
        (line.here / "f").write_bytes(os.urandom(2 * CHUNK))

    with pytest.raises(PathError, match="another writer"):
        line.store.write_whole(line.at("f").path, pieces(), 2 * CHUNK, 1_500_000_000_000)
    assert os.listdir(line.here) == ["f"]


def test_old_parts_are_removed_by_a_later_copy(line, tmp_path):
    old, new = line.here / f"{PART}0000000012345678", line.here / f"{PART}0000000087654321"
    for part in (old, new):
        part.touch()
    os.utime(old, (1_500_000_000, 1_500_000_000))
    noise(tmp_path / "f", 5)
    line.copied(here(tmp_path / "f"), line.at("f"))
    assert sorted(os.listdir(line.here)) == [new.name, "f"]


def test_a_renamed_file_does_not_travel(line):
    noise(line.here / "f")
    before = dict(line.relay.moved)
    line.store.rename(line.at("f").path, line.at("d/g").path)
    assert os.listdir(line.here / "d") == ["g"]
    assert line.relay.moved[TO_CLIENT] - before[TO_CLIENT] < LITTLE


def test_a_stream_of_unknown_size_replaces_a_longer_file(line):
    noise(line.here / "f")
    line.store.write(line.at("f").path, iter([b"a" * CHUNK, b"b"]))
    assert (line.here / "f").read_bytes() == b"a" * CHUNK + b"b"


FAULTS = [("cut", 100), ("cut", CHUNK // 2), ("flip", CHUNK // 2), ("busy", 0)]


@pytest.mark.parametrize("act, place", FAULTS)
def test_an_upload_survives_faults_of_the_connection(line, tmp_path, act, place):
    content = noise(tmp_path / "f")
    line.relay.faults.append(Fault(act, TO_SERVER, place))
    line.copied(here(tmp_path / "f"), line.at("f"))
    assert not line.relay.faults and (line.here / "f").read_bytes() == content
    assert os.listdir(line.here) == ["f"]


@pytest.mark.parametrize("act, place", FAULTS)
def test_a_download_survives_faults_of_the_connection(line, tmp_path, act, place):
    content = noise(line.here / "f")
    line.relay.faults.append(Fault(act, TO_CLIENT, place))
    line.copied(line.at("f"), here(tmp_path / "f"))
    assert not line.relay.faults and (tmp_path / "f").read_bytes() == content


def test_an_upload_that_fails_is_reported_and_leaves_the_old_file(line, tmp_path):
    noise(tmp_path / "f")
    (line.here / "f").write_bytes(b"old")
    line.relay.faults.append(Fault("cut", TO_SERVER, CHUNK // 2, times=99))
    copied = copy(plan_copy([here(tmp_path / "f")], line.at("f")))
    assert "no answer" in copied.failed[0].reason
    assert (line.here / "f").read_bytes() == b"old"


# Who may do what


def test_a_refused_token_is_renewed_once_for_all_threads(server, folder, tmp_path):
    asked = []

    def renew() -> str:
        asked.append(1)
        return server.token

    store = server.store(token="0" * 40, renew=renew)
    noise(tmp_path / "f")
    path = f"/home/{server.user}/{folder}/f"
    assert copy(plan_copy([here(tmp_path / "f")], Location(store, path, path))).failed == ()
    assert asked == [1]
    assert server.store(token="", renew=renew).stat(path) is not None and asked == [1, 1]


def test_a_token_that_stays_refused_is_an_error(server):
    home = f"/home/{server.user}"
    for store in (server.store(token="1"), server.store(token="1", renew=lambda: "2")):
        with pytest.raises(Denied, match="refused"):
            store.stat(home)


def test_other_homes_and_public_files_cannot_be_changed(server, folder):
    store = server.store()
    for path in ("/home/other/f", "/public/f", "/f", "/home"):
        with pytest.raises(Denied):
            store.write(path, [b"x"], 1)
        with pytest.raises(Denied):
            store.remove(path)
    with pytest.raises(Denied, match="cannot be removed"):
        store.remove(f"/home/{server.user}", recursive=True)
    with pytest.raises(Denied, match="read-only"):
        server.store(read_only=True).write(f"/home/{server.user}/{folder}/f", [b"x"], 1)
    assert [entry.path for entry in store.list("/home")] == [f"/home/{server.user}"]
    assert {entry.name for entry in store.list("/")} == {"home", "public"}
    with pytest.raises(Denied):
        store.stat("/home/other")


def test_invalid_descriptions_are_refused(server):
    for data in ({"endpoint": "bare-host"}, {"endpoint": ""}, {"datacenter": "a/b"}, {"user": ".."}):
        spec = server.spec()
        with pytest.raises((ConfigError, PathError)):
            open_storage(StorageSpec("lab", "pfs", "pfs", {**spec.data, **data}))
    with pytest.raises(ConfigError, match="no user"):
        open_storage(StorageSpec("lab", "pfs", "pfs", {"endpoint": server.endpoint}))
    assert server.token not in repr(server.spec())


def test_a_closed_port_is_unreachable(server):
    with pytest.raises(Unreachable, match="no answer"):
        server.store(endpoint="http://127.0.0.1:9/x").stat("/home/ann")


# The server of 2018


@pytest.fixture
def original(tmp_path):
    (tmp_path / "original").mkdir()
    with OriginalServer(tmp_path / "original") as original:
        yield original


def opened(original: OriginalServer, **more):
    data = {"endpoint": original.endpoint, "datacenter": "dc1", "user": "ann", "token": original.token}
    store = open_storage(StorageSpec("dc1", "pfs", "pfs", {**data, **more.pop("data", {})}, **more))
    assert isinstance(store, PfsStore)
    store.use_chunks(CHUNK)
    return store


def test_the_original_server_gets_only_changed_chunks(original, tmp_path):
    store = opened(original)
    target = Location(store, "/home/ann/f", "f")
    content = noise(tmp_path / "f")
    assert copy(plan_copy([here(tmp_path / "f")], target)).files == 1
    assert (original.folder / "f").read_bytes() == content and len(original.sent) == 4
    assert original.sent[-1][1] == 3 * CHUNK  # the size of the file is right only at the end
    for changed, offsets in (
        (change(tmp_path / "f", 3), [0]),
        (content[:3] + b"-" + content[4:] + bytes(CHUNK), [0, 3 * CHUNK, 4 * CHUNK]),
        (content[:CHUNK], [0]),
        (b"", []),
    ):
        original.sent.clear()
        (tmp_path / "f").write_bytes(changed)
        os.utime(tmp_path / "f", (1, 1))  # which the file at the server, written just now, never has
        assert copy(plan_copy([here(tmp_path / "f")], target)).files == 1
        assert (original.folder / "f").read_bytes() == changed
        sent = [offset for _, offset, _ in original.sent]
        assert sorted(sent) == offsets and sent[-1:] == offsets[-1:]


def test_the_original_server_is_read_and_verified(original, tmp_path):
    store, content = opened(original), noise(original.folder / "f")
    source = Location(store, "/home/ann/f", "f")
    assert copy(plan_copy([source], here(tmp_path / "f"))).files == 1
    assert (tmp_path / "f").read_bytes() == content
    assert copy(plan_copy([source], here(tmp_path / "f"))).skipped == 1
    change(original.folder / "f", CHUNK)
    original.calls.clear()
    assert copy(plan_copy([source], here(tmp_path / "f"))).files == 1
    assert original.calls.count("GET chunk") == 1
    assert (tmp_path / "f").read_bytes() == (original.folder / "f").read_bytes()
    assert [b"".join(store.read("/home/ann/f", offset, 5)) for offset in (0, SIZE - 2, SIZE)] == [
        content[:5],
        content[-2:],
        b"",
    ]


def test_the_original_server_never_treats_a_name_as_a_pattern(original):
    store = opened(original)
    for name in ("a*", "ab", "[a]", "a?", "back\\slash", "new\nline", "a+b&c=d"):
        store.write(f"/home/ann/{name}", [name.encode()], len(name))
    store.remove("/home/ann/a*")
    assert sorted(entry.name for entry in store.list("/home/ann")) == [
        "[a]", "a+b&c=d", "a?", "ab", "back\\slash", "new\nline",
    ]  # fmt: skip
    store.make_folder("/home/ann/d[1]/e")
    store.remove("/home/ann/d[1]", recursive=True)
    assert store.stat("/home/ann/d[1]") is None


def test_the_original_server_tells_of_an_unknown_token_in_a_successful_answer(original):
    original.token = "changed"
    with pytest.raises(Denied):
        opened(original, data={"token": "old"}).stat("/home/ann/f")
    store = opened(original, data={"token": "old"}, renew=lambda: "changed")
    assert store.stat("/home/ann/f") is None


def test_files_of_this_machine_need_no_proxy(server, folder, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert list(server.store().list(f"/home/{server.user}/{folder}")) == []
