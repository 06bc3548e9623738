"""User-defined storages on real servers: added from the shell, then used by commands, forks and libraries."""

from __future__ import annotations

import multiprocessing
import os

import fsspec
import pytest

from tests.storage import object_servers, samba_server

pytestmark = pytest.mark.timeout(300)  # many commands, one after the other
PART = 4096


def _samba():
    if reason := samba_server.missing():
        pytest.skip(f"no Samba: {reason}")
    where = f"//127.0.0.1:{samba_server.shared().port}/data"
    return samba_server.PASSWORD, ("--type", "samba", "--address", where, "--user", samba_server.USER)


def _s3():
    if reason := object_servers.missing("rclone"):
        pytest.skip(f"no S3: {reason}")
    where = ("--address", f"http://{object_servers.shared('rclone').host}", "--path", object_servers.BUCKET)
    return object_servers.RCLONE_SECRET, ("--type", "s3", *where, "--user", object_servers.RCLONE_KEY)


def _azure():
    if reason := object_servers.missing("azurite"):
        pytest.skip(f"no Azure Blob: {reason}")
    account = object_servers.ACCOUNT
    where = f"http://{object_servers.shared('azurite').host}/{account}"
    flags = ("--type", "azureblob", "--address", where, "--path", object_servers.BUCKET, "--user", account)
    return object_servers.ACCOUNT_KEY, flags


@pytest.mark.parametrize("kind", [_samba, _s3, _azure], ids=["samba", "s3", "azureblob"])
def test_a_storage_with_a_key_is_added_and_used(cluster, kind):
    """For S3 the server is rclone, because s3rver accepts any key."""
    secret, flags = kind()
    (cluster.home / "local" / "choices.yaml").unlink(missing_ok=True)
    (cluster.project / "a.txt").write_text("a\n")
    wrong = "d3Jvbmc=" if kind is _azure else "wrong"
    refused = cluster.inv("storage.add", "mine", *flags, OPENPAI_STORAGE_PASSWORD=wrong)
    assert refused.code in (121, 122) and len(refused.err.splitlines()) == 1, refused
    assert not (cluster.home / "local" / "choices.yaml").exists()
    added = cluster.ok("storage.add", "mine", *flags, OPENPAI_STORAGE_PASSWORD=secret)
    try:
        cluster.ok("storage.cp", "a.txt", "pai://local/mine/own-a.txt")
        assert cluster.ok("storage.cat", "pai://local/mine/own-a.txt").out == "a\n"
        listed = cluster.ok("storage.list", "-o", "json")
        assert secret not in added.out + added.err + listed.out
        cluster.ok("storage.rm", "pai://local/mine/own-a.txt")
    finally:
        cluster.ok("storage.forget", "mine")


@pytest.fixture
def own(cluster, hdfs, monkeypatch):
    """The shared cluster with a folder of a real HDFS added as `mine`; one of two name nodes is dead."""
    cluster.run("sh", "-c", f"rm -f '{cluster.home}/local/choices.yaml'")
    cluster.ok("storage.mkdir", f"webhdfs://root@{hdfs.name_node}/own")
    flags = (
        "--type",
        "hdfs",
        "--address",
        f"127.0.0.1:1,{hdfs.name_node}",
        "--path",
        "/own",
        "--user",
        "root",
    )
    cluster.ok("storage.add", "mine", *flags)
    monkeypatch.setenv("OPENPAI_HOME", str(cluster.home))
    monkeypatch.chdir(cluster.project)
    fsspec.get_filesystem_class("pai").clear_instance_cache()
    yield cluster
    cluster.ok("storage.rm", "-r", "-y", f"webhdfs://root@{hdfs.name_node}/own")
    cluster.ok("storage.forget", "mine")


def test_hdfs_with_several_name_nodes_is_added_and_selected(own, hdfs):
    (own.project / "a.txt").write_text("a\n")
    own.ok("storage.cp", "a.txt", "pai://local/mine/")
    assert own.ok("storage.cat", f"webhdfs://root@{hdfs.name_node}/own/a.txt").out == "a\n"
    chosen = own.ok("storage.select", "mine", "-w", "exp", "-o", "json").json()
    user = chosen["workspace"].split("/")[1]
    assert chosen["url"] == f"pai://local/mine/{user}/exp"
    assert own.ok("storage.ls", "pai://local/0/${PAI_USER_NAME}", "-o", "json").json()[0]["name"] == "exp"
    rows = {row["name"]: row for row in own.ok("storage.list", "-o", "json").json()}
    assert rows["mine"]["selected"] and rows["mine"]["server"].endswith(hdfs.name_node)


def test_storage_with_a_missing_folder_is_not_added(own, hdfs):
    ran = own.inv("storage.add", "other", "--type", "hdfs", "--address", hdfs.name_node, "--path", "/none")
    assert ran.code == 123 and ran.err == "error: storage 'other' has no folder /none\n"
    assert [row["name"] for row in own.ok("storage.list", "-o", "json").json()] == ["home", "mine"]


def read_all(file, content, results):
    """Read the file part by part, in an order that depends on the process."""
    starts = list(range(0, len(content), PART))
    order = starts[os.getpid() % 7 :] + starts[: os.getpid() % 7]
    good = True
    for start in order:
        file.seek(start)
        good = good and file.read(PART) == content[start : start + PART]
    results.put(good)


def test_open_file_is_read_by_forked_children_at_the_same_time(own):
    content = os.urandom(64 * PART)
    fs = fsspec.filesystem("pai")
    fs.pipe("local/mine/f", content)
    with fs.open("local/mine/f", "rb", block_size=PART) as file:
        assert file.read(10) == content[:10]
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        children = [context.Process(target=read_all, args=(file, content, results)) for _ in range(3)]
        for child in children:
            child.start()
        read_all(file, content, results)
        assert [results.get(timeout=60) for _ in range(4)] == [True] * 4
        for child in children:
            child.join()
    fs.rm("local/mine/f")
