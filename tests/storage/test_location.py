"""The locations that a user types."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from openpai_tasks.errors import ConfigError, Denied, NotFound, PaiError, PathError
from openpai_tasks.files import removal
from openpai_tasks.sdk.containers.files import locate_in_container
from openpai_tasks.storage import patterns
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.local import store as local
from openpai_tasks.storage.local.mounted import mount_map
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, locate, open_storage
from openpai_tasks.storage.store import StorageSpec
from tests.storage.trees import at, plant


class OneCluster:
    """A cluster `lab` with a storage `home`."""

    def __init__(self, root, user="ann"):
        self.given = StorageSpec("lab", "home", "local", {"path": str(root)}, user, is_own=True)

    def storages(self, cluster):
        return ("home", "data")

    def opened(self, cluster, storage):
        return self.given, open_storage(self.given)

    def cluster_url(self, path):
        return f"pai://lab/home/{path.removeprefix('/lab/')}" if path.startswith("/lab/") else ""


@pytest.fixture
def book(tmp_path):
    return OneCluster(tmp_path)


@pytest.mark.parametrize(
    "text, path, is_folder, is_content",
    [
        ("pai://lab/home", "/", True, False),
        ("pai://lab/home/", "/", True, False),
        ("pai://lab/home/a", "/a", False, False),
        ("pai://lab/home/a/", "/a", True, False),
        ("pai://lab/home/a/.", "/a", False, True),
        ("pai://lab/home//a///b", "/a/b", False, False),
        ("pai://lab/home/./a", "/a", False, False),
        ("pai://lab/home/100%25 #1?x=y", "/100%25 #1?x=y", False, False),
        ("pai://lab/home/${PAI_USER_NAME}/x", "/ann/x", False, False),
    ],
)
def test_url_is_resolved_to_a_path_on_a_storage(book, text, path, is_folder, is_content):
    place = locate(text, book)
    assert (place.path, place.is_folder, place.is_content) == (path, is_folder, is_content)
    assert place.url == f"pai://lab/home{path}"


def test_absolute_paths_may_belong_to_a_cluster(book):
    place = locate("/lab/a b/", book)
    assert (place.url, place.is_folder) == ("pai://lab/home/a b", True)
    assert isinstance(locate("/lab", book).store, LocalStore)


def test_copies_are_put_into_roots_and_home_folders(tmp_path, monkeypatch):
    book = OneCluster(tmp_path)
    book.given = replace(book.given, home="/home/ann")
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "me")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    inside = [
        "me",
        f"{tmp_path}/real",
        ".",
        "..",
        "me/.",
        "new/",
        "/",
        "pai://lab/home",
        "pai://lab/home/home/ann",
    ]
    beside = ["me/x", "new", str(tmp_path), "pai://lab/home/x", "pai://lab/home/home"]
    assert [text for text in (*inside, *beside) if locate(text, book).holds_copies] == inside
    places = [
        locate_in_container(LocalStore(), "main-0", "/root", text) for text in ("/root", "./", ".", "x")
    ]
    assert [place.holds_copies for place in places] == [True, True, True, False]


def test_url_of_a_cluster_without_a_storage_lists_its_storages(book):
    for text in ("pai://lab", "pai://lab/"):
        place = locate(text, book)
        assert [entry.name for entry in place.store.list(place.path)] == ["home", "data"]
    with pytest.raises(PathError, match=r"holds storages, not files; name one \(known: home, data\)"):
        place.store.make_folder("/new")


@pytest.mark.parametrize(
    "text, error",
    [
        ("", PathError),
        ("a\0b", PathError),
        ("pai://", PathError),
        ("pai:///home/x", PathError),
        ("pai://lab//x", PathError),
        ("pai://lab/home/../x", PathError),
        ("pai://lab/home/a/..", PathError),
        ("ftp://host/x", ConfigError),
    ],
)
def test_invalid_location_is_refused(book, text, error):
    with pytest.raises(error):
        locate(text, book)


def test_an_empty_user_name_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is empty"):
        locate("pai://lab/home/${PAI_USER_NAME}/x", OneCluster(tmp_path, user=""))


def test_local_paths_are_resolved(book, tmp_path, monkeypatch):
    folder = tmp_path.resolve()
    (folder / "real" / "inner").mkdir(parents=True)
    os.symlink("real/inner", folder / "link")
    monkeypatch.chdir(folder / "real")
    there = {
        "x": "real/x",
        "./x/": "real/x",
        "../y": "y",
        "../link/../z": "real/z",
        "../link": "link",
        "..": "",
    }
    for text, path in there.items():
        assert locate(text, book).path == str(folder / path)
    assert locate(".", book).is_content and locate("..", book).is_content and locate("x/", book).is_folder
    assert locate("/", book).is_root and locate("//", book).is_root and locate("~", book).name == "~"


def test_storage_of_an_unknown_type_is_an_error(book):
    with pytest.raises(ConfigError, match="type 'dshuttle', which is not supported"):
        open_storage(StorageSpec("lab", "fast", "dshuttle", {}))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_join_refuses_names_that_escape_the_folder(book, name):
    with pytest.raises(PathError):
        locate("pai://lab/home/d", book).join(name)


def test_symlink_cannot_escape_a_storage(book, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "secret").write_text("s")
    os.symlink("../secret", tmp_path / "s" / "link")
    os.symlink("..", tmp_path / "s" / "up")
    os.symlink("/", tmp_path / "s" / "root")
    store = LocalStore(str(tmp_path / "s"))
    for act in (
        lambda: list(store.read("/link")),
        lambda: list(store.list("/up")),
        lambda: list(store.read("/up/secret")),
        lambda: store.write("/up/new", [b"x"]),
        lambda: store.remove("/up/secret"),
        lambda: store.rename("/up/secret", "/x"),
        lambda: store.make_folder("/up/new"),
        lambda: store.stat("/root/etc"),
        lambda: list(store.read("/../secret")),
    ):
        with pytest.raises(PathError, match="leads out of the storage"):
            act()
    store.remove("/link")
    store.remove("/up", recursive=True)  # the symlink, not its target
    assert (tmp_path / "secret").read_text() == "s" and not (tmp_path / "new").exists()


def test_a_read_only_storage_is_not_changed(tmp_path):
    (tmp_path / "f").write_text("f")
    store = LocalStore(str(tmp_path), read_only=True)
    assert b"".join(store.read("/f")) == b"f"
    for act in (
        lambda: store.write("/g", [b""]),
        lambda: store.remove("/f"),
        lambda: store.rename("/f", "/g"),
        lambda: store.make_folder("/d"),
    ):
        with pytest.raises(Denied, match="read-only"):
            act()


def nfs(mounts, path="/exports/team", share=True):
    return StorageSpec(
        "lab", "data", "nfs", {"server": "nas", "path": path}, "ann", share, mounts=mount_map(mounts)
    )


def test_share_is_opened_where_the_mount_map_says(tmp_path):
    for name in ("own", "exports/team", "team"):
        (tmp_path / name).mkdir(parents=True)
    rows = [f"nas:/exports={tmp_path}/exports", f"nas:/exp={tmp_path}/own"]
    assert open_storage(nfs(rows)).root == str(tmp_path / "exports" / "team")
    assert open_storage(nfs([*rows, f"nas:/exports/team={tmp_path}/team"])).root == str(tmp_path / "team")
    assert open_storage(nfs([*rows, f"lab/data={tmp_path}/own"])).root == str(tmp_path / "own")
    assert open_storage(nfs([*rows], share=False)).root == str(tmp_path / "exports" / "team" / "ann")


def test_error_for_a_share_that_is_not_mounted_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"config.set storage.mounts=lab/data=FOLDER"):
        open_storage(nfs([]))
    with pytest.raises(ConfigError, match=r"is not mounted: .*is not a folder"):
        open_storage(nfs([f"lab/data={tmp_path}/none"]))
    with pytest.raises(ConfigError, match="must be WHAT=FOLDER"):
        mount_map(("lab/data",))


def test_patterns_match_like_in_a_shell(here):
    plant(
        here,
        {
            "a/1.csv": b"",
            "a/2.csv": b"",
            "b/1.csv": b"",
            "b/1.txt": b"",
            ".h/1.csv": b"",
            "x*": b"",
            "xy": b"",
        },
    )

    def found(text):
        return [match.path.removeprefix(here.path + "/") for match in patterns.sources(at(here, text))]

    assert found("*/*.csv") == ["a/1.csv", "a/2.csv", "b/1.csv"]
    assert found("[b]/1.*") == ["b/1.csv", "b/1.txt"]
    assert found("*/1.txt") == ["b/1.txt"]
    assert found("?") == ["a", "b"]
    assert found("x*") == ["x*"]  # a name that exists is not a pattern
    assert found(".*/*") == [".h/1.csv"]
    for text in ("*.none", "xy/*", "none/*"):
        with pytest.raises(NotFound):
            found(text)
    with pytest.raises(PathError, match="matches 2 names"):
        patterns.target(at(here, "?"))


def test_pattern_keeps_its_trailing_slash_or_dot(here):
    plant(here, {"exist1/x": b"", "exist.txt": b"", "lone": b""})
    for text, is_folder, is_content in (("e*/", True, False), ("e*/.", False, True)):
        (found,) = patterns.sources(at(here, text))
        assert (found.name, found.is_folder, found.is_content) == ("exist1", is_folder, is_content)
    target = patterns.target(at(here, "exist*/"))
    assert target.name == "exist1" and target.is_folder
    target = patterns.target(at(here, "lon*/"))
    assert target.name == "lone" and target.is_folder  # copying refuses it later


def test_existing_folder_with_wildcards_is_not_a_pattern(here):
    plant(here, {"a[1]/x.csv": b"", "a1/x.csv": b"", "a1/y": b""})
    (found,) = patterns.sources(at(here, "a[1]/*.csv"))
    assert found.path.endswith("/a[1]/x.csv")
    with pytest.raises(NotFound):
        patterns.sources(at(here, "a[1]/y"))


@pytest.mark.parametrize("text", ["missing/../b", "file/../b", "missing/..", "*/../b"])
def test_parent_of_a_path_that_is_not_a_folder_is_refused(book, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError, match="which is not a folder"):
        locate(text, book)
    assert locate("/../b", book).path == "/b"


def test_system_errors_are_converted_to_our_errors(tmp_path):
    store = LocalStore(str(tmp_path))
    for act in (lambda: store.write("/none/x", [b""]), lambda: store.rename("/a", "/b")):
        with pytest.raises(PaiError):
            act()
    assert isinstance(Location(store, "/", "pai://lab/home/").name, str)


def test_symlink_out_of_the_storage_is_listed_and_replaced_itself(tmp_path):
    (tmp_path / "secret").write_bytes(b"12345")
    os.utime(tmp_path / "secret", (1, 1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "s" / "in").mkdir(parents=True)
    (tmp_path / "new").write_bytes(b"new")
    for name, leads in {"pw": "../secret", "out": "../folder", "in/up": "../../secret", "f": "in"}.items():
        os.symlink(leads, tmp_path / "s" / name)
    store, here = LocalStore(str(tmp_path / "s")), LocalStore()
    found = {entry.name: entry for entry in store.list("/")}
    assert found["f"].is_folder and found["f"].is_link
    for name in ("pw", "out"):
        shown = found[name]
        assert (shown.size, shown.is_link, shown.is_folder) == (0, True, False) and shown.mtime_ms > 1000
        assert store.stat(f"/{name}") == shown
    home = Location(store, "/", "home")
    source = Location(here, str(tmp_path / "new"), "new")
    for path in ("pw", "out", "in/up"):
        assert copy(plan_copy([source], home.join(*path.split("/")))).files == 1
        assert (tmp_path / "s" / path).read_bytes() == b"new" and not (tmp_path / "s" / path).is_symlink()
    assert (tmp_path / "secret").read_bytes() == b"12345" and not os.listdir(tmp_path / "folder")


@pytest.mark.parametrize("act", ["read", "write", "append", "rename", "set_mtime", "set_mode"])
def test_folder_swapped_for_a_symlink_after_the_check_is_not_followed(tmp_path, monkeypatch, act):
    (tmp_path / "out").mkdir()
    (tmp_path / "s" / "d").mkdir(parents=True)
    for folder in ("out", "s/d"):
        (tmp_path / folder / "f").write_bytes(folder.encode())
        os.chmod(tmp_path / folder / "f", 0o644)
        os.utime(tmp_path / folder / "f", (5, 5))
    store, look = LocalStore(str(tmp_path / "s")), removal.open_folder

    def swapped(path, root):
        """Swap the folder between the check and the use, as a fast job could."""
        if not (tmp_path / "s" / "d").is_symlink():
            os.rename(tmp_path / "s" / "d", tmp_path / "s" / "old")
            os.symlink("../out", tmp_path / "s" / "d")
        return look(path, root)

    monkeypatch.setattr(local, "open_folder", swapped)
    acts = {
        "read": lambda: list(store.read("/d/f")),
        "write": lambda: store.write("/d/f", [b"x"]),
        "append": lambda: store.append("/d/f", [b"x"], 1),
        "rename": lambda: store.rename("/d/f", "/d/g"),
        "set_mtime": lambda: store.set_mtime("/d/f", 1),
        "set_mode": lambda: store.set_mode("/d/f", 0o600),
    }
    with pytest.raises(PaiError):
        acts[act]()
    there = tmp_path / "out" / "f"
    assert there.read_bytes() == b"out" and os.listdir(tmp_path / "out") == ["f"]
    assert (there.stat().st_mode & 0o777, there.stat().st_mtime) == (0o644, 5)


LOOKS = {
    "stat": lambda store: store.stat("/d/f"),
    "stat a link": lambda store: store.stat("/link"),
    "list": lambda store: list(store.list("/d")),
    "list a link": lambda store: [entry for entry in store.list("/") if entry.name == "link"],
    "list files": lambda store: list(store.list_files("/d", [])),
    "compare": lambda store: list(store.same_files(store, "/d", "/d")),
    "make a folder": lambda store: store.make_folder("/d/new/er"),
}


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("look", LOOKS)
def test_folder_swapped_after_its_path_was_resolved_is_not_looked_into(tmp_path, monkeypatch, look, calls):
    for folder, size in {"out": 54321, "s/d": 2}.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "f").write_bytes(b"x" * size)
    (tmp_path / "s" / "link").symlink_to("d/f")
    store, resolve, left = LocalStore(str(tmp_path / "s")), local.real_path, iter(range(calls, 0, -1))

    def resolve_and_lose(path):
        """Swap the folder between a check and the next use, as a fast job could."""
        found = resolve(path)
        if next(left, 0) == 1:
            os.rename(tmp_path / "s" / "d", tmp_path / "s" / "old")
            os.symlink("../out", tmp_path / "s" / "d")
        return found

    monkeypatch.setattr(local, "real_path", resolve_and_lose)
    try:
        seen = repr(LOOKS[look](store))
    except PaiError:
        seen = ""
    assert not re.search(r"\b54321\b", seen)  # a time may contain these digits
    assert os.listdir(tmp_path / "out") == ["f"]


def test_parent_of_the_root_is_neither_shown_nor_removed(tmp_path):
    (tmp_path / "top" / "s").mkdir(parents=True)
    store = LocalStore(str(tmp_path / "top" / "s"))
    for act in (store.stat, lambda path: store.remove(path, recursive=True), store.make_folder):
        with pytest.raises(PathError):
            act("/..")
    assert (tmp_path / "top" / "s").is_dir()


@pytest.mark.parametrize("act", ["write", "append"])
def test_pipe_in_a_storage_is_not_written_to(tmp_path, act):
    os.mkfifo(tmp_path / "p")
    store = LocalStore(str(tmp_path))
    for readers in (0, 1):  # without a reader, opening the pipe would block
        held = [os.open(tmp_path / "p", os.O_RDONLY | os.O_NONBLOCK) for _ in range(readers)]
        with pytest.raises(PathError):
            store.write("/p", [b"x"]) if act == "write" else store.append("/p", [b"x"], 1)
        for reader in held:
            assert os.read(reader, 1) == b""
            os.close(reader)
