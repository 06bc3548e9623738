"""Files of a container, by SFTP through a real sshd: what the store contract does not cover."""

from __future__ import annotations

import os

import pytest

from openpai_tasks.errors import NotFound, PathError, Unreachable
from openpai_tasks.sdk.containers.files import locate_in_container
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.storage.copying import resume
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.sftp.store import SESSIONS, SftpStore
from tests.sdk import sshd_server


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    with sshd_server.running(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def store(sshd, tmp_path):
    store = SftpStore("ann~train-main-0", Remote(sshd.target(tmp_path)).open)
    yield store
    store.close()


def here(path):
    return Location(LocalStore(), str(path), str(path))


def there(store, path):
    return Location(store, str(path), f"main-0:{path}")


def tree(folder, count=40):
    folder.mkdir()
    for number in range(count):
        (folder / f"f{number}").write_bytes(os.urandom(1000 + number))
    (folder / "big").write_bytes(os.urandom(5 << 20))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_many_files_are_copied_at_once_within_the_session_limit(store, tmp_path):
    """This sshd has the usual limit of ten sessions."""
    wanted = tree(tmp_path / "tree")
    rules = Rules(workers=SESSIONS)
    up = copy(plan_copy([here(tmp_path / "tree")], there(store, tmp_path / "up")), rules)
    down = copy(plan_copy([there(store, tmp_path / "up")], here(tmp_path / "down")), rules)
    assert (up.failed, down.failed) == ((), ())
    assert {path.name: path.read_bytes() for path in (tmp_path / "down").iterdir()} == wanted
    again = copy(plan_sync(there(store, tmp_path / "up"), here(tmp_path / "down")), rules)
    assert (again.files, again.skipped) == (0, len(wanted))


@pytest.mark.parametrize("way", ["up", "down"])
def test_interrupted_large_file_resumes_where_it_stopped(store, sshd, tmp_path, monkeypatch, way):
    monkeypatch.setattr(resume, "LARGE", 1 << 20)
    data = os.urandom(12 << 20)
    (tmp_path / "source").write_bytes(data)
    source, target = here(tmp_path / "source"), there(store, tmp_path / "target")
    if way == "down":
        source, target = there(store, tmp_path / "source"), here(tmp_path / "target")

    class Breaks(Watch):
        seen = 0

        def moved(self, count):
            self.seen += count
            if self.seen > (6 << 20):
                self.stop()

    with pytest.raises(Exception, match="interrupted"):
        copy(plan_copy([source], target), Rules(workers=1), Breaks())
    sent = []
    watch = Watch()
    watch.moved = sent.append
    done = copy(plan_copy([source], target), Rules(workers=1), watch)
    assert (done.files, done.failed) == (1, ())
    assert (tmp_path / "target").read_bytes() == data
    assert max(sent) > (1 << 20)  # the beginning was reported at once, because it was there


def test_copy_survives_a_lost_connection(sshd, tmp_path):
    wanted = tree(tmp_path / "tree", 150)
    store = SftpStore("ann~train-main-0", lambda: Remote(sshd.target(tmp_path)).open())
    watch, moved = Watch(), []

    def drop_in_the_middle(count):
        moved.append(count)
        if len(moved) == 40:
            sshd.drop()

    watch.moved = drop_in_the_middle
    done = copy(plan_copy([here(tmp_path / "tree")], there(store, tmp_path / "up")), Rules(workers=4), watch)
    assert len(moved) >= 40
    assert done.failed == ()
    assert {path.name: path.read_bytes() for path in (tmp_path / "up").iterdir()} == wanted


def test_without_sha256sum_a_copy_is_checked_by_length_only(store, tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"1")
    assert store.digest(str(tmp_path / "f")).value.startswith("6b86b273")
    store._sessions.ask_shell(lambda sums: setattr(sums, "has_sha256sum", False))
    assert store.digest(str(tmp_path / "f")) is None and store.hasher() is None
    assert copy(plan_copy([here(tmp_path / "f")], there(store, tmp_path / "g"))).failed == ()


def test_missing_paths_and_non_files_have_specific_errors(store, tmp_path):
    with pytest.raises(NotFound):
        list(store.list(str(tmp_path / "none")))
    with pytest.raises(PathError, match="not a file"):
        list(store.read(str(tmp_path)))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PathError, match="not a file"):
        list(store.read(str(tmp_path / "pipe")))


def test_a_dead_server_is_unreachable(sshd, tmp_path):
    store = SftpStore("ann~train-main-0", Remote(sshd.target(tmp_path, timeout=20.0)).open)
    assert store.stat(str(tmp_path)).is_folder
    sshd.drop()
    sshd.stop()
    with pytest.raises(Unreachable):
        for _ in range(2):  # the connection is lost, and then there is no other
            store.stat(str(tmp_path))


@pytest.mark.parametrize("text", ["../x", "/etc/../x", "a/..", "", "a\0b"])
def test_path_that_is_invalid_or_leads_up_is_refused(store, text):
    with pytest.raises(PathError):
        locate_in_container(store, "main-0", "/root", text)


def test_relative_path_starts_at_the_login_folder(store):
    assert locate_in_container(store, "main-0", "/root", "a/./b/").path == "/root/a/b"
    assert locate_in_container(store, "main-0", "/root", "/a").path == "/a"
    assert locate_in_container(store, "main-0", "/root", "./").is_folder
