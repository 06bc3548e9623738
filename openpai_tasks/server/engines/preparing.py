"""Prepare a task's folder for its container and the supervisor of the container.

``runtime`` is mounted read-only and has the scripts, ``registry`` has the credentials until the image is
pulled; both are removed when the task ends. ``container.json`` contains no secret.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.engines import container_supervisor, creation, entry, registries
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.leftovers import MARK
from openpai_tasks.server.engines.machine import gpu_variables
from openpai_tasks.server.engines.process import local_folder, write_file
from openpai_tasks.server.engines.program import ContainerProgram
from openpai_tasks.server.ssh import FOLDER, in_container
from openpai_tasks.server.state.records import Task
from openpai_tasks.settings import home

SECRET = ("runtime", "registry")  # folders that may contain secrets
PULL_LIMIT = 3600.0  # seconds
CALL_LIMIT = 120.0  # seconds for any other command of a supervisor
PATIENCE = 60.0  # seconds to wait for a daemon that is down


@dataclass(frozen=True)
class ContainerSettings:
    """The settings that all containers of a cluster share."""

    program: ContainerProgram
    home: str
    cpus: int
    grace: float


def container_variables(task: Task, total_gpus: int) -> dict[str, str]:
    """Return the variables that depend on where a task runs; in a container, GPUs are numbered from 0."""
    gpus = gpu_variables(task.gpus, total_gpus)
    gpus.pop("CUDA_VISIBLE_DEVICES", None)
    return {"PAI_WORK_DIR": entry.WORK, "PAI_MOUNT_ROOT": "", **gpus}


def prepare(launch: Launch, settings: ContainerSettings) -> Launch:
    """Write the folder and return a launch of the supervisor; repeating this changes nothing."""
    mounts = write_runtime(launch)
    if launch.container.login:
        folder = home.make_private(launch.folder / "registry")
        write_file(folder / "config.json", registries.config(launch.container.login))
    plan = _plan(launch, settings, mounts)
    write_file(launch.folder / "container.json", json.dumps(plan._asdict()))
    argv = [sys.executable, "-I", "-S", container_supervisor.__file__, str(launch.folder.absolute())]
    return replace(
        launch,
        scripts={"command": f"exec {shlex.join(argv)}"},
        environment={**settings.program.environment, MARK: launch.uid},
        shared={},
        mounts=(),
        ssh=None,
    )


def write_runtime(launch: Launch, more: Mapping[str, str] | None = None) -> list[creation.BindMount]:
    """Write what a container reads, with ``more`` variables; return what is mounted in it."""
    for name in ("work", "runtime"):
        home.make_private(launch.folder / name)
    (launch.folder / "notes").touch(mode=0o600)
    folders = {creation.storage_target(mount.path): local_folder(mount) for mount in launch.mounts}
    for name, text in _scripts(launch, tuple(folders), more or {}).items():
        write_file(launch.folder / "runtime" / name, f"{text}\n")
    return [*_own_mounts(launch), *(creation.BindMount(*pair) for pair in folders.items())]


def _scripts(launch: Launch, storages: tuple[str, ...], more: Mapping[str, str]) -> dict[str, str]:
    variables = {**launch.shared, **launch.environment, **more}
    own = {"entry": entry.entry(storages), "environment": entry.environment(variables)}
    if launch.ssh:
        own |= in_container.scripts(launch.ssh, entry.NOTES, entry.WORK)
    return {**launch.scripts, **own}


def _own_mounts(launch: Launch) -> Iterator[creation.BindMount]:
    yield creation.BindMount(entry.WORK, launch.folder / "work")
    yield creation.BindMount(entry.NOTES, launch.folder / "notes")
    yield creation.BindMount(entry.RUNTIME, launch.folder / "runtime", read_only=True)
    if launch.ssh:
        yield creation.BindMount(
            in_container.KEYS, in_container.lay_out(launch.folder, launch.ssh), read_only=True
        )
        with contextlib.suppress(FileExistsError):  # where scripts expect it
            (launch.folder / "runtime" / FOLDER).symlink_to(in_container.SSH)


def _plan(
    launch: Launch, settings: ContainerSettings, mounts: list[creation.BindMount]
) -> container_supervisor.ContainerPlan:
    dialect = settings.program.dialect
    labels = {
        creation.HOME: settings.home,
        creation.TASK: launch.uid,
        creation.FOLDER: str(launch.folder.absolute()),
    }
    return container_supervisor.ContainerPlan(
        program=settings.program.path,
        name=creation.container_name(launch.uid),
        image=checked_image(launch.image),
        wanted=registries.full_name(launch.image) if dialect.full_names else launch.image,
        options=creation.options(dialect, launch, settings.cpus, mounts, labels),
        command=creation.COMMAND,
        removal=list(dialect.removal),
        memory_mb=launch.container.memory_mb,
        grace=settings.grace,
        call_limit=CALL_LIMIT,
        pull_limit=PULL_LIMIT,
        patience=PATIENCE,
    )


def checked_image(image: str) -> str:
    """Return the image's name; raise if the program would parse it as an option or several arguments."""
    if not re.fullmatch(r"\w[\w./:@+-]*", image, re.ASCII):
        raise ConfigError(f"invalid image name {image!r}")
    return image
