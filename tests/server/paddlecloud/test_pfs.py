"""The file service: its calls and their answers, and what a path may not reach."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from openpai_tasks.server.paddlecloud.pfs import tree
from tests.processes import open_files

BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
MISSING = "no such file or directory"
KIB = 1024


@pytest.fixture
def area(user1, tmp_path_factory):
    """A folder for one test in the home of user1: on this machine, and in PFS."""
    name = tmp_path_factory.mktemp("area").name
    (user1.home / name).mkdir(parents=True)
    return Area(user1, user1.home / name, f"/pfs/local/home/user1/{name}")


class Area:
    def __init__(self, user: Any, here: Path, path: str) -> None:
        self.user, self.here, self.path = user, here, path

    def ask(self, route: str, /, **query: Any) -> Any:
        """Return ``results`` of a call that succeeds."""
        return right(got(self.user, route, **query))

    def ls(self, *paths: str, r: bool = False) -> Any:
        where = [f"{self.path}/{path}".rstrip("/") for path in paths]
        found = self.ask("files", method="ls", r=str(r).lower(), arg=where)
        return None if found is None else [row["Path"].removeprefix(f"{self.path}/") for row in found]

    def change(self, **body: Any) -> Any:
        answer = self.user.call(
            "DELETE" if body["method"] == "rm" else "POST", "/api/v1/pfs/files", json=body
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def touch(self, name: str, size: int, **more: Any) -> Any:
        return self.change(method="touch", filesize=size, path=f"{self.path}/{name}", **more)

    def send(self, name: str, offset: int, data: bytes, **more: Any) -> Any:
        body = framed(f"{self.path}/{name}", offset, data, **more)
        return self.user.call("POST", "/api/v1/pfs/storage/chunks", data=body, headers=FORM).json()

    def meta(self, name: str, chunksize: int = 4 * KIB, **query: Any) -> Any:
        where = {"path": f"{self.path}/{name}", "chunksize": chunksize, **query}
        return self.ask("chunks", method="GetChunkMeta", **where)


def got(user: Any, route: str, /, **query: Any) -> Any:
    answer = user.call("GET", f"/api/v1/pfs/{route}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def right(answer: Any) -> Any:
    assert answer["err"] == ""
    return answer["results"]


def framed(path: str, offset: int, data: bytes, size: int | None = None, **more: Any) -> bytes:
    name = urlencode(
        {"chunksize": len(data) if size is None else size, "offset": offset, "path": path, **more}
    )
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{name}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def test_list_and_stat_describe_files_as_the_original_client_reads_them(area):
    (area.here / "d/e").mkdir(parents=True)
    (area.here / "d/x").write_bytes(b"123")
    os.utime(area.here / "d/x", ns=(1, 1_500_000_000_123_456_789))
    row = {"Path": f"{area.path}/d/x", "ModTime": 1_500_000_000_123_456_789, "Size": 3, "IsDir": False}
    assert area.ask("files", method="stat", path=f"{area.path}/d/x") == row
    assert area.ls("d") == ["d/e", "d/x"] and area.ls("d/x") == ["d/x"] and area.ls("d/e") is None
    assert area.ls("", r=True) == ["d", "d/e", "d/x"]
    assert area.ls("d/e", "d/x") == ["d/x"]
    answer = got(area.user, "files", method="stat", path=f"{area.path}/none")
    assert MISSING in answer["err"] and answer["results"] is None
    assert MISSING in got(area.user, "files/", method="ls", r="true", arg=f"{area.path}/n*")["err"]


def test_a_list_needs_its_arguments(area):
    for query in ({"arg": area.path}, {"r": "true"}, {"r": "yes", "arg": area.path}):
        assert got(area.user, "files", method="ls", **query)["err"] == "invalid arguments"
    for route in ("files?method=md5sum", "chunks?method=Other"):
        assert area.user.call("GET", f"/api/v1/pfs/{route}").status_code == 405


def test_folders_are_created_with_parents_and_removed_only_recursively(area):
    paths = [f"{area.path}/{'long name ' * 20}{number}/b" for number in range(50)]  # more than 2048 bytes
    assert right(area.change(method="mkdir", path=paths)) == [{"path": path} for path in paths]
    found = list(area.here.glob("*/b"))
    assert len(found) == 50 and {path.parent.stat().st_mode & 0o777 for path in found} == {0o700}
    assert "can't del directory" in area.change(method="rm", r=False, path=[f"{area.path}/long*"])["err"]
    assert len(right(area.change(method="rm", r=True, path=[f"{area.path}/long*"]))) == 50
    assert list(area.here.iterdir()) == []
    assert right(area.change(method="rm", r=True, path=[f"{area.path}/none"])) is None
    (area.here / "f").touch()
    assert "a file is there" in area.change(method="mkdir", path=[f"{area.path}/f/g"])["err"]
    assert "home folder" in area.change(method="rm", r=True, path=["/pfs/local/home/user1"])["err"]


def test_touch_creates_parents_and_keeps_the_content_that_fits(area):
    assert right(area.touch("a/b/f", 5)) == {"path": f"{area.path}/a/b/f"}
    file = area.here / "a/b/f"
    assert file.read_bytes() == bytes(5)
    file.write_bytes(b"12345")
    area.touch("a/b/f", 7)
    assert file.read_bytes() == b"12345\0\0"
    area.touch("a/b/f", 3, modtime=1_500_000_000_123_456_789)
    assert file.read_bytes() == b"123" and file.stat().st_mtime_ns == 1_500_000_000_123_456_789
    for size in (-1, (1 << 40) + 1):
        assert area.touch("f", size)["err"] == f"bad file size:{size}"


@pytest.mark.parametrize(
    "body",
    [
        {"method": "touch", "path": ["x"], "filesize": 1},
        {"method": "touch", "path": "x", "filesize": "1"},
        {"method": "touch", "path": "x", "filesize": True},
        {"method": "touch", "path": "x", "filesize": 1, "modtime": "now"},
        {"method": "mkdir", "path": "x"},
        {"method": "mkdir", "path": [1]},
        {"method": "rm", "path": ["x"], "r": "yes"},
        {"method": "rm"},
    ],
    ids=str,
)
def test_bodies_of_wrong_types_are_refused_instead_of_ignored(area, body):
    assert area.change(**body)["err"] == "parse json error"


def test_patterns_match_as_on_the_original_server_and_existing_names_are_literal(area):
    for name in ("a1", "a2", "b1", "a*", "[x]", "x", "back\\slash"):
        (area.here / name).touch()
    assert area.ls("a?") == ["a*", "a1", "a2"] and area.ls("[ab]1") == ["a1", "b1"]
    assert area.ls("[^a]1") == ["b1"] and area.ls("a*") == ["a*"] and area.ls("a\\*") == ["a*"]
    assert (
        area.ls("[x]") == ["[x]"]
        and area.ls("\\[x]") == ["[x]"]
        and area.ls("back\\slash") == ["back\\slash"]
    )
    assert area.ls("?[0-9]") == ["a1", "a2", "b1"]
    area.change(method="rm", r=False, path=[f"{area.path}/a\\*"])
    assert area.ls("a*") == ["a1", "a2"]
    for wrong in ("[", "[]", "[a-", "[z-a]", "a\\"):
        with pytest.raises(ValueError):
            tree.compile_name(wrong)
        assert got(area.user, "files", method="ls", r="false", arg=f"{area.path}/{wrong}")["err"]


def test_paths_outside_the_home_are_refused(area, user1, user2):
    secret = user2.home / "secret"
    user2.home.mkdir(exist_ok=True)
    secret.write_bytes(b"s")
    paths = (
        "/pfs/local/home/user2/secret",
        "/pfs/local/home/user1/../user2/secret",
        "/pfs/local/user2/secret",
    )
    for path in (
        *paths,
        "/etc/passwd",
        "/pfs",
        "/pfs/",
        "/pfs/local",
        "/pfs/local/home",
        "",
        "home",
        "/pfs/../etc/passwd",
    ):
        ranges = {"path": path, "offset": 0, "chunksize": 4 * KIB}
        for route, query in (
            ("files", {"method": "stat", "path": path}),
            ("files", {"method": "ls", "r": "true", "arg": path}),
            ("chunks", {"method": "GetChunkMeta", **ranges}),
            ("storage/chunks", ranges),
        ):
            assert got(user1, route, **query)["err"], (route, path)
        for body in (
            {"method": "touch", "filesize": 0, "path": path},
            {"method": "mkdir", "path": [path]},
            {"method": "rm", "r": True, "path": [path]},
        ):
            assert area.change(**body)["err"], body
        sent = user1.call(
            "POST", "/api/v1/pfs/storage/chunks", data=framed(path, 0, b"x"), headers=FORM
        ).json()
        assert sent["err"]
    assert secret.read_bytes() == b"s"
    for route in ("files", "chunks", "storage/chunks"):
        answer = user1.call("GET", f"/api/v1/pfs/{route}", headers={"Authorization": "Token wrong"})
        assert answer.status_code == 401 and answer.json()["detail"]


def test_links_are_followed_inside_the_home_and_never_outside(area, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/f").write_bytes(b"outside")
    (area.here / "in").mkdir()
    (area.here / "in/f").write_bytes(b"inside")
    for name, leads in {"good": "in", "bad": str(tmp_path / "out"), "file": str(tmp_path / "out/f")}.items():
        (area.here / name).symlink_to(leads)
    assert area.ls("") == ["good", "in"] and area.ls("good") == ["good/f"]
    assert area.meta("good/f", offset=0)["checksum"] == md5(b"inside")
    for name in ("bad/f", "file"):
        assert got(area.user, "files", method="stat", path=f"{area.path}/{name}")["err"]
        assert area.send(name, 0, b"x")["err"] and area.touch(name, 0)["err"]
    area.change(method="rm", r=True, path=[f"{area.path}/bad"])
    area.change(method="rm", r=False, path=[f"{area.path}/file"])
    assert not (area.here / "bad").is_symlink() and not (area.here / "file").is_symlink()
    area.change(method="rm", r=True, path=[f"{area.path}/good"])
    assert area.ls("") == ["in"] and area.ls("in") == ["in/f"]
    assert (tmp_path / "out/f").read_bytes() == b"outside"


def test_a_recursive_removal_does_not_follow_links(area, tmp_path):
    (tmp_path / "f").touch()
    (area.here / "d/e").mkdir(parents=True)
    (area.here / "d/e/out").symlink_to(tmp_path)
    right(area.change(method="rm", r=True, path=[f"{area.path}/d"]))
    assert area.ls("") is None and (tmp_path / "f").exists()


def test_pipes_are_listed_but_neither_read_nor_written(area):
    os.mkfifo(area.here / "pipe")
    assert area.ls("") == ["pipe"]
    where = {"path": f"{area.path}/pipe", "offset": 0, "chunksize": 4 * KIB}
    assert got(area.user, "storage/chunks", **where)["err"]
    assert area.send("pipe", 0, b"x")["err"] and area.touch("pipe", 5)["err"]


def test_public_files_can_be_read_but_not_changed(area, server):
    public = server.folder / "storage" / "public"
    got(area.user, "files", method="ls", r="false", arg="/pfs/local/public")
    public.mkdir(exist_ok=True)
    (public / "set").write_bytes(b"data")
    path = "/pfs/local/public/set"
    assert area.ask("files", method="stat", path=path)["Size"] == 4
    where = {"path": path, "offset": 0, "chunksize": 4 * KIB}
    assert area.ask("chunks", method="GetChunkMeta", **where)["checksum"] == md5(b"data")
    assert b"data" in area.user.call("GET", "/api/v1/pfs/storage/chunks", params=where).content
    for body in (
        {"method": "touch", "filesize": 0, "path": path},
        {"method": "rm", "r": True, "path": [path]},
    ):
        assert "public data" in area.change(**body)["err"]
    assert "public data" in area.change(method="mkdir", path=["/pfs/local/public/d"])["err"]
    assert (public / "set").read_bytes() == b"data"


def test_chunk_sums_come_one_by_one_or_all_at_once(area):
    data = os.urandom(10 * KIB)
    (area.here / "f").write_bytes(data)
    parts = [(at, data[at : at + 4 * KIB]) for at in range(0, 10 * KIB, 4 * KIB)]
    sums = [{"offset": at, "checksum": md5(part), "len": len(part)} for at, part in parts]
    assert [area.meta("f", offset=at) for at, _ in parts] == sums
    assert area.meta("f") == sums
    assert area.meta("f", offset=10 * KIB) == {"offset": 10 * KIB, "checksum": md5(b""), "len": 0}
    for size in (KIB, (32 << 20) + 1, "x", -1):
        query = {"method": "GetChunkMeta", "path": f"{area.path}/f", "offset": 0, "chunksize": size}
        assert got(area.user, "chunks", **query)["err"] in ("chunksize error", "parse json error")
    (area.here / "large").touch()
    os.truncate(area.here / "large", (4 << 30) + 1)
    query = {"method": "GetChunkMeta", "path": f"{area.path}/large", "chunksize": 4 * KIB}
    assert "bad file size" in got(area.user, "chunks", **query)["err"]


def test_a_chunk_travels_in_a_form_with_the_fixed_boundary(area):
    data = f"\r\n--{BOUNDARY}--\r\n".encode() + b"{} \0\xff"  # content may look like the frame
    area.touch("f", 0)
    assert right(area.send("f", 3, data)) == {"offset": 3, "checksum": md5(data), "len": len(data)}
    assert (area.here / "f").read_bytes() == bytes(3) + data
    where = {"path": f"{area.path}/f", "offset": 3, "chunksize": 1000}
    answer = area.user.call("GET", "/api/v1/pfs/storage/chunks", params=where)
    head, _, rest = answer.content.partition(b"\r\n\r\n")
    assert answer.headers["content-type"] == FORM["Content-Type"]
    assert answer.headers["x-pfs-md5"] == md5(data)
    name = head.split(b'filename="')[1].split(b'"')[0].decode()
    assert parse_qs(name) == {"chunksize": [str(len(data))], "offset": ["3"], "path": [f"{area.path}/f"]}
    assert rest.startswith(data + f"\r\n--{BOUNDARY}--\r\n".encode())
    assert json.loads(rest[len(data) :].splitlines()[-1])["err"] == "this file reaches end"
    where["chunksize"] = 5
    assert area.user.call("GET", "/api/v1/pfs/storage/chunks", params=where).content.endswith(
        b'{"err": "", "results": null}\n'
    )


def test_a_chunk_can_create_its_file_and_set_its_time(area):
    assert MISSING in area.send("a/f", 0, b"x")["err"]
    right(area.send("a/f", 0, b"x", create="true", modtime=1_500_000_000_000_000_000))
    assert (area.here / "a/f").read_bytes() == b"x"
    assert (area.here / "a/f").stat().st_mtime_ns == 1_500_000_000_000_000_000


def test_a_file_is_replaced_as_a_whole(area):
    (area.here / "f").write_bytes(b"old content")
    (area.here / "f").chmod(0o740)
    into = {"create": "true", "filesize": 3, "into": f"{area.path}/f", "modtime": 1_500_000_000_000_000_000}
    assert area.send("part", 0, b"new", md5=md5(b"other"), **into)["err"] == "checksum error"
    assert area.ls("") == ["f"] and (area.here / "f").read_bytes() == b"old content"
    assert right(area.send("part", 0, b"new", md5=md5(b"new"), **into))["len"] == 3
    facts = (area.here / "f").stat()
    assert (area.here / "f").read_bytes() == b"new" and area.ls("") == ["f"]
    assert (facts.st_mode & 0o777, facts.st_mtime_ns) == (0o740, 1_500_000_000_000_000_000)
    for path in ("/pfs/local/home/user2/f", "/pfs/local/public/f", f"{area.path}"):
        assert area.send("part", 0, b"new", **{**into, "into": path})["err"]
    assert (area.here / "f").read_bytes() == b"new"


def test_files_are_copied_and_renamed_inside_the_home(area, tmp_path):
    (area.here / "f").write_bytes(b"content")
    (area.here / "out").symlink_to(tmp_path)
    both = [f"{area.path}/f", f"{area.path}/d/g"]
    assert right(area.change(method="cp", path=both)) == {"path": both[1]}
    right(area.change(method="mv", path=both, modtime=1_500_000_000_000_000_000))
    assert area.ls("", r=True) == ["d", "d/g"]
    assert (area.here / "d/g").stat().st_mtime_ns == 1_500_000_000_000_000_000
    assert MISSING in area.change(method="mv", path=both)["err"]
    (area.here / "f").write_bytes(b"content")
    for method in ("cp", "mv"):
        for target in (
            "/pfs/local/home/user2/f",
            "/pfs/local/public/f",
            f"{area.path}/out/f",
            f"{area.path}/d",
        ):
            assert area.change(method=method, path=[f"{area.path}/f", target])["err"], (method, target)
            assert area.change(method=method, path=[f"{area.path}/d", f"{area.path}/e"])["err"]
        assert area.change(method=method, path=[f"{area.path}/f"])["err"] == "not enough arguments"
        assert area.change(method=method, path=both * 2)["err"] == "invalid arguments"
    assert list(tmp_path.iterdir()) == [] and (area.here / "f").read_bytes() == b"content"


def test_a_chunk_that_is_not_whole_changes_nothing(area):
    (area.here / "f").write_bytes(b"12345")
    path = f"{area.path}/f"
    for body in (
        framed(path, 0, b"abc", size=4),
        framed(path, 0, b"abc", size=2),
        framed(path, 0, b"abc")[:-60],
        framed(path, -1, b"abc"),
        framed("", 0, b"abc"),
        b"",
        b"--",
        framed(path, 0, b"abc").replace(b'name="chunk"', b'name="other"'),
    ):
        answer = area.user.call("POST", "/api/v1/pfs/storage/chunks", data=body, headers=FORM)
        assert answer.status_code == 200 and answer.json()["err"], body
    plain = area.user.call("POST", "/api/v1/pfs/storage/chunks", json={"path": path})
    assert plain.status_code == 400
    large = framed(path, 0, bytes((32 << 20) + (64 << 10)))
    assert area.user.call("POST", "/api/v1/pfs/storage/chunks", data=large, headers=FORM).status_code == 413
    assert (area.here / "f").read_bytes() == b"12345"


def test_names_that_are_not_utf_8_do_not_break_a_list(area):
    (Path(os.fsdecode(os.fsencode(area.here) + b"/bad\xff"))).touch()
    assert area.ls("") == ["bad\ufffd"]


def test_a_failed_move_leaves_no_folder_open(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(FileExistsError):
        tree.Tree(tmp_path).move(("a",), ("b", "c"))
    assert not [place for _, place in open_files(Path("/proc/self")) if place.startswith(str(tmp_path))]
