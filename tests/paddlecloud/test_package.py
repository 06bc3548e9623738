"""A package is a folder: all of it is uploaded, and nothing from elsewhere."""

import os
import shutil
import socket

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.paddlecloud.package import collect_package, prepare
from openpai_tasks.paddlecloud.request import InvalidArgument, PaddleRequest
from openpai_tasks.sdk.files import operations
from openpai_tasks.storage.copying.copy import WORKERS
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "job_word_emb"
    (folder / "modules").mkdir(parents=True)
    (folder / "train.py").write_text("pass")
    (folder / "modules" / "net.py").write_text("x = 1")
    return folder


def test_a_package_is_all_files_below_the_folder(package):
    (package / "empty").mkdir()
    (package / ".hidden").write_text("")
    found = collect_package(str(package))
    assert found.files == ((".hidden", 0), ("modules/net.py", 5), ("train.py", 4))
    assert found.size == 9


def test_a_package_may_be_named_from_below_or_by_a_link(package, monkeypatch):
    monkeypatch.chdir(package / "modules")
    (package.parent / "link").symlink_to(package)
    assert collect_package("..") == collect_package("../../link") == collect_package(f"{package}/")


@pytest.mark.parametrize("path", ["", "missing", "train.py", "a\0b"])
def test_what_is_not_a_folder_is_refused(package, monkeypatch, path):
    monkeypatch.chdir(package)
    with pytest.raises(InvalidArgument, match="package"):
        collect_package(path)


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="is empty"):
        collect_package(str(tmp_path / "a"))


def test_links_inside_the_package_are_followed(package):
    (package / "again").symlink_to("modules")
    (package / "start.py").symlink_to("train.py")
    names = [name for name, _ in collect_package(str(package)).files]
    assert names == ["again/net.py", "modules/net.py", "start.py", "train.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../elsewhere", "/"])
def test_links_out_of_the_package_are_refused(package, target):
    (package.parent / "elsewhere").write_text("secret")
    (package / "modules" / "out").symlink_to(os.path.join(package, target))
    with pytest.raises(PathError, match="modules/out: a symlink out of the package"):
        collect_package(str(package))


@pytest.mark.parametrize("name", ["modules", "train.py"])
def test_what_becomes_a_link_out_of_the_package_before_its_upload_is_not_sent(package, name):
    elsewhere = package.parent / "elsewhere"
    elsewhere.mkdir()
    for secret in ("net.py", "train.py"):
        (elsewhere / secret).write_text("secret")
    found = collect_package(str(package))
    shutil.rmtree(package / "modules")
    (package / "train.py").unlink()
    (package / name).symlink_to(elsewhere if name == "modules" else elsewhere / name)
    target = package.parent / "target"
    target.mkdir()
    there = Location(LocalStore(), str(target), str(target))
    [failure] = operations.sync(found.location, there, operations.copy_rules(WORKERS), None).failed
    assert failure.path == f"/{name}" and failure.reason.startswith(f"/{name} leads out of the storage")
    assert list(target.iterdir()) == []


def test_a_neighbour_with_a_similar_name_is_outside(package):
    neighbour = package.with_name(package.name + "_2")
    neighbour.mkdir()
    (package / "out").symlink_to(neighbour)
    with pytest.raises(PathError, match="a symlink out of the package"):
        collect_package(str(package))


def test_broken_links_are_refused(package):
    (package / "gone").symlink_to("nothing")
    with pytest.raises(PathError, match="gone: a broken symlink"):
        collect_package(str(package))


@pytest.mark.parametrize(
    "links", [{"a": "."}, {"modules/up": ".."}, {"modules/x": "../other", "other/y": "../modules"}]
)
def test_links_that_never_end_are_refused(package, links):
    (package / "other").mkdir()
    for name, target in links.items():
        (package / name).symlink_to(target)
    with pytest.raises(PathError, match="a symlink to a folder above it"):
        collect_package(str(package))


def test_pipes_and_sockets_are_refused(package, monkeypatch):
    monkeypatch.chdir(package)
    os.mkfifo("pipe")
    with pytest.raises(PathError, match="pipe: neither a file nor a folder"):
        collect_package(".")
    os.unlink("pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        with pytest.raises(PathError, match="door: neither a file nor a folder"):
            collect_package(".")


def test_the_topology_is_a_file_of_the_package(package):
    prepare(PaddleRequest(str(package), topology="modules/net.py"))
    with pytest.raises(InvalidArgument, match=r"no file .net\.py. in the package"):
        prepare(PaddleRequest(str(package), topology="net.py"))
