"""A job that replaces a folder of its user's home by a symlink while the server handles a path in it."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import pytest
from starlette.datastructures import FormData, UploadFile

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.files.removal import discard
from openpai_tasks.server.api.request import Request
from openpai_tasks.server.paddlecloud import files, jobs
from openpai_tasks.server.paddlecloud.pfs.tree import Tree
from openpai_tasks.server.paddlecloud.submission import read_submission

HOME = "/pfs/local/home/user1"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home of a user whose job replaces the folder ``d`` as soon as the server has resolved a path."""
    home, outside, resolve = tmp_path / "home" / "user1", tmp_path / "outside", os.path.realpath
    for folder in (outside, home / "d"):
        folder.mkdir(parents=True)
        (folder / "f").write_text(folder.name)
        (folder / f"of {folder.name}").touch()

    def resolve_and_lose(path, **options):
        found = resolve(path, **options)
        if os.fspath(path).startswith(f"{home}/") and not (home / "d").is_symlink():
            (home / "d").rename(home / "old")
            (home / "d").symlink_to(outside)
        return found

    monkeypatch.setattr(os.path, "realpath", resolve_and_lose)
    return home


def call(handler, home, path, content=b""):
    context = SimpleNamespace(storages={"home": SimpleNamespace(path=home.parent)})
    form = FormData(file=UploadFile(io.BytesIO(content)))
    query = {"path": (f"{HOME}/{path}",)}
    return handler(context, Request("POST", query=query, body=form, identity=SimpleNamespace(user="user1")))


def test_download_does_not_follow_the_new_link(home):
    with pytest.raises((ApiError, OSError)):
        call(files.download, home, "d/f")


def test_list_does_not_follow_the_new_link(home):
    with pytest.raises((ApiError, OSError)):
        call(files.list_names, home, "d")


@pytest.mark.parametrize("path", ["d/f", "d/new", "d/deep/er/new"])
def test_upload_does_not_follow_the_new_link(home, path):
    with pytest.raises((ApiError, OSError)):
        call(files.upload, home, path, b"of the job")
    outside = home.parent.parent / "outside"
    assert sorted(os.listdir(outside)) == ["f", "of outside"] and (outside / "f").read_text() == "outside"


def test_package_of_a_job_is_not_found_through_the_new_link(home):
    context = SimpleNamespace(storages={"home": SimpleNamespace(path=home.parent)})
    (home / "jobs").symlink_to("d")
    (home.parent.parent / "outside" / "train").mkdir()
    with pytest.raises((ApiError, Denied)):
        jobs._with_package(
            context, "user1", read_submission({"name": "train", "entry": "true", "datacenter": "local"})
        )


def test_very_deep_folder_is_removed(tmp_path):
    (tmp_path / "d").mkdir()
    here = os.open(tmp_path / "d", os.O_RDONLY)
    for _ in range(2000):  # more than Python's recursion limit, and than open files
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        Tree(tmp_path).remove(("d",), recursive=True)
        assert list(tmp_path.iterdir()) == []
    finally:
        discard(tmp_path / "d")  # pytest cannot remove it
