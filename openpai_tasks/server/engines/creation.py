"""The options of ``docker create`` and ``podman create`` for a task."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.entry import BASE, RUNTIME

HOME, TASK, FOLDER = "openpai-tasks.home", "openpai-tasks.task", "openpai-tasks.folder"
DEFAULT_SHM_MB = 512  # as in OpenPAI
LEAST_MEMORY_MB = 6  # docker's minimum
COMMAND = [f"{RUNTIME}/entry"]


@dataclass(frozen=True)
class ProgramDialect:
    """The differences between the two programs."""

    name: str
    removal: tuple[str, ...]
    own: tuple[str, ...] = ()  # options of ``create``
    by_device: bool = False  # GPUs are CDI devices
    full_names: bool = False  # it pulls images only by their full names


DOCKER = ProgramDialect("docker", ("rm", "--force", "--volumes"), own=("--userns", "host"))
PODMAN = ProgramDialect(
    "podman", ("rm", "--force", "--volumes", "--time", "0"), by_device=True, full_names=True
)


@dataclass(frozen=True)
class BindMount:
    target: str
    source: Path
    read_only: bool = False

    def words(self) -> str:
        """Return the value of the option, in CSV, so that paths may contain any character."""
        line = io.StringIO()
        fields = ["type=bind", f"source={self.source.absolute()}", f"target={self.target}"]
        csv.writer(line, lineterminator="").writerow([*fields, *(["readonly"] if self.read_only else [])])
        return line.getvalue()


def container_name(uid: str) -> str:
    return f"pai-{uid}"


def options(
    dialect: ProgramDialect, launch: Launch, cpus: int, mounts: Sequence[BindMount], labels: Mapping[str, str]
) -> list[str]:
    """Return the options, without secrets: those are in mounted files.

    The network is the host's, as in OpenPAI, so that the ports are those in the variables. Output goes to the
    attached supervisor and the runner keeps it, so docker keeps none. The user is root, as in OpenPAI.
    """
    wanted = launch.container
    words = ["--name", container_name(launch.uid), "--pull", "never", "--entrypoint", "/bin/sh"]
    words += ["--network", "host", "--log-driver", "none", "--no-healthcheck", "--user", "0:0"]
    words += ["--security-opt", "label=disable", *dialect.own]
    words += ["--shm-size", f"{wanted.shm_mb or DEFAULT_SHM_MB}m"]
    if wanted.memory_mb:
        limit = f"{max(wanted.memory_mb, LEAST_MEMORY_MB)}m"
        words += ["--memory", limit, "--memory-swap", limit]
    if wanted.cpu:
        words += ["--cpus", str(min(wanted.cpu, cpus))]
    words += _gpus(dialect, wanted.gpus)
    for name, value in {**wanted.labels, **labels}.items():
        words += ["--label", f"{name}={value}"]
    for mount in mounts:
        words += ["--mount", mount.words()]
    return words


def _gpus(dialect: ProgramDialect, gpus: tuple[int, ...]) -> list[str]:
    if not gpus:
        return [
            "--env",
            "NVIDIA_VISIBLE_DEVICES=void",
        ]  # otherwise images that ask for all GPUs would see them
    if dialect.by_device:
        return [word for index in gpus for word in ("--device", f"nvidia.com/gpu={index}")]
    return ["--gpus", f'"device={",".join(map(str, gpus))}"']


def storage_target(path: str) -> str:
    """Return the mount point of a storage; raise if it is one of the container's system folders."""
    target = posixpath.normpath(posixpath.join("/", path))
    target = f"/{target.lstrip('/')}"
    taken = ("/", "/proc", "/sys", "/dev", "/bin", "/lib", "/usr", "/etc")
    if target in taken or target == BASE or target.startswith(f"{BASE}/") or "\0" in path or "\n" in path:
        raise ConfigError(f"cannot mount a storage at {path!r} in a container")
    return target
