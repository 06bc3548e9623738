"""Every kind of store that the contract tests cover: a name, and a function that makes an empty store.

A row is a function that is given a folder for what it needs and yields the Location of an empty folder;
what it starts, it ends. It calls ``pytest.skip`` with the reason where its parts are missing.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import getpass
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.sftp.login_node import LoginNodeStore
from openpai_tasks.storage.sftp.store import SftpStore
from openpai_tasks.storage.store import StorageSpec
from openpai_tasks.tunnel.openssh import SharedConnection
from tests.sdk import sshd_server
from tests.storage import hdfs_jars, hdfs_server, object_servers, pfs_server, pod_service, samba_server
from tests.storage import third_party as example

TOP = Path(tempfile.gettempdir())


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Location]:
    """Any folder on this machine."""
    yield Location(LocalStore(), str(folder.resolve()), str(folder.resolve()))


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Location]:
    """The embedded cluster's storage: a folder for the user in a folder on this machine."""
    place = StorageSpec("local", "home", "local", {"path": str(folder)}, user="ann", share=False, is_own=True)
    yield Location(open_storage(place), "/", "pai://local/home/")


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Location]:
    """A share that is in the mount map."""
    mounts = (("10.0.0.1:/exports", str(folder)),)
    (folder / "data").mkdir()
    place = StorageSpec("lab", "data", "nfs", {"server": "10.0.0.1", "path": "/exports/data"}, mounts=mounts)
    yield Location(open_storage(place), "/", "pai://lab/data/")


def _own_name(folder: Path) -> str:
    """A name for the folder on a server that other workers use too."""
    return f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{folder.name}"


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[Location]:
    """A folder of a real HDFS, which is started for the first test that wants it."""
    if reason := hdfs_jars.missing():
        pytest.skip(f"no HDFS: {reason}")
    host, port = hdfs_server.shared().name_node.split(":")
    data = {"namenode": host, "port": port, "path": f"/{_own_name(folder)}"}
    store = open_storage(StorageSpec("lab", "hdfs", "hdfs", data, user="root"))
    store.make_folder("/")
    yield Location(store, "/", "pai://lab/hdfs/")
    store.remove("/", recursive=True)
    store.close()


@contextlib.contextmanager
def samba(folder: Path) -> Iterator[Location]:
    """A folder of a share of a real Samba, which is started for the first test that wants it."""
    if reason := samba_server.missing():
        pytest.skip(f"no Samba: {reason}")
    server = samba_server.shared()
    login = {"username": samba_server.USER, "password": samba_server.PASSWORD}
    data = {"address": f"//127.0.0.1:{server.port}/data", "rootPath": f"/{folder.name}", **login}
    (server.data / folder.name).mkdir()
    yield Location(open_storage(StorageSpec("lab", "docs", "samba", data)), "/", "pai://lab/docs/")
    shutil.rmtree(server.data / folder.name)


def s3_data(server: object_servers.Server, folder: str) -> dict[str, Any]:
    """The data of a user's own storage on that server."""
    rclone = server.name == "rclone"
    key = object_servers.RCLONE_KEY if rclone else object_servers.S3_KEY
    secret = object_servers.RCLONE_SECRET if rclone else object_servers.S3_SECRET
    where = {"bucket": object_servers.BUCKET, "endpoint": f"http://{server.host}", "path": folder}
    return {**where, "accessKeyId": key, "secretAccessKey": secret}


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[Location]:
    """A folder of a bucket of a server that speaks S3."""
    if reason := object_servers.missing("s3rver"):
        pytest.skip(f"no S3: {reason}")
    data = s3_data(object_servers.shared("s3rver"), _own_name(folder))
    store = open_storage(StorageSpec("lab", "objects", "s3", data))
    yield Location(store, "/", "pai://lab/objects/")
    store.close()  # the folder ends with the server, as no other test uses it


def azure_data(server: object_servers.Server, folder: str) -> dict[str, Any]:
    """The data that OpenPAI reports for a storage of type azureBlob."""
    account = {"accountName": object_servers.ACCOUNT, "accountKey": object_servers.ACCOUNT_KEY}
    where = {"dataStore": f"http://{server.host}/{object_servers.ACCOUNT}", "path": folder}
    return {**account, **where, "containerName": object_servers.BUCKET}


@contextlib.contextmanager
def azure_blob(folder: Path) -> Iterator[Location]:
    """A folder of a container of Azurite, Microsoft's own stand-in for Azure's storage."""
    if reason := object_servers.missing("azurite"):
        pytest.skip(f"no Azure Blob: {reason}")
    data = azure_data(object_servers.shared("azurite"), _own_name(folder))
    store = open_storage(StorageSpec("lab", "blobs", "azureBlob", data))
    yield Location(store, "/", "pai://lab/blobs/")
    store.close()  # the folder ends with the server, as no other test uses it


@contextlib.contextmanager
def sftp(folder: Path) -> Iterator[Location]:
    """A folder of a container: of a real sshd, which is started for the first test that wants it."""
    yield Location(_container(), str(folder), f"main-0:{folder}")


@functools.cache
def _container() -> SftpStore:
    server = sshd_server.shared()
    return SftpStore("ann~train-main-0", Remote(server.target(server.folder)).open)


@contextlib.contextmanager
def pod(folder: Path) -> Iterator[Location]:
    """A folder of a task on Kubernetes, whose files are read and written by commands."""
    yield Location(_pod(), str(folder), f"main-0:{folder}")


@functools.cache
def _pod() -> SftpStore:
    return SftpStore("ann~train-main-0", Remote(pod_service.shared()).open)


@contextlib.contextmanager
def login_node(folder: Path) -> Iterator[Location]:
    """A folder on a login node, by the user's own ssh."""
    store, programs = _login_node()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        yield Location(store, f"/{folder.relative_to(TOP)}", "pai://hpc/home/")


@functools.cache
def _login_node() -> tuple[LoginNodeStore, Path]:
    """The store, and the folder of an `ssh` that has its own configuration instead of the developer's."""
    server = sshd_server.shared()
    config, program = server.folder / "config", server.folder / "bin" / "ssh"
    known = f"[127.0.0.1]:{server.port} {(server.folder / 'host.pub').read_text()}"
    (server.folder / "login_hosts").write_text(known)
    config.write_text(f"IdentityFile {server.folder}/id\nUserKnownHostsFile {server.folder}/login_hosts\n")
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    program.chmod(0o755)
    ssh = SharedConnection(SshAddress("127.0.0.1", getpass.getuser(), server.port))
    atexit.register(ssh.close)
    return LoginNodeStore(ssh, str(TOP), "home"), program.parent


@contextlib.contextmanager
def pfs(folder: Path) -> Iterator[Location]:
    """A folder of the file service that the embedded cluster has for PaddleCloud."""
    server = pfs_server.shared()
    store, path = server.store(), f"/home/{server.user}/{_own_name(folder)}"
    store.make_folder(path)
    yield Location(store, path, f"pai://lab/pfs{path}")
    store.remove(path, recursive=True)


@contextlib.contextmanager
def third_party(folder: Path) -> Iterator[Location]:
    """A kind that another package adds."""
    sys.path.insert(0, str(example.install(folder)))
    try:
        data = {"path": str(folder / "base.db")}
        yield Location(
            open_storage(StorageSpec("lab", "box", "sqlite", data, is_own=True)), "/", "pai://lab/box/"
        )
    finally:
        sys.path.remove(str(folder))


STORES: dict[str, Any] = {
    "local": local,
    "embedded": embedded,
    "mounted": mounted,
    "hdfs": hdfs,
    "samba": samba,
    "s3": s3,
    "azure_blob": azure_blob,
    "sftp": sftp,
    "pod": pod,
    "login_node": login_node,
    "pfs": pfs,
    "third_party": third_party,
}
