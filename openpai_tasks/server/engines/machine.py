"""This machine as the only node of a cluster: its resources, and the ports and GPUs that tasks hold."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from openpai_tasks.files.regular import is_regular, open_regular
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, fields
from openpai_tasks.server import ssh
from openpai_tasks.server.engines.base import ADDRESS, EngineCapacity, Node, Ports
from openpai_tasks.server.engines.gpus import CSV, PROGRAM, Gpu, GpuPool, output, table
from openpai_tasks.server.engines.ports import PortPool
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.engines.wakeups import WakePipe
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state.records import Task

LOGS = ("stdout", "stderr", "all", "times")
DEFAULT_CLUSTER = "default"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Machine:
    name: str
    cpus: int
    memory_mb: int
    gpus: tuple[Gpu, ...]
    boot: str  # differs after each boot of the machine; empty if unknown

    @property
    def resources(self) -> ResourceAmount:
        return ResourceAmount(self.cpus, self.memory_mb, len(self.gpus))

    @classmethod
    def detect(cls) -> Machine:
        cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
        gpus = parse_gpus(output(PROGRAM, "--query-gpu=index,uuid,name,memory.total", CSV))
        visible = visible_gpus(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return cls(os.uname().nodename, cpus, memory, visible, _boot())


class LocalEngine:
    """Base of engines that run tasks on this machine, with its ports and GPUs, and logs in task folders."""

    schedules = places_late = False
    has_task_folders = separates_streams = records_usage = True
    where = "this machine"
    ssh_host = ""
    wakeups: WakePipe

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._capacity = EngineCapacity((Node(machine.name, machine.resources),))
        self._ports = PortPool()
        self._gpus = GpuPool(machine.gpus, lambda: self.wakeups.notify())

    def capacity(self) -> EngineCapacity:
        if not self.machine.gpus:
            return self._capacity
        types, free = self._gpus.types()
        return replace(self._capacity, gpu_types={DEFAULT_CLUSTER: types}, free_gpus={DEFAULT_CLUSTER: free})

    def problem(self, document: JobDocument) -> str:
        """Refuse nothing: what is too large for the machine runs with what there is."""
        return ""

    def hold(self, tasks: Iterable[Task]) -> None:
        unfinished = list(tasks)
        self._ports.hold(port for task in unfinished for numbers in task.ports.values() for port in numbers)
        self._gpus.hold({task.uid: task.gpus for task in unfinished})

    def assign_ports(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        return self._ports.take(wanted)

    def assign_gpus(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return self._gpus.take(counts)

    def taken_gpus(self) -> dict[int, str]:
        return self._gpus.taken()

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
        if name not in (*LOGS, usage.FILE):
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


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return output("sysctl", "-n", "kern.bootsessionuuid").strip()


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """Parse nvidia-smi's comma-separated list of GPUs; other lines are error messages."""
    return tuple(
        Gpu(int(row[0]), row[1], row[2], fields.count(row[3]))
        for row in table(listing, 4)
        if row[0].isascii() and row[0].isdigit() and len(row[0]) < 5
    )


def visible_gpus(gpus: Iterable[Gpu], wanted: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that the server itself may use, if its CUDA_VISIBLE_DEVICES names some."""
    if wanted is None:
        return tuple(gpus)
    names = {name.strip() for name in wanted.split(",")}
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid in names)
