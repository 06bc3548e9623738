"""Files of PaddleCloud: whole files by one call each, inside the home of their user."""

from __future__ import annotations

import os
import stat

import pytest

HOME = "/pfs/local/home/user1"


def put(user, path, content, name="file"):
    return user.call("POST", "/api/v1/file/", params={"path": path}, files={name: ("x", content)}).json()


def get(user, path):
    return user.call("GET", "/api/v1/file/", params={"path": path})


def test_uploaded_file_is_the_file_of_the_storage_and_can_be_downloaded(user1):
    content = os.urandom(3 << 20)
    assert put(user1, f"{HOME}/deep/er/data.bin", content)["msg"] == ""
    path = user1.home / "deep" / "er" / "data.bin"
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    answer = get(user1, f"{HOME}/deep/er/data.bin")
    assert answer.content == content and "data.bin" in answer.headers["content-disposition"]


def test_upload_replaces_a_file_and_leaves_no_other(user1):
    for content in (b"first, which is longer", b"second", b""):
        put(user1, f"{HOME}/replaced/one", content)
        assert get(user1, f"{HOME}/replaced/one").content == content
    assert os.listdir(user1.home / "replaced") == ["one"]


def test_any_name_of_a_datacenter_leads_to_the_same_home(user1):
    put(user1, "/pfs/datacenter1/home/user1/aliased", b"x")
    assert get(user1, f"{HOME}/aliased").content == b"x"


def test_names_in_a_folder_are_listed(user1):
    for name in ("b", "a ü", "sub/c"):
        put(user1, f"{HOME}/listed/{name}", b"x")
    (user1.home / "listed" / ".pai-part-0000000012345678").touch()
    answer = user1.get("/api/v1/filelist/", path=f"{HOME}/listed", dc="local")
    assert answer["msg"] == "" and answer["items"] == ["a ü", "b", "sub"]


@pytest.mark.parametrize(
    "path, words",
    [
        ("/etc/passwd", "should be pfs path"),
        ("", "should be pfs path"),
        ("/pfs", "should be pfs path"),
        ("/pfs/", "format"),
        ("/pfs/local", "format"),
        ("/pfs/local/home", "unauthorized"),
        ("/pfs/local/home/user2/x", "unauthorized"),
        ("/pfs/local/home/user1/../user2/x", "unauthorized"),
        ("/pfs/local/home/user1/../../../../etc/passwd", "should be pfs path"),
        ("/pfs/local/other/user1/x", "unauthorized"),
        ("/pfs/local/home/user1/x\0y", "should be pfs path"),
        (f"{HOME}/absent", "not exist"),
        (f"{HOME}/{'n' * 300}", "not exist"),
    ],
)
def test_path_outside_of_the_home_is_refused(user1, path, words):
    answer = get(user1, path)
    assert answer.headers["content-type"] == "application/json"
    problem = answer.json()["msg"]
    assert words in problem.lower() or "File name too long" in problem
    listed = user1.get("/api/v1/filelist/", path=path)
    assert listed["msg"] and "items" not in listed


@pytest.mark.parametrize("path", ["/pfs/local/home/user2/x", "/pfs/local/public/x", HOME, f"{HOME}/jobs/.."])
def test_upload_elsewhere_is_refused(user1, user2, path):
    assert put(user1, path, b"x")["msg"]
    assert not (user2.home / "x").exists()


def test_symbolic_links_do_not_lead_out(user1, user2, tmp_path):
    put(user2, "/pfs/local/home/user2/secret", b"of user2")
    (tmp_path / "outside").write_text("of the machine")
    links = user1.home / "links"
    links.mkdir()
    for name, target in {"other": user2.home, "machine": tmp_path, "file": tmp_path / "outside"}.items():
        (links / name).symlink_to(target)
    (links / "inside").symlink_to(user1.home / "links")
    for path in ("other/secret", "machine/outside", "file", "inside/file"):
        assert "unauthorized" in get(user1, f"{HOME}/links/{path}").json()["msg"]
        assert "unauthorized" in put(user1, f"{HOME}/links/{path}", b"changed")["msg"]
    assert (tmp_path / "outside").read_text() == "of the machine"
    assert put(user1, f"{HOME}/links/inside/new", b"x")["msg"] == ""
    assert (links / "new").read_bytes() == b"x"


def test_pipe_is_not_opened(user1):
    user1.home.mkdir(parents=True, exist_ok=True)
    os.mkfifo(user1.home / "pipe")
    assert get(user1, f"{HOME}/pipe").json()["msg"] == "file not exist"


def test_public_data_can_be_read_by_all_and_written_by_none(server, user1, user2):
    public = server.folder / "storage" / "public"
    user1.get("/api/v1/filelist", path="/pfs/local/public")
    (public / "data").write_text("for all")
    assert get(user2, "/pfs/local/public/data").content == b"for all"
    assert "only ls or stat" in put(user1, "/pfs/local/public/data", b"x")["msg"]


def test_file_in_the_way_and_missing_field_are_explained(user1):
    put(user1, f"{HOME}/plain", b"x")
    assert "in the way" in put(user1, f"{HOME}/plain/below", b"x")["msg"]
    assert "named 'file'" in put(user1, f"{HOME}/plain", b"x", name="other")["msg"]
    assert "not a folder" in user1.get("/api/v1/filelist", path=f"{HOME}/plain")["msg"]
