"""This machine as the only node of a cluster: its resources, and the ports and GPUs that tasks hold."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.regular_files import is_regular, open_regular
from openpai_tasks.server import ssh
from openpai_tasks.server.engines.base import ADDRESS, EngineCapacity, Node, Ports
from openpai_tasks.server.engines.ports import PortPool
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state.records import Task

if TYPE_CHECKING:
    from openpai_tasks.protocol import JobDocument

LOGS = ("stdout", "stderr", "all")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GPU_QUERY = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class InstalledGpu:
    index: int
    uuid: str
    name: str
    memory_mb: int


@dataclass(frozen=True)
class Machine:
    name: str
    cpus: int
    memory_mb: int
    gpus: tuple[InstalledGpu, ...]
    boot: str  # differs after each boot of the machine; empty if unknown

    @property
    def resources(self) -> ResourceAmount:
        return ResourceAmount(self.cpus, self.memory_mb, len(self.gpus))

    @classmethod
    def detect(cls) -> Machine:
        return cls(os.uname().nodename, _cpus(), _memory_mb(), _gpus(), _boot())


class LocalEngine:
    """Base of engines that run tasks on this machine, with its ports and GPUs, and logs in task folders."""

    schedules = places_late = False
    has_task_folders = True
    where = "this machine"

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._capacity = EngineCapacity((Node(machine.name, machine.resources),))
        self._ports = PortPool()
        self._gpus = GpuPool((), ())

    def capacity(self) -> EngineCapacity:
        return self._capacity

    def problem(self, document: JobDocument) -> str:
        """Refuse nothing: what is too large for the machine runs with what there is."""
        return ""

    def hold(self, tasks: Iterable[Task]) -> None:
        unfinished = list(tasks)
        self._ports.renew(port for task in unfinished for numbers in task.ports.values() for port in numbers)
        held = [gpu for task in unfinished for gpu in task.gpus]
        self._gpus = GpuPool((gpu.index for gpu in self.machine.gpus), held)

    def assign_ports(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        return self._ports.take(wanted)

    def assign_gpus(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {uid: self._gpus.take(count) for uid, count in counts.items()}

    def address(self, task: Task) -> str:
        return ADDRESS

    def variables(self, task: Task) -> dict[str, str]:
        folder = os.path.abspath(task.folder)
        folders = {"PAI_WORK_DIR": f"{folder}/work", "PAI_MOUNT_ROOT": f"{folder}/mounts"}
        return {**folders, **gpu_variables(task.gpus, len(self.machine.gpus))}

    def is_ssh_ready(self, task: Task) -> bool:
        return ssh.is_ready(task.folder)

    def logs(self, task: Task) -> dict[str, int]:
        paths = {name: task.folder / "logs" / name for name in LOGS}
        return {name: path.stat().st_size for name, path in paths.items() if is_regular(path)}

    def open_log(self, task: Task, name: str) -> BinaryIO:
        if name not in LOGS:
            raise FileNotFoundError(errno.ENOENT, "no such log", name)
        return open_regular(task.folder / "logs" / name)


def gpu_variables(gpus: Iterable[int], total: int) -> dict[str, str]:
    """Return the variables that limit the visible GPUs, numbered like nvidia-smi, in bus order."""
    if not total:
        return {"NVIDIA_VISIBLE_DEVICES": "none"}
    indices = ",".join(map(str, gpus))
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": indices,
        "NVIDIA_VISIBLE_DEVICES": indices or "none",
    }


class GpuPool:
    """The GPUs in use."""

    def __init__(self, indices: Iterable[int], held: Iterable[int]) -> None:
        self._all = tuple(indices)
        self._held = list(held)

    def take(self, count: int) -> tuple[int, ...]:
        """Return the least used GPUs; a task that wants more than there are gets all of them."""
        chosen = sorted(self._all, key=lambda index: (self._held.count(index), index))[: max(0, count)]
        self._held.extend(chosen)
        return tuple(sorted(chosen))


def _cpus() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _output("sysctl", "-n", "kern.bootsessionuuid").strip()


def _gpus() -> tuple[InstalledGpu, ...]:
    return visible(parse_gpus(_output("nvidia-smi", *_GPU_QUERY)), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(listing: str) -> tuple[InstalledGpu, ...]:
    """Parse nvidia-smi's comma-separated list of GPUs; other lines are error messages."""
    rows = ([cell.strip() for cell in line.split(",")] for line in listing.splitlines())
    return tuple(
        InstalledGpu(int(row[0]), row[1], row[2], int(row[3]) if row[3].isdigit() else 0)
        for row in rows
        if len(row) == 4 and row[0].isdigit()
    )


def visible(gpus: Iterable[InstalledGpu], wanted: str | None) -> tuple[InstalledGpu, ...]:
    """Return the GPUs that the server itself may use, if its CUDA_VISIBLE_DEVICES names some."""
    if wanted is None:
        return tuple(gpus)
    names = {name.strip() for name in wanted.split(",")}
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid in names)


def _output(program: str, *arguments: str) -> str:
    """Return the output of the program; empty if it is missing or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
