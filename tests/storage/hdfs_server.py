"""A real HDFS on loopback: one name node, one data node, WebHDFS; ended with the tests."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests

from openpai_tasks.storage.hdfs.native.rpc import NameNode, _answer, _frame_message
from openpai_tasks.storage.protobuf import delimited, message
from tests.ports import free_ports
from tests.storage import hdfs_jars, sharing

SERVER = "org.apache.hadoop.hdfs.server"
SHELL = "org.apache.hadoop.fs.FsShell"
HA_PROTOCOL = "org.apache.hadoop.ha.HAServiceProtocol"
OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "nio", "net")]
UNVERIFIED = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]  # a tenth less work
JAVA = ["java", *OPENED, *UNVERIFIED, "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"]
LOGGING = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""
START = 200.0
BLOCK = 4096


class Hdfs:
    """Two Java processes and a folder; ``stop`` ends and removes them."""

    def __init__(self, heap: str = "384m", jvm: tuple[str, ...] = ("-XX:TieredStopAtLevel=1",)) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
        self._java = [*JAVA, *jvm, f"-Xmx{heap}"]
        ports = free_ports(5)
        self.name_node, self.data_node = f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[3]}"
        self.rpc = f"127.0.0.1:{ports[0]}"  # Hadoop's native protocol, as on the next line
        self.data_address, self._data_rpc = ("127.0.0.1", ports[2]), ("127.0.0.1", ports[4])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configure(ports)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processes": {}}  # they belong to the worker that started them

    def start(self) -> Hdfs:
        try:
            self._format()
            self.launch("namenode.NameNode")
            self.start_data_node()
            self._until(self.is_ready)
        except BaseException:
            self.stop()
            raise
        return self

    def _format(self, conf: str = "conf") -> None:
        """Create the folders of an empty file system."""
        self.run(f"{SERVER}.namenode.NameNode", "-format", "-force", "-nonInteractive", conf=conf)

    def start_data_node(self) -> None:
        """Call it from the main thread: the process ends with the thread that it was started by."""
        self.launch("datanode.DataNode")

    def until_data_node_answers(self) -> None:
        """Wait until a file of several blocks can be written: ports open before the name node knows it."""
        end = time.monotonic() + START
        while not (_answers(self.data_address) and _takes_blocks(self.name_node)):
            assert time.monotonic() < end, "HDFS's data node does not come up again"
            time.sleep(0.05)

    def repair(self) -> Hdfs:
        """Start the data node again if it was killed, and wait until it answers."""
        if "datanode.DataNode" not in self._processes:
            self.start_data_node()
            self.until_data_node_answers()
        return self

    def kill_data_node(self) -> None:
        """Kill it without warning, as a power failure would."""
        self.kill("datanode.DataNode")

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def pids(self, name: str) -> list[int]:
        return [self._processes[name].pid] if name in self._processes else []

    def stop(self, patience: float = 15.0) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, main: str, *args: str, conf: str = "conf") -> str:
        """Run one of Hadoop's programs to its end."""
        command = [*self._command(main, conf), *args]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=_environment()
        )
        if done.returncode:
            raise RuntimeError(f"{main} {' '.join(args)}: {done.stderr[-2000:]}")
        return done.stdout

    def shell(self, *args: str) -> str:
        """``hdfs dfs ...``"""
        return self.run(SHELL, *args)

    def _command(self, main: str, conf: str = "conf") -> list[str]:
        return [*self._java, *hdfs_jars.class_path(self.folder / conf), main]

    def archive_classes(self, target: Path) -> None:
        """Have a data node write the classes that it has loaded into a file, which later processes map."""
        self._java.append(f"-XX:ArchiveClassesAtExit={target}")
        self.start_data_node()
        try:
            self._until(lambda: _answers(self._data_rpc))
        finally:
            self.stop(patience=120.0)

    def launch(self, name: str, conf: str = "conf") -> None:
        label = f"{name}-{conf}" if conf != "conf" else name
        with open(self.folder / f"{label}.log", "ab") as log:
            self._processes[label] = subprocess.Popen(
                self._command(f"{SERVER}.{name}", conf),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
                preexec_fn=_end_with_us if sys.platform == "linux" else None,
            )

    def _until(self, is_ready: Callable[[], bool]) -> None:
        end = time.monotonic() + START
        while not is_ready():
            for name, process in self._processes.items():
                if process.poll() is not None or time.monotonic() > end:
                    log = (self.folder / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"HDFS's {name} does not come up: {log[-2000:]}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether a data node has reported its capacity to the name node."""
        return _has_data_node(self.name_node)

    def _configure(self, ports: list[int]) -> None:
        rpc, web, data, data_web, data_rpc = ports
        core = {"fs.defaultFS": f"hdfs://127.0.0.1:{rpc}", "hadoop.tmp.dir": self.folder / "data"}
        hdfs = {
            **_settings(data, data_web, data_rpc),
            "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
        }
        self._write("conf", core, hdfs)

    def _write(self, name: str, core: Mapping[str, Any], hdfs: Mapping[str, Any]) -> None:
        conf = self.folder / name
        conf.mkdir()
        (conf / "log4j.properties").write_text(LOGGING)
        (conf / "core-site.xml").write_text(_xml(core))
        (conf / "hdfs-site.xml").write_text(_xml(hdfs))


class Control(NameNode):
    """One of two name nodes, asked like by `hdfs haadmin`, whose Java takes a second to start."""

    def activate(self) -> None:
        name = delimited(message((1, "transitionToActive"), (2, HA_PROTOCOL), (3, 1)))
        asked = delimited(message((1, message((1, 0)))))  # by a user
        with self._streams.borrow(self._key) as stream:
            stream.send(_frame_message(self._header(1), name + asked))
            _answer(stream)


class HdfsPair(Hdfs):
    """Two name nodes, of which ``activate`` makes one active."""

    def start(self) -> HdfsPair:
        try:
            self._format("one")
            shutil.copytree(self.folder / "one-names", self.folder / "two-names")
            self.launch("namenode.NameNode", "one")
            self.launch("namenode.NameNode", "two")
            self.start_data_node()
            self._until(self.is_ready)
        except BaseException:
            self.stop()
            raise
        return self

    def is_ready(self) -> bool:
        return all(_has_data_node(host) for host in self.name_nodes)

    def is_active(self, name: str) -> bool:
        web = self.name_nodes[("one", "two").index(name)]
        root = f"http://{web}/webhdfs/v1/?user.name=root&op=GETFILESTATUS"  # refused by one on standby
        return requests.get(root, timeout=20).ok

    def activate(self, name: str) -> None:
        control = Control("127.0.0.1", self._rpc_ports[("one", "two").index(name)], "root", START)
        control.activate()
        control.close()

    def kill_name_node(self, name: str) -> None:
        process = self._processes.pop(f"namenode.NameNode-{name}")
        process.kill()
        process.wait()

    def _configure(self, ports: list[int]) -> None:
        rpc, web, data, data_web, data_rpc = ports
        other_rpc, other_web = free_ports(2)
        self._rpc_ports = rpc, other_rpc
        self.name_nodes = f"127.0.0.1:{web}", f"127.0.0.1:{other_web}"
        proxy = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        core = {"fs.defaultFS": "hdfs://pair", "hadoop.tmp.dir": self.folder / "data"}
        hdfs = {
            **_settings(data, data_web, data_rpc),
            "dfs.nameservices": "pair",
            "dfs.ha.namenodes.pair": "one,two",
            "dfs.namenode.rpc-address.pair.one": f"127.0.0.1:{rpc}",
            "dfs.namenode.rpc-address.pair.two": f"127.0.0.1:{other_rpc}",
            "dfs.namenode.http-address.pair.one": f"127.0.0.1:{web}",
            "dfs.namenode.http-address.pair.two": f"127.0.0.1:{other_web}",
            "dfs.namenode.name.dir.pair.one": (self.folder / "one-names").as_uri(),
            "dfs.namenode.name.dir.pair.two": (self.folder / "two-names").as_uri(),
            "dfs.namenode.shared.edits.dir": (self.folder / "shared").as_uri(),
            "dfs.client.failover.proxy.provider.pair": proxy,
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": 1,
        }
        self._write("conf", core, hdfs)
        for name in ("one", "two"):
            self._write(name, core, {**hdfs, "dfs.ha.namenode.id": name})


def _has_data_node(name_node: str) -> bool:
    query = "qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(f"http://{name_node}/jmx?{query}", timeout=20) as answer:
            beans = json.load(answer)["beans"]
    except (OSError, ValueError):
        return False
    return bool(beans) and beans[0]["NumLiveDataNodes"] >= 1 and beans[0]["CapacityTotal"] > 0


def _answers(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, 5):
        return True
    return False


def _takes_blocks(name_node: str) -> bool:
    probe = f"http://{name_node}/webhdfs/v1/.probe?user.name=root"
    create = f"{probe}&op=CREATE&overwrite=true&blocksize={BLOCK}"
    try:
        there = requests.put(create, allow_redirects=False, timeout=20).headers.get("Location", "")
        written = requests.put(there, data=bytes(3 * BLOCK), timeout=20)
        requests.delete(f"{probe}&op=DELETE", timeout=20)
    except requests.RequestException:
        return False
    return written.status_code == 201


def _settings(data: int, data_web: int, data_rpc: int) -> dict[str, Any]:
    """The settings that do not depend on the number of name nodes."""
    return {
        "dfs.replication": 1,
        "dfs.datanode.address": f"127.0.0.1:{data}",
        "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
        "dfs.datanode.ipc.address": f"127.0.0.1:{data_rpc}",
        "dfs.datanode.hostname": "127.0.0.1",  # the name in redirects
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.fs-limits.min-block-size": BLOCK,
        "dfs.namenode.safemode.extension": 0,
        "dfs.ls.limit": 50,  # entries in a batch, so that a few files make several
        # With one data node a writer is often early, and would sleep 400 ms before it asks again.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 5,
        "dfs.client.block.write.locateFollowingBlock.retries": 10,
    }


def shared() -> Hdfs:
    """The server that all tests share; those that kill one of its processes start another."""
    return sharing.shared("hdfs", lambda: Hdfs().start())


def _environment() -> dict[str, str]:
    return {**os.environ, "HADOOP_USER_NAME": "root"}


def _xml(settings: Mapping[str, Any]) -> str:
    rows = (
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>{"".join(rows)}</configuration>\n'


def _end_with_us() -> None:
    """Have the Java process terminated when the tests are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
