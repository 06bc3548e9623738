"""A real Slurm on this machine: munge, one controller and two nodes with two GPUs each, in one folder."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.needs import require
from tests.ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
NODES, CPUS, MEMORY_MB, GPUS = 2, 4, 20000, 2
SECONDS = 60.0
SBIN = os.pathsep.join(("/usr/sbin", "/sbin"))

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock,cred_expire=30
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
StateSaveLocation={folder}/state
DefMemPerCPU=100
ReturnToService=2
MinJobAge=300
KillWait=3
MaxArraySize=2000
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
{accounting}
GresTypes=gpu
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {node} Gres=gpu:a100:{gpus}
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.2 Port={ports[2]} {node} Gres=gpu:v100:{gpus}
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=1-00:00:00
PartitionName=small Nodes=node1 State=UP MaxTime=10:00 AllowQos=normal,short
"""
GRES = """\
AutoDetect=off
NodeName=node1 Name=gpu Type=a100 File=/dev/tty[1-2]
NodeName=node2 Name=gpu Type=v100 File=/dev/tty[1-2]
"""
NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"


@dataclass
class SlurmCluster:
    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        """Run a program of Slurm, which must succeed."""
        env = {**os.environ, **self.environment}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_controller(self) -> None:
        self.run("slurmctld")
        self.wait_for_nodes()

    def stop_controller(self) -> None:
        stop(self.folder / "slurmctld.pid")

    def wait_for_nodes(self) -> None:
        limit = time.monotonic() + SECONDS
        while True:
            with suppress(AssertionError):
                states = self.run("sinfo", "-hN", "-p", "main", "-o", "%T").split()
                if len(states) == NODES and set(states) <= {"idle", "mixed", "allocated"}:
                    return
            assert time.monotonic() < limit, "the nodes of Slurm did not come up"
            time.sleep(0.05)


@contextmanager
def slurm_cluster(
    folder: Path, accounting: str = NO_ACCOUNTING, before: Callable[[SlurmCluster], None] = lambda _: None
) -> Iterator[SlurmCluster]:
    """Run Slurm until the end, and ``before`` its controller; skip the test where it is not installed."""
    require(*PROGRAMS)
    with ExitStack() as stack:
        folder = stack.enter_context(short_path(folder))
        cluster = configure(folder, accounting)
        munge = folder / "munge"
        options = {"key-file": munge / "munge.key", "socket": munge / "munge.sock"}
        options |= {"pid-file": munge / "munged.pid", "log-file": munge / "munged.log"}
        options |= {"seed-file": munge / "munged.seed"}
        cluster.run("munged", "--force", *(f"--{name}={value}" for name, value in options.items()))
        stack.callback(stop, munge / "munged.pid")
        before(cluster)
        cluster.run("slurmctld", "-c")
        stack.callback(stop, folder / "slurmctld.pid")
        for number in range(1, NODES + 1):
            cluster.run("slurmd", "-N", f"node{number}")
            stack.callback(stop, folder / f"slurmd-node{number}.pid")
        stack.callback(cancel_all, cluster)
        cluster.wait_for_nodes()
        yield cluster


@contextmanager
def short_path(folder: Path) -> Iterator[Path]:
    """Return another path to a folder, since those of Unix sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as parent:
        link = Path(parent, "s")
        link.symlink_to(folder)
        yield link


def configure(folder: Path, accounting: str) -> SlurmCluster:
    """Write the key of munge and the configuration of Slurm."""
    for name in ("munge", "state"):
        (folder / name).mkdir()
    (folder / "munge").chmod(0o755)
    key = folder / "munge" / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    values = {
        "folder": folder,
        "host": socket.gethostname().partition(".")[0],
        "user": getpass.getuser(),
        "ports": [free_port() for _ in range(3)],
        "node": f"CPUs={CPUS} RealMemory={MEMORY_MB}",
        "gpus": GPUS,
        "accounting": accounting,
    }
    (folder / "slurm.conf").write_text(CONF.format(**values))
    (folder / "gres.conf").write_text(GRES)
    path = os.pathsep.join((os.environ["PATH"], SBIN))
    return SlurmCluster(folder, {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path})


def cancel_all(cluster: SlurmCluster) -> None:
    """Cancel every job, and wait for the last one, so that no process of a test is left."""
    with suppress(AssertionError, subprocess.TimeoutExpired):
        limit = time.monotonic() + SECONDS
        while (left := cluster.run("squeue", "-h", "-o", "%A").split()) and time.monotonic() < limit:
            cluster.run("scancel", *sorted(set(left)))
            time.sleep(0.1)


def stop(pid_file: Path) -> None:
    """End a daemon by its pid file, and wait for its end."""
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + SECONDS
        while time.monotonic() < limit:
            os.kill(pid, 0)
            time.sleep(0.01)
