"""A real Slurm with accounting: MariaDB and slurmdbd, so that accounts and QOS are enforced."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests import needs
from tests.ports import free_port
from tests.server.engines.slurm_cluster import SECONDS, SlurmCluster, short_path, slurm_cluster

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""
CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
"""
TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
SMALL = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0")


@contextmanager
def accounting_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Run Slurm with an account ``lab``, in which the user may use the QOS ``long`` with one GPU in all."""
    needs.require("mariadbd", "slurmdbd")
    port, database, user = free_port(), free_port(), getpass.getuser()
    host = socket.gethostname().partition(".")[0]

    def start_daemon(cluster: SlurmCluster) -> None:
        cluster.run("slurmdbd")
        stack.callback(kill, folder / "slurmdbd.pid")  # it would take seconds to end by itself
        wait_for(port)

    with ExitStack() as stack:
        folder = stack.enter_context(short_path(folder))
        conf = folder / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(CONF.format(folder=folder, host=host, port=port, database=database, user=user))
        stack.enter_context(running_database(folder, database))
        settings = ACCOUNTING.format(folder=folder, port=port)
        cluster = stack.enter_context(slurm_cluster(folder, settings, start_daemon))
        for words in (
            ("add", "qos", "long", "GrpTRES=gres/gpu=1"),
            ("add", "account", "lab"),
            (
                "add",
                "user",
                user,
                "account=lab",
                "defaultaccount=lab",
                "qos=normal,long",
                "defaultqos=normal",
            ),
        ):
            cluster.run("sacctmgr", "--immediate", "--quiet", *words)
        yield cluster


@contextmanager
def running_database(folder: Path, port: int) -> Iterator[None]:
    """Run MariaDB, without passwords and on loopback only."""
    data = folder / "database"
    data.mkdir()
    program = needs.find("mariadbd")
    base = [program, "--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}", *SMALL]
    tables = f"create database mysql;\nuse mysql;\n{TABLES.read_text()}"
    subprocess.run([*base, "--bootstrap"], input=tables, text=True, capture_output=True, check=True)
    own = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/database.sock"]
    with (folder / "database.log").open("wb") as log:
        server = subprocess.Popen([*base, *own, "--skip-grant-tables"], stdout=log, stderr=log)
    try:
        wait_for(port)
        yield
    finally:
        server.terminate()
        server.wait(SECONDS)


def kill(pid_file: Path) -> None:
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def wait_for(port: int) -> None:
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing answers at port {port}")
