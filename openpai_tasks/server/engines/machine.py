"""This machine as a cluster of one node: what it has, and which start of it this is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GPU_QUERY = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Resources:
    cpu: int = 0
    memory_mb: int = 0
    gpu: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpu + other.cpu, self.memory_mb + other.memory_mb, self.gpu + other.gpu)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpu - other.cpu, self.memory_mb - other.memory_mb, self.gpu - other.gpu)

    def __mul__(self, times: int) -> Resources:
        return Resources(self.cpu * times, self.memory_mb * times, self.gpu * times)

    def fits(self, free: Resources) -> bool:
        """Whether this much can be taken; nothing is always there to be taken."""
        pairs = ((self.cpu, free.cpu), (self.memory_mb, free.memory_mb), (self.gpu, free.gpu))
        return all(need <= 0 or need <= rest for need, rest in pairs)

    def __str__(self) -> str:
        return f"{self.cpu} CPU, {self.memory_mb} MB, {self.gpu} GPU"


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_mb: int


@dataclass(frozen=True)
class Machine:
    name: str
    cpus: int
    memory_mb: int
    gpus: tuple[Gpu, ...]
    boot: str  # differs after each start of the machine; empty where that cannot be known

    @property
    def resources(self) -> Resources:
        return Resources(self.cpus, self.memory_mb, len(self.gpus))

    @classmethod
    def detect(cls) -> Machine:
        return cls(os.uname().nodename, _cpus(), _memory_mb(), _gpus(), _boot())


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


def _gpus() -> tuple[Gpu, ...]:
    return visible(parse_gpus(_output("nvidia-smi", *_GPU_QUERY)), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """The GPUs of nvidia-smi's comma-separated listing; lines of another shape are its complaints."""
    rows = ([cell.strip() for cell in line.split(",")] for line in listing.splitlines())
    return tuple(
        Gpu(int(row[0]), row[1], row[2], int(row[3]) if row[3].isdigit() else 0)
        for row in rows
        if len(row) == 4 and row[0].isdigit()
    )


def visible(gpus: Iterable[Gpu], wanted: str | None) -> tuple[Gpu, ...]:
    """Those that the server itself may use, when its own CUDA_VISIBLE_DEVICES names some."""
    if wanted is None:
        return tuple(gpus)
    names = {name.strip() for name in wanted.split(",")}
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid in names)


def _output(program: str, *arguments: str) -> str:
    """What the program prints, or nothing when it is missing or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
