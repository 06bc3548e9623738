"""Run tasks in their images on the nodes of Slurm, with the program that the site has.

Scripts, variables and mounts are those of the container engine. Podman runs under the same supervisor.
Apptainer becomes the task's command: its processes are in the task's process group, so signals, exit codes
and logs need nothing else. Pyxis runs the task as a step of the job. Slurm limits CPUs and memory. Nothing
secret is on a command line: the container's first script reads its variables from a mounted file.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.server import variables
from openpai_tasks.server.engines import container_files, container_program
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.container_program import BASE, WORK, BindMount, ContainerProgram
from openpai_tasks.server.engines.leftovers import MARK
from openpai_tasks.server.engines.slurm import programs
from openpai_tasks.server.engines.slurm.site import NO_IMAGES

APPTAINER, PYXIS, PODMAN = "apptainer", "pyxis", "podman"
_PROGRAMS = {APPTAINER: ("apptainer", "singularity"), PODMAN: ("podman",)}
_OF_THE_LOGIN_NODE = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
_STEP = """\
# A step within a step would take over the options of the outer one.
for name in $(env | sed -n 's/^\\(SLURM_[A-Za-z0-9_]*\\)=.*/\\1/p'); do
  case $name in SLURM_CONF | SLURM_JOB_ID) ;; *) unset "$name" ;; esac
done
stop() {{
  stopped=1
  steps=$(squeue --steps --noheader --jobs="$SLURM_JOB_ID" --format='%i %j' | sed -n 's/ {name}$//p') || :
  [ -z "$steps" ] || scancel --quiet --signal=TERM $steps || :
}}
stopped= code=
trap stop TERM
# TERM to srun would kill the step at once.
setsid {srun} --job-name={name} --nodelist="$SLURMD_NODENAME" {words} &
child=$!
while :; do
  stopped=
  wait "$child" && last=0 || last=$?
  [ "$last" -ne 127 ] || [ -z "$code" ] || break
  code=$last
  [ -n "$stopped" ] || break
done
exit "$code"
"""


class ImageProgram(NamedTuple):
    kind: str
    path: str


def find_program(wanted: str) -> ImageProgram | None:
    """Return what runs images, or None; ConfigError if the wanted program is missing."""
    if wanted == NO_IMAGES:
        return None
    found = next(_installed([PYXIS, APPTAINER, PODMAN] if wanted == "auto" else [wanted]), None)
    if found is None and wanted != "auto":
        missing = "srun has no option --container-image" if wanted == PYXIS else "it is not installed here"
        raise ConfigError(f"cannot run images with {wanted}: {missing} (see the setting local.slurm-images)")
    return found


def _installed(kinds: Sequence[str]) -> Iterator[ImageProgram]:
    for kind in kinds:
        if kind == PYXIS:
            if "--container-image" in programs.run(["srun", "--help"]):
                yield ImageProgram(kind, shutil.which("srun") or "srun")
        else:
            paths = map(shutil.which, _PROGRAMS[kind])
            yield from (ImageProgram(kind, path) for path in paths if path)


class ImageRunner:
    """Prepares the folders of tasks that run in their images."""

    def __init__(self, program: ImageProgram, home: str, grace: float) -> None:
        self._program = program
        self._environment = {
            name: value
            for name, value in variables.for_program(os.environ).items()
            if name not in _OF_THE_LOGIN_NODE
        }
        self._grace, self._home = grace, home

    def prepare(self, launch: Launch) -> Launch:
        """Write what the container reads, and return a launch that starts it."""
        if self._program.kind == PODMAN:
            return self._prepare_supervised(launch)
        more = {"HOME": WORK} if self._program.kind == APPTAINER else {}  # its user cannot write elsewhere
        mounts = container_files.write_runtime(replace(launch, ssh=None), more)
        return replace(
            launch,
            scripts={"command": script(self._program, launch, mounts)},
            environment={**self._environment, **self._login(launch), MARK: launch.uid},
            shared={},
            mounts=(),
        )

    def _prepare_supervised(self, launch: Launch) -> Launch:
        program = ContainerProgram(container_program.PODMAN)
        program.environment = self._environment
        settings = container_files.ContainerSettings(program, self._home, 0, self._grace)
        limited = replace(launch.container, cpu=0, memory_mb=0)  # by Slurm
        return replace(
            container_files.prepare(replace(launch, container=limited, ssh=None), settings), ssh=launch.ssh
        )

    def _login(self, launch: Launch) -> dict[str, str]:
        """Return the credentials for the image's registry, by variables that only its owner can read."""
        login = launch.container.login
        if login is None or self._program.kind != APPTAINER:
            return {}
        names = ("DOCKER_USERNAME", login.user), ("DOCKER_PASSWORD", login.password)
        return {f"{kind}_{name}": value for kind in ("APPTAINER", "SINGULARITY") for name, value in names}


def script(program: ImageProgram, launch: Launch, mounts: Sequence[BindMount]) -> str:
    """Return the task's script, which becomes the program; with Pyxis, a step on the same node."""
    words = command(program, launch, mounts)
    if program.kind != PYXIS:
        return f"exec {shlex.join(words)}"
    name = container_program.container_name(launch.uid)
    return _STEP.format(srun=shlex.quote(words[0]), name=name, words=shlex.join(words[1:])).rstrip("\n")


def command(program: ImageProgram, launch: Launch, mounts: Sequence[BindMount]) -> list[str]:
    """Return the command that runs a task in its image, and ends with the exit code of the task."""
    _check_mounts(mounts)
    entry = container_program.first_command(launch.uid)
    has_gpus = launch.container.gpu > 0
    if program.kind == APPTAINER:
        words = [program.path, "exec", "--cleanenv", "--no-home", "--writable-tmpfs"]
        words += ["--nv"] if has_gpus else []
        for mount in mounts:
            words += ["--bind", f"{mount.source}:{mount.target}{':ro' * mount.read_only}"]
        return [*words, _apptainer_image(launch.image), *entry]
    binds = ",".join(f"{mount.source}:{mount.target}{':ro' * mount.read_only}" for mount in mounts)
    words = [program.path, "--overlap", "--ntasks=1", "--nodes=1", "--quiet", "--kill-on-bad-exit=0"]
    words += [f"--cpus-per-task={max(1, launch.container.cpu)}"]
    words += [f"--container-image={_enroot_image(launch.image)}", f"--container-mounts={binds}"]
    words += ["--container-writable", "--container-remap-root", "--no-container-mount-home"]
    return [*words, "--no-container-entrypoint", f"--container-workdir={WORK}", *entry]


def _check_mounts(mounts: Sequence[BindMount]) -> None:
    for mount in mounts:
        for path in (str(mount.source), mount.target):
            if re.search(r"[:,\s]", path):
                raise ConfigError(f"cannot mount {path!r}: it has a colon, a comma or a space")


def _apptainer_image(image: str) -> str:
    """Return a file, an address such as ``oras://...``, or an image of a registry."""
    if _is_file(image) or re.fullmatch(r"(docker|oras|library|shub)://[\w./:@+-]+", image, re.ASCII):
        return image
    return f"docker://{container_files.check_image(image)}"


def _enroot_image(image: str) -> str:
    """Return a file, or an image in the form of Enroot: ``REGISTRY#NAME:TAG``."""
    if _is_file(image):
        return image
    if "://" in image:
        raise ConfigError(f"invalid image name {image!r}")
    registry, name = container_files.split_registry(container_files.check_image(image))
    return f"{registry}#{name}" if registry else image


def _is_file(image: str) -> bool:
    return bool(re.fullmatch(r"/[\w./+@-]+", image, re.ASCII)) and not image.startswith(f"{BASE}/")
