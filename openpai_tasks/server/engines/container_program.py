"""The command line of docker or podman: check that it works, create, list and remove containers.

Docker's socket is not used: podman has none, while the command lines are the same.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import posixpath
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import variables
from openpai_tasks.server.engines import leftovers
from openpai_tasks.server.engines.base import Launch, MemoryLimits
from openpai_tasks.server.engines.runner.usage import CONTAINER_COMMAND

log = logging.getLogger(__name__)

BASE = "/usr/local/pai"  # OpenPAI's folder in a container
RUNTIME, WORK, NOTES = f"{BASE}/runtime", f"{BASE}/work", f"{BASE}/notes"
CALL_LIMIT = 20.0  # seconds; a busy daemon needs a few
HOME, TASK, FOLDER = "openpai-tasks.home", "openpai-tasks.task", "openpai-tasks.folder"
DEFAULT_SHM_MB = 512  # as in OpenPAI
LEAST_MEMORY_MB = 6  # docker's minimum


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


class ContainerProgram:
    def __init__(self, dialect: ProgramDialect) -> None:
        self.dialect = dialect
        self.path = shutil.which(dialect.name) or dialect.name
        self.environment = variables.for_program(os.environ)
        if dialect.name == "docker":
            self._fix_host()

    def _fix_host(self) -> None:
        """Set the daemon's address, since a private DOCKER_CONFIG hides the current context."""
        if "DOCKER_HOST" not in self.environment:
            done = self._run("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
            if done.returncode == 0 and done.stdout.startswith("unix://"):
                self.environment["DOCKER_HOST"] = done.stdout.strip()

    def memory(self) -> MemoryLimits:
        """Return whether it limits memory; podman of an ordinary user needs a cgroup for that."""
        name = self.dialect.name
        if name == "podman" and os.geteuid():
            found = self._run("info", "--format", "{{.Host.CgroupControllers}}").stdout
            if "memory" not in found:
                return MemoryLimits(False, "podman may not use cgroups of this user")
        return MemoryLimits(True, name)

    def containers(self, home: str) -> dict[str, str]:
        """Return the task folders of all containers of this home by name; raise if the program fails."""
        row = f'{{{{.Names}}}}\t{{{{index .Labels "{FOLDER}"}}}}'
        if self.dialect.name == "docker":
            row = f'{{{{.Names}}}}\t{{{{.Label "{FOLDER}"}}}}'
        done = self._run("ps", "--all", "--filter", f"label={HOME}={home}", "--format", row)
        if done.returncode:
            raise ConfigError(self._problem(done.stderr))
        rows = (line.partition("\t") for line in done.stdout.splitlines())
        return {name: folder for name, tab, folder in rows if tab}

    def remove(self, *names: str) -> None:
        """Remove containers, running or not; ignore missing ones, and log those that remain."""
        if not names:
            return
        done = self._run(*self.dialect.removal, *names)
        errors = done.stderr.strip()
        if done.returncode and "no such container" not in errors.lower():
            log.warning("%s did not remove %s: %s", self.dialect.name, ", ".join(names), errors)
        if self.dialect.name == "podman":
            for name in names:
                leftovers.kill_monitor(name)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [self.path, *arguments]
        try:
            return subprocess.run(
                argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CALL_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 1, "", f"no answer within {CALL_LIMIT:.0f} s")
        except OSError as err:
            return subprocess.CompletedProcess(argv, 1, "", f"{self.path}: {err.strerror}")

    def _problem(self, errors: str) -> str:
        """Return one line with the problem and what to do."""
        name, words = self.dialect.name, errors.lower()
        place = self.environment.get("DOCKER_HOST", "its socket")
        if name == "docker" and "permission denied" in words:
            return f"you may not use the docker daemon at {place}: join its group"
        if name == "docker" and ("cannot connect" in words or "daemon running" in words):
            return f"the docker daemon is not running at {place}: start it"
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        return f"{name}: {lines[-1] if lines else 'no reason given'}"


# The options of `create` for a task


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


def first_command(uid: str) -> list[str]:
    """Return the command of a container; runners find its first process by it."""
    return [*CONTAINER_COMMAND, uid]


def create_options(
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
