"""Real storage servers for histories: how each is reached, hurt, and read by its own means."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import requests

from tests.endurance.faults.network import Link, link_of
from tests.endurance.operations.files import Tree, read_tree
from tests.endurance.sites.ssh import Ssh
from tests.endurance.world import World, send_signal
from tests.ports import free_port
from tests.storage import hdfs_jars, hdfs_server, object_servers, samba_server
from tests.storage.gateway import Gateway

T = TypeVar("T")
PATIENCE = 60.0  # seconds until a server that was hurt answers again
_starter = ThreadPoolExecutor(1)  # servers end with the thread that started them: this one stays


def start(function: Callable[[], T]) -> T:
    """Start a server from a thread that lives as long as the run."""
    return _starter.submit(function).result()


def again(function: Callable[[], T]) -> T:
    """Repeat a request until the server answers: it may be down for some seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return function()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def open_link(server: str) -> Link:
    """Return a network in front of a server, for the whole run."""
    link = Link(lambda: server)
    link.__enter__()
    return link


class StoreServer:
    """A server with one storage; ``flags`` and ``secret`` are those of ``storage.add``."""

    name = ""
    flags: tuple[str, ...] = ()
    """Empty if the storage is that of a cluster, which `enter` adds."""
    secret = ""
    server: Any
    link: Link | None = None
    """The network between it and the clients."""
    parts: tuple[str, ...] = ("",)
    """Names of its processes, which can be hurt one by one."""
    is_durable = True
    """Whether its files survive its processes."""

    def missing(self) -> str:
        return ""

    def start(self) -> None:
        """Start it, for all histories of a run."""

    def stop(self) -> None:
        self.server.stop()

    def enter(self, world: World) -> None:
        """Set up what one history needs."""

    def leave(self, world: World) -> None:
        """End what `enter` has started."""

    def leftovers(self, world: World) -> Iterator[str]:
        """Yield what is left of a history after `leave`."""
        return iter(())

    def url(self) -> str:
        """Return the URL of the folder in which the paths of the other methods are."""
        return f"pai://local/{self.name}"

    def pids(self, part: str) -> list[int]:
        return list(_group(self.server.pid))

    def kill(self, part: str) -> None:
        """Kill one of its processes without warning, and start it again."""
        self.server.kill()
        start(self.server.start)

    def write(self, path: str, content: bytes) -> None:
        """Write a file by the server's own means."""
        raise NotImplementedError

    def read(self, folder: str) -> Tree:
        """Return the checksums of a folder's files by the server's own means."""
        raise NotImplementedError

    def fetch(self, path: str) -> bytes:
        raise NotImplementedError

    def clear(self, folder: str) -> None:
        raise NotImplementedError

    def plant(self, folder: str, source: Path) -> None:
        """Write a copy of a local folder."""
        for path in sorted(source.rglob("*")):
            if path.is_file():
                self.write(f"{folder}/{path.relative_to(source)}", path.read_bytes())


class Disk(StoreServer):
    """A server whose files are those of a folder of this machine."""

    data: Path

    def write(self, path: str, content: bytes) -> None:
        (self.data / path).parent.mkdir(parents=True, exist_ok=True)
        again(lambda: (self.data / path).write_bytes(content))  # the disk may be full

    def read(self, folder: str) -> Tree:
        return read_tree(self.data / folder)

    def fetch(self, path: str) -> bytes:
        return (self.data / path).read_bytes()

    def clear(self, folder: str) -> None:
        shutil.rmtree(self.data / folder, ignore_errors=True)


class Samba(Disk):
    name = "samba"
    secret = samba_server.PASSWORD

    def missing(self) -> str:
        return samba_server.missing()

    def start(self) -> None:
        self.server = start(lambda: samba_server.Samba().start())
        self.data = self.server.data
        self.link = open_link(f"127.0.0.1:{self.server.port}")
        address = f"//{self.link.host}/data"
        self.flags = ("--type", "samba", "--address", address, "--user", samba_server.USER)


class S3(StoreServer):
    name = "s3"
    server: object_servers.Server
    secret = object_servers.S3_SECRET

    def missing(self) -> str:
        return object_servers.missing("s3rver")

    def start(self) -> None:
        self.server = start(lambda: object_servers.Server("s3rver").start())
        self.link = open_link(self.server.host)
        where = ("--address", f"http://{self.link.host}", "--path", f"/{object_servers.BUCKET}")
        self.flags = ("--type", "s3", *where, "--user", object_servers.S3_KEY)

    def _client(self) -> Any:
        import botocore.session

        keys = {"aws_access_key_id": object_servers.S3_KEY, "aws_secret_access_key": self.secret}
        where = {"endpoint_url": f"http://{self.server.host}", "region_name": "us-east-1"}
        return botocore.session.get_session().create_client("s3", **where, **keys)

    def write(self, path: str, content: bytes) -> None:
        again(lambda: self._client().put_object(Bucket=object_servers.BUCKET, Key=path, Body=content))

    def plant(self, folder: str, source: Path) -> None:
        """Write objects for the folders, too: s3rver does not list a folder that only has folders."""
        for path in sorted(source.rglob("*/")):
            if path.is_dir():
                self.write(f"{folder}/{path.relative_to(source)}/", b"")
        super().plant(folder, source)

    def read(self, folder: str) -> Tree:
        """Return what is on the server's disk."""
        return {
            name.removesuffix(OBJECT): digest
            for name, digest in read_tree(self.server.data / object_servers.BUCKET / folder).items()
            if name.endswith(OBJECT) and not name.endswith(f"/{OBJECT}") and name != OBJECT  # of folders
        }

    def fetch(self, path: str) -> bytes:
        return (self.server.data / object_servers.BUCKET / f"{path}{OBJECT}").read_bytes()

    def clear(self, folder: str) -> None:
        shutil.rmtree(self.server.data / object_servers.BUCKET / folder, ignore_errors=True)


OBJECT = "._S3rver_object"


class Azurite(StoreServer):
    """It keeps everything in memory: it can be paused and cut off, but not killed."""

    name = "azure"
    secret = object_servers.ACCOUNT_KEY
    is_durable = False

    def missing(self) -> str:
        return object_servers.missing("azurite")

    def start(self) -> None:
        self.server = start(lambda: object_servers.Server("azurite").start())
        self.link = open_link(self.server.host)
        address = f"http://{self.link.host}/{object_servers.ACCOUNT}"
        where = ("--address", address, "--path", f"/{object_servers.BUCKET}")
        self.flags = ("--type", "azureblob", *where, "--user", object_servers.ACCOUNT)

    def _client(self) -> Any:
        from azure.storage.blob import ContainerClient

        address = f"http://{self.server.host}/{object_servers.ACCOUNT}"
        return ContainerClient(address, object_servers.BUCKET, self.secret)

    def write(self, path: str, content: bytes) -> None:
        again(lambda: self._client().upload_blob(path, content, overwrite=True))

    def read(self, folder: str) -> Tree:
        with self._client() as client:
            found = [one.name for one in client.list_blobs(name_starts_with=f"{folder}/")]
            names = [name for name in found if not name.endswith("/")]  # the others stand for folders
            files = {name: client.download_blob(name).readall() for name in names}
        return {
            name.removeprefix(f"{folder}/"): sha256(content).hexdigest() for name, content in files.items()
        }

    def fetch(self, path: str) -> bytes:
        with self._client() as client:
            return bytes(client.download_blob(path).readall())

    def clear(self, folder: str) -> None:
        with self._client() as client:
            for one in list(client.list_blobs(name_starts_with=f"{folder}/")):
                client.delete_blob(one.name)


class Hdfs(StoreServer):
    name = "hdfs"
    server: hdfs_server.Hdfs
    parts: tuple[str, ...] = ("namenode.NameNode", "datanode.DataNode")

    def missing(self) -> str:
        return hdfs_jars.missing()

    def start(self) -> None:
        self.server = start(lambda: hdfs_server.Hdfs().start())
        self.flags = ("--type", "hdfs", "--address", self.server.name_node, "--user", "root")

    def pids(self, part: str) -> list[int]:
        return self.server.pids(part)

    def kill(self, part: str) -> None:
        self.server.kill(part)
        start(lambda: self.server.launch(part))
        self.server.until_data_node_answers()

    def _url(self, path: str, operation: str) -> str:
        return f"http://{self.server.name_node}/webhdfs/v1/{path}?user.name=root&op={operation}"

    def write(self, path: str, content: bytes) -> None:
        def put() -> None:
            there = requests.put(
                self._url(path, "CREATE&overwrite=true"), allow_redirects=False, timeout=20
            ).headers["Location"]
            requests.put(there, data=content, timeout=20).raise_for_status()

        again(put)

    def read(self, folder: str) -> Tree:
        return {name: sha256(self.fetch(f"{folder}/{name}")).hexdigest() for name in self._files(folder)}

    def _files(self, folder: str, below: str = "") -> Iterator[str]:
        answer = requests.get(self._url(f"{folder}/{below}", "LISTSTATUS"), timeout=20)
        if answer.status_code == 404:
            return
        answer.raise_for_status()
        for row in answer.json()["FileStatuses"]["FileStatus"]:
            name = f"{below}{row['pathSuffix']}"
            if row["type"] == "DIRECTORY":
                yield from self._files(folder, f"{name}/")
            else:
                yield name

    def fetch(self, path: str) -> bytes:
        def get() -> bytes:
            answer = requests.get(self._url(path, "OPEN"), timeout=60)
            answer.raise_for_status()
            return answer.content

        return again(get)

    def clear(self, folder: str) -> None:
        requests.delete(self._url(folder, "DELETE&recursive=true"), timeout=60)


class GatewayHdfs(Hdfs):
    """The same HDFS through a gateway like OpenPAI's, whose redirects lead through its network again."""

    name = "gateway"
    parts = ()

    def start(self) -> None:
        self.server = HDFS.server
        gateway = Gateway(self.server.name_node).__enter__()
        self.link = open_link(gateway.host)
        gateway.uri = f"http://{self.link.host}"
        self.flags = ("--type", "hdfs", "--address", f"{gateway.uri}/webhdfs", "--user", "root")

    def stop(self) -> None:
        """The server is the other one's."""


HDFS = Hdfs()


class Sftp(Disk):
    """The storage of a login node: each history has its own, behind a real sshd."""

    name = "sftp"

    def missing(self) -> str:
        return LoginNode().missing()

    def stop(self) -> None:
        """It ends with each history."""

    def enter(self, world: World) -> None:
        self.node = LoginNode()
        self.node.start(world)
        self.link = self.node.link
        made = world.pai("storage.mkdir", f"{self.url()}/first")
        assert made.returncode == 0, made.stderr
        (first,) = self.node.server_folder(world).glob("storage/home/*/first")
        self.data = first.parent

    def leave(self, world: World) -> None:
        self.node.stop_cluster(world)
        self.node.stop(world)

    def leftovers(self, world: World) -> Iterator[str]:
        """The key with which users enter containers stays."""
        return (line for line in self.node.leftovers(world) if "id_ed25519" not in line)

    def url(self) -> str:
        return f"pai://{LoginNode.alias}/home"

    def pids(self, part: str) -> list[int]:
        return self.node.sessions()

    def kill(self, part: str) -> None:
        self.node.restart()


class LoginNode(Ssh):
    """A machine with an sshd behind a network of ours."""

    alias = "login"
    link: Link

    def start(self, world: World) -> None:
        self._world, self._port = world, free_port()
        self.link = open_link(f"127.0.0.1:{self._port}")
        self._stack.callback(self.link.__exit__)
        super().start(world)
        assert world.pai("cluster.select", "local").returncode == 0

    def start_sshd(self, world: World) -> None:
        self.sshd.port = self._port
        super().start_sshd(world)
        self.sshd.port = self.link.address[1]  # what the clients are given

    def restart(self) -> None:
        """Kill sshd with its sessions, and start it again."""
        assert self.sshd.process is not None
        self.sshd.drop()
        send_signal(self.sshd.process.pid, signal.SIGKILL)
        self.sshd.stop()
        self.start_sshd(self._world)


class Pfs(Disk):
    """The storage of the history's own server, over HTTP like PaddleCloud's, through the faulty network."""

    name = "pfs"
    alias = "paddle"
    parts = ()  # the server has faults of its own

    def stop(self) -> None:
        """It ends with each history."""

    def enter(self, world: World) -> None:
        self.link = link_of(world)
        self._user = json.loads((world.home / "local" / "credentials.json").read_text())["user"]
        words = ("--user", self._user, "--password-file", str(world.folder / "user" / "password"))
        address = f"http://{self.link.host}/paddlecloud"
        added = world.pai("cluster.add", self.alias, address, "--type", "paddlecloud", *words)
        assert added.returncode == 0, added.stderr
        self.data = world.home / "local" / "storage" / "home" / self._user

    def url(self) -> str:
        return f"pai://{self.alias}/pfs/home/{self._user}"


def _group(leader: int) -> Iterator[int]:
    """Yield the processes of a process group."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if os.getpgid(pid) == leader:
                yield pid


def pause(pids: list[int], seconds: float) -> None:
    """Stop processes for some seconds."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)


PFS = Pfs()
SERVERS: dict[str, StoreServer] = {
    one.name: one for one in (Samba(), S3(), Azurite(), HDFS, GatewayHdfs(), Sftp(), PFS) if not one.missing()
}
