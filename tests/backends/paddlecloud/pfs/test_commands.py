"""Commands on a datacenter of ``~/.paddle/config``, by both forms of its paths, and ``pai://`` in Python."""

from __future__ import annotations

import os

import fsspec
import pytest

from openpai_tasks.backends.paddlecloud.pfs.connection import CHUNK
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.files import ClusterStorages
from openpai_tasks.settings.config import Settings
from tests.conftest import make_shell
from tests.storage import pfs_server

CONFIG = """\
datacenters:
- {{name: local, username: "{user}", password: "{password}", endpoint: "{endpoint}/"}}
current-datacenter: local
"""


@pytest.fixture(scope="module")
def server():
    return pfs_server.shared()


@pytest.fixture(scope="module")
def shell(server, tmp_path_factory):
    """A user's machine whose file names the server; ``local`` is the alias of the embedded cluster there."""
    shell = make_shell(tmp_path_factory.mktemp("machine"))
    home = shell.project.parent
    shell.environment["HOME"] = str(home)
    (home / ".paddle").mkdir()
    (home / ".paddle/config").write_text(CONFIG.format(**vars(server)))
    return shell


@pytest.fixture
def folder(server, tmp_path):
    (server.home / tmp_path.name).mkdir(parents=True)
    return tmp_path.name


def test_storage_commands_take_classic_paths(server, shell, folder):
    data, classic = shell.project / "data", f"/pfs/local/home/{server.user}/{folder}"
    (data / "sub").mkdir(parents=True)
    (data / "a.txt").write_text("hello\n")
    (data / "sub/big").write_bytes(os.urandom(CHUNK + 5))
    url = f"pai://local-paddle/pfs/home/{server.user}/{folder}"
    assert shell.ok("storage.copy", "data", f"{classic}/", "-o", "json").json()["files"] == 2
    assert (server.home / folder / "data/sub/big").read_bytes() == (data / "sub/big").read_bytes()
    assert shell.ok("storage.cat", f"{url}/data/a.txt").out == "hello\n"
    assert shell.ok("storage.sync", "data", f"{classic}/data", "-o", "json").json()["skipped"] == 2
    assert shell.ok("storage.sync", "data", f"{url}/data", "--checksum", "-o", "json").json()["skipped"] == 2
    (used,) = [row for row in shell.ok("storage.du", classic, "-o", "json").json() if row["url"] == url]
    assert (used["files"], used["size"]) == (2, CHUNK + 5 + 6)
    shell.ok("storage.copy", f"{classic}/data/*", "back/")
    assert (shell.project / "back/sub/big").read_bytes() == (data / "sub/big").read_bytes()
    shell.ok("storage.rm", "-r", f"{classic}/data")
    assert os.listdir(server.home / folder) == []


def test_a_folder_is_not_copied_into_itself_by_another_way_to_it(server, shell, folder):
    here = server.home / folder / "a"
    (here / "into/b").mkdir(parents=True)
    (here / "x").write_text("x")
    url = f"pai://local-paddle/pfs/home/{server.user}/{folder}/a"
    ran = shell.inv("storage.copy", str(here), f"{url}/into/")
    assert ran.code == 123 and "the target is in the source, by another name" in ran.out
    assert sorted(path.name for path in (here / "into/a").rglob("*")) == ["b", "into", "x"]
    ran = shell.inv("storage.sync", "--delete", str(here / "into"), url)
    assert ran.code == 123 and "deleting there would remove the source" in ran.err
    assert (here / "into/b").is_dir() and not list(here.rglob(".pai-part*"))


def test_failures_are_one_line(server, shell, folder):
    for words, code in (
        (("storage.ls", "/pfs/dc9/home/x"), 120),
        (("storage.ls", "/pfs/local/home/somebody"), 122),
        (("storage.ls", f"/pfs/local/home/{server.user}/{folder}/none"), 123),
        (("storage.copy", "/pfs/local/home/x/../y", "z"), 123),
    ):
        ran = shell.pai(*words)
        assert (ran.code, ran.out) == (code, "") and ran.err.count("\n") == 1, ran
        assert "/pfs/pfs/" not in ran.err and "Traceback" not in ran.err


def test_list_of_storages_shows_no_token(server, shell):
    ran = shell.ok("storage.list", "local-paddle", "-o", "json")
    (row,) = ran.json()
    assert (row["name"], row["type"], row["server"]) == ("pfs", "pfs", server.endpoint)
    assert server.token not in ran.out and server.password not in ran.out


def test_files_are_opened_from_python(server, shell, folder, monkeypatch):
    for name in ("HOME", "OPENPAI_HOME"):
        monkeypatch.setenv(name, shell.environment[name])
    fsspec.get_filesystem_class("pai").clear_instance_cache()  # one that knows another home
    url = f"pai://local-paddle/pfs/home/{server.user}/{folder}"
    content = os.urandom(CHUNK + 100)
    with fsspec.open(f"{url}/d/f", "wb") as file:
        file.write(content)
    with fsspec.open(f"{url}/d/f", "rb") as file:
        file.seek(CHUNK - 5)
        assert file.read(10) == content[CHUNK - 5 : CHUNK + 5]
    files = fsspec.filesystem("pai")
    files.mv(f"{url}/d", f"{url}/e", recursive=True)
    assert os.listdir(server.home / folder) == ["e"]
    assert (server.home / folder / "e/f").read_bytes() == content


def test_unknown_datacenters_are_named_with_the_known_ones(shell, monkeypatch):
    for name in ("HOME", "OPENPAI_HOME"):
        monkeypatch.setenv(name, shell.environment[name])
    book = ClusterStorages(Settings.load())
    assert book.cluster_url("/pfs/local/home/x") == "pai://local-paddle/pfs/home/x"
    with pytest.raises(ConfigError, match=r"no datacenter 'dc9' \(known: local\)"):
        book.cluster_url("/pfs/dc9/home/x")
