"""A task's folder, laid out for its container and the carrier of it.

``runtime`` is mounted read-only and holds the scripts, ``registry`` the credentials for the image, until it
is there; both are gone when the task is over. ``container.json`` has no secret in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines import Launch, container_supervisor, creation, entry, registries
from openpai_tasks.server.engines.leftovers import MARK
from openpai_tasks.server.engines.process import write_file
from openpai_tasks.server.engines.program import Program
from openpai_tasks.server.ssh import FOLDER, in_container
from openpai_tasks.settings import home

SECRET = ("runtime", "registry")  # folders of a task's own that may hold some
PULL_LIMIT = 3600.0  # seconds for an image; a stop of the job ends it sooner
CALL_LIMIT = 120.0  # for anything else that a carrier asks for
PATIENCE = 60.0  # for a daemon that is gone to come back
_HIDDEN = ("CUDA_VISIBLE_DEVICES",)  # the GPUs of a container are counted anew, from 0


@dataclass(frozen=True)
class Workshop:
    """What all containers of one cluster are made with."""

    program: Program
    home: str
    cpus: int
    storages: Mapping[str, Path]
    grace: float


def prepare(launch: Launch, workshop: Workshop) -> Launch:
    """Lay out the folder; a launch of the carrier in the task's place. Done again, it makes the same."""
    for name in ("work", "runtime"):
        home.make_private(launch.folder / name)
    (launch.folder / "notes").touch(mode=0o600)
    storages = dict(_storages(launch, workshop.storages))
    for name, text in _scripts(launch, tuple(storages)).items():
        write_file(launch.folder / "runtime" / name, f"{text}\n")
    if launch.container.login:
        folder = home.make_private(launch.folder / "registry")
        write_file(folder / "config.json", registries.config(launch.container.login))
    plan = _plan(
        launch, workshop, [*_own_mounts(launch), *(creation.Mount(*pair) for pair in storages.items())]
    )
    write_file(launch.folder / "container.json", json.dumps(plan._asdict()))
    argv = [sys.executable, "-I", "-S", container_supervisor.__file__, str(launch.folder.absolute())]
    return replace(
        launch,
        scripts={"command": f"exec {shlex.join(argv)}"},
        environment={**workshop.program.environment, MARK: launch.uid},
        shared={},
        storages=None,
        ssh=None,
    )


def _scripts(launch: Launch, storages: tuple[str, ...]) -> dict[str, str]:
    variables = {**launch.shared, **launch.environment, "PAI_WORK_DIR": entry.WORK, "PAI_MOUNT_ROOT": ""}
    seen = {name: value for name, value in variables.items() if name not in _HIDDEN}
    own = {"entry": entry.entry(storages), "environment": entry.environment(seen)}
    if launch.ssh:
        own |= in_container.scripts(launch.ssh, entry.NOTES, entry.WORK)
    return {**launch.scripts, **own}


def _own_mounts(launch: Launch) -> Iterator[creation.Mount]:
    yield creation.Mount(entry.WORK, launch.folder / "work")
    yield creation.Mount(entry.NOTES, launch.folder / "notes")
    yield creation.Mount(entry.RUNTIME, launch.folder / "runtime", read_only=True)
    if launch.ssh:
        yield creation.Mount(
            in_container.KEYS, in_container.lay_out(launch.folder, launch.ssh), read_only=True
        )
        with contextlib.suppress(FileExistsError):  # scripts look for it beside themselves
            (launch.folder / "runtime" / FOLDER).symlink_to(in_container.SSH)


def _storages(launch: Launch, storages: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Where in the container each storage is, and the user's folder of it."""
    if launch.storages is None or launch.user in ("", ".", "..") or "/" in launch.user:
        return
    wanted = [(mount.name, mount.path) for mount in launch.storages]
    for name, path in wanted or [(name, f"/mnt/{name}") for name in storages]:
        if name in storages:
            own = home.make_private(storages[name].absolute() / launch.user)
            yield creation.storage_target(path), own


def _plan(launch: Launch, workshop: Workshop, mounts: list[creation.Mount]) -> container_supervisor.Plan:
    dialect = workshop.program.dialect
    labels = {
        creation.HOME: workshop.home,
        creation.TASK: launch.uid,
        creation.FOLDER: str(launch.folder.absolute()),
    }
    return container_supervisor.Plan(
        program=workshop.program.path,
        name=creation.container_name(launch.uid),
        image=_checked(launch.image),
        wanted=registries.full_name(launch.image) if dialect.full_names else launch.image,
        options=creation.options(dialect, launch, workshop.cpus, mounts, labels),
        command=creation.COMMAND,
        removal=list(dialect.removal),
        memory_mb=launch.container.memory_mb,
        grace=workshop.grace,
        call_limit=CALL_LIMIT,
        pull_limit=PULL_LIMIT,
        patience=PATIENCE,
    )


def _checked(image: str) -> str:
    """The image's name, unless the program would take it for an option or for two words."""
    if not re.fullmatch(r"\w[\w./:@+-]*", image, re.ASCII):
        raise ConfigError(f"{image!r} is not the name of an image")
    return image
