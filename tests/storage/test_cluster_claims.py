"""Storages that a cluster declares give it no access to this machine: no folder, no symlink, no key."""

from __future__ import annotations

import os

import pytest

from openpai_tasks.errors import ConfigError, PaiError, PathError
from openpai_tasks.storage.local.mounted import mount_map
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec
from tests.needs import require
from tests.scripted import Reply, Scripted


def test_remote_cluster_cannot_declare_a_local_folder_as_its_storage(tmp_path):
    place = StorageSpec("lab", "home", "local", {"path": str(tmp_path)}, "ann")
    with pytest.raises(ConfigError, match="'lab' claims that its storage 'home' is a folder of this machine"):
        open_storage(place)
    for kind in ("Local", "LOCAL"):
        with pytest.raises(ConfigError, match="refused"):
            open_storage(StorageSpec("lab", "home", kind, {"path": str(tmp_path)}, "ann", share=False))
    assert not (tmp_path / "ann").exists()


def nfs(tmp_path, path, **options):
    rows = mount_map([f"nas:/exports={tmp_path}/mount"])
    return StorageSpec("lab", "data", "nfs", {"server": "nas", "path": path}, "ann", mounts=rows, **options)


@pytest.mark.parametrize(
    "path",
    [
        "/exports/../mine",
        "/exports/team/../../mine",
        "/exports/./../mine",
        "/exports//..//mine",
        "/exports/..",
        "/exports/team\\..\\..\\mine",
        "/exports/te\0am",
        "/exports/te\nam",
    ],
)
def test_path_of_a_server_cannot_escape_its_mount(tmp_path, path):
    for folder in ("mount/team", "mine"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(PathError, match=r"'data' of 'lab' names .* below its mount: refused"):
        open_storage(nfs(tmp_path, path))


def test_empty_names_and_dots_in_a_path_of_a_server_are_dropped(tmp_path):
    (tmp_path / "mount/team").mkdir(parents=True)
    assert open_storage(nfs(tmp_path, "/exports/.//team/")).root == str(tmp_path / "mount/team")


@pytest.mark.parametrize("address", ["//nas/docs/../mine", "\\\\nas\\docs\\..\\mine"])
def test_samba_share_cannot_escape_its_mount(tmp_path, address):
    (tmp_path / "mount").mkdir()
    data = {"address": address, "username": "u", "password": "p"}
    with pytest.raises(PathError, match="refused"):
        open_storage(StorageSpec("lab", "docs", "samba", data, mounts=(("//nas/docs", f"{tmp_path}/mount"),)))


def test_symlink_in_a_mount_cannot_escape_it(tmp_path):
    (tmp_path / "mount").mkdir()
    (tmp_path / "mine").mkdir()
    os.symlink(tmp_path / "mine", tmp_path / "mount/team")
    with pytest.raises(PathError, match=r"leads out of .*mount"):
        open_storage(nfs(tmp_path, "/exports/team"))
    os.symlink(tmp_path / "mine", tmp_path / "mount/ann")
    with pytest.raises(PathError, match=r"leads out of .*mount"):
        open_storage(nfs(tmp_path, "/exports", share=False))


def test_symlink_within_a_mount_is_followed_and_the_mount_may_be_a_symlink(tmp_path):
    (tmp_path / "disk/2024").mkdir(parents=True)
    os.symlink("2024", tmp_path / "disk/team")
    os.symlink("disk", tmp_path / "mount")
    assert open_storage(nfs(tmp_path, "/exports/team")).root == str(tmp_path / "disk/2024")


def test_users_aws_key_is_never_used_for_a_bucket_that_a_cluster_declares(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "the-users-own")
    server = Scripted({})
    try:
        data = {"bucket": "data", "endpoint": server.uri}
        for more in ({}, {"accessKeyId": "AK"}):
            with pytest.raises(ConfigError, match=r"yours is not used .*pai storage.add NAME --type s3"):
                open_storage(StorageSpec("lab", "objects", "s3", data | more)).stat("/f")
        assert server.seen == []
        server.respond = lambda asked: Reply("", 404)
        keys = {"accessKeyId": "AK", "secretAccessKey": "theirs"}
        with pytest.raises(PaiError):
            list(open_storage(StorageSpec("lab", "objects", "s3", data | keys)).list("/"))
        assert server.seen and "the-users-own" not in repr(server.seen)
    finally:
        server.close()


def test_users_azure_login_is_never_used_for_a_container_that_a_cluster_declares(monkeypatch):
    require("adlfs")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "dGhlLXVzZXJzLW93bg==")
    data = {"accountName": "acct", "containerName": "data", "dataStore": "blobs.example"}
    with pytest.raises(ConfigError, match=r"has no key.*pai storage.add NAME --type azureblob"):
        open_storage(StorageSpec("lab", "blobs", "azureblob", data))
