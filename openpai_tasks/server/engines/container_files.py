"""Prepare a task's folder for its container and the supervisor of the container.

``runtime`` is mounted read-only and has the scripts, ``registry`` has the credentials until the image is
pulled; both are removed when the task ends. ``container.json`` contains no secret.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument
from openpai_tasks.protocol.document import references, template
from openpai_tasks.server.engines import container_program, container_supervisor
from openpai_tasks.server.engines.base import Launch, RegistryLogin
from openpai_tasks.server.engines.container_program import NOTES, RUNTIME, WORK, BindMount, ContainerProgram
from openpai_tasks.server.engines.leftovers import MARK
from openpai_tasks.server.engines.machine import gpu_variables
from openpai_tasks.server.engines.process import local_folder, write_file
from openpai_tasks.server.ssh import FOLDER, in_container
from openpai_tasks.server.state.records import Task
from openpai_tasks.settings import home

SECRET = ("runtime", "registry")  # folders that may contain secrets
PULL_LIMIT = 3600.0  # seconds
CALL_LIMIT = 120.0  # seconds for any other command of a supervisor
DAEMON_SECONDS = 60.0  # seconds to wait for a daemon that is down

HUB = "docker.io"
_HUB_NAMES = ("", HUB, "index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")
_HUB_KEY = "https://index.docker.io/v1/"  # the name of Docker Hub in docker's file
OUT_OF_MEMORY = "Warning OutOfMemory it used all of the memory that it asked for, and a process was killed"
BEGUN = f"{container_program.BASE}/begun"  # the command of this container may run
SSHD = "sshd"  # the script in RUNTIME that starts it

_ENTRY = f"""\
# What a shell prints when its command is killed is not the job's output.
exec 3>&2 2>/dev/null
# An engine that was killed while it started the container may be asked again.
if [ -e {BEGUN} ]; then
  echo "error: its container was started a second time" >&3
  exit 255
fi
(: >{BEGUN})
# Where it is not the first process of its namespace, it must still outlive the command.
trap : TERM
. {RUNTIME}/environment
cd {WORK}
owner=$(stat -c %u:%g .) || owner=0:0
[ ! -e {RUNTIME}/{SSHD} ] || /bin/sh {RUNTIME}/{SSHD} 2>&3
if command -v bash >/dev/null; then set -- bash -eu -o pipefail; else set -- /bin/sh -eu; fi
(exec 2>&3 3>&-; exec "$@" {RUNTIME}/command)
code=$?
for events in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r $events ] || continue
  while read -r what count; do
    [ "$what" != oom_kill ] || [ "$count" = 0 ] || echo "{OUT_OF_MEMORY}" >>{NOTES}
  done <$events
done
# What is there belongs to this container, not to the whole machine, if it has a parent or a limit.
own=
[ ! -e /sys/fs/cgroup/cgroup.events ] || own='memory.peak cpu.stat'
if read -r limit </sys/fs/cgroup/memory/memory.limit_in_bytes && [ ${{{{#limit}}}} -lt 19 ]; then
  own='memory/memory.max_usage_in_bytes cpuacct/cpuacct.usage'
fi
for file in $own; do
  if read -r used </sys/fs/cgroup/$file; then echo "Usage $file $used" >>{NOTES}; fi
done
# The owner of the folder could not remove files of root.
[ "$owner" = 0:0 ] || find . {{folders}} -user 0 -exec chown -h "$owner" {{{{}}}} +
# In a user namespace, the same holds for files of anyone but root.
read -r _ root _ </proc/self/uid_map
[ "$root" = 0 ] || find . {{folders}} ! -user 0 -exec chown -h 0:0 {{{{}}}} +
exit $code
"""


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
    return {"PAI_WORK_DIR": WORK, "PAI_MOUNT_ROOT": "", **gpus}


def prepare(launch: Launch, settings: ContainerSettings) -> Launch:
    """Write the folder and return a launch of the supervisor; repeating this changes nothing."""
    mounts = write_runtime(launch)
    if launch.container.login:
        folder = home.make_private(launch.folder / "registry")
        write_file(folder / "config.json", registry_config(launch.container.login))
    plan = _plan(launch, settings, mounts)
    write_file(launch.folder / "container.json", json.dumps(plan._asdict()))
    devices = ",".join(map(str, launch.container.gpus))  # for the runner, which records their use
    argv = [sys.executable, "-I", "-S", container_supervisor.__file__, str(launch.folder.absolute())]
    return replace(
        launch,
        scripts={"command": f"exec {shlex.join(argv)}"},
        environment={
            **settings.program.environment,
            MARK: launch.uid,
            "CUDA_VISIBLE_DEVICES": devices,
        },
        shared={},
        mounts=(),
        ssh=None,
    )


def write_runtime(launch: Launch, more: Mapping[str, str] | None = None) -> list[BindMount]:
    """Write what a container reads, with ``more`` variables; return what is mounted in it."""
    for name in ("work", "runtime"):
        home.make_private(launch.folder / name)
    (launch.folder / "notes").touch(mode=0o600)
    folders = {container_program.storage_target(mount.path): local_folder(mount) for mount in launch.mounts}
    for name, text in _scripts(launch, tuple(folders), more or {}).items():
        write_file(launch.folder / "runtime" / name, f"{text}\n")
    return [*_own_mounts(launch), *(BindMount(*pair) for pair in folders.items())]


def _scripts(launch: Launch, storages: tuple[str, ...], more: Mapping[str, str]) -> dict[str, str]:
    variables = {**launch.shared, **launch.environment, **more}
    own = {"entry": entry_script(storages), "environment": exports(variables)}
    if launch.ssh:
        own |= in_container.scripts(launch.ssh, NOTES, WORK)
    return {**launch.scripts, **own}


def _own_mounts(launch: Launch) -> Iterator[BindMount]:
    yield BindMount(WORK, launch.folder / "work")
    yield BindMount(NOTES, launch.folder / "notes")
    yield BindMount(RUNTIME, launch.folder / "runtime", read_only=True)
    if launch.ssh:
        yield BindMount(
            in_container.KEYS, in_container.write_files(launch.folder, launch.ssh), read_only=True
        )
        with contextlib.suppress(FileExistsError):  # where scripts expect it
            (launch.folder / "runtime" / FOLDER).symlink_to(in_container.SSH)


def _plan(
    launch: Launch, settings: ContainerSettings, mounts: list[BindMount]
) -> container_supervisor.ContainerPlan:
    dialect = settings.program.dialect
    labels = {
        container_program.HOME: settings.home,
        container_program.TASK: launch.uid,
        container_program.FOLDER: str(launch.folder.absolute()),
    }
    return container_supervisor.ContainerPlan(
        program=settings.program.path,
        name=container_program.container_name(launch.uid),
        image=check_image(launch.image),
        wanted=full_image_name(launch.image) if dialect.full_names else launch.image,
        options=container_program.create_options(dialect, launch, settings.cpus, mounts, labels),
        command=container_program.first_command(launch.uid)[1:],
        removal=list(dialect.removal),
        memory_mb=launch.container.memory_mb,
        grace=settings.grace,
        call_limit=CALL_LIMIT,
        pull_limit=PULL_LIMIT,
        patience=DAEMON_SECONDS,
    )


def check_image(image: str) -> str:
    """Return the image's name; raise if the program would parse it as an option or several arguments."""
    if not re.fullmatch(r"\w[\w./:@+-]*", image, re.ASCII):
        raise ConfigError(f"invalid image name {image!r}")
    return image


# The container's first process, in plain sh, for any image that has it


def entry_script(folders: Sequence[str] = ()) -> str:
    """Return the container's first script; ``folders`` are the mounted folders of the host.

    It remains the first process, which the kernel shields from signals, so the command can be signalled.
    """
    return _ENTRY.format(folders=" ".join(map(shlex.quote, folders)))


def exports(variables: Mapping[str, str]) -> str:
    """Return exports of the variables; options of the engine cannot hold newlines, and would be visible."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    )


# Images and registries


def registry_login(document: JobDocument, role: str) -> RegistryLogin | None:
    """Return the document's credentials for the image of a role, with secrets."""
    name = dict(references.roles(document.data))[role].get("dockerImage")
    auth = references.prerequisite(document.data, "dockerimage", name).get("auth") or {}
    given = {
        key: template.render(value, {"$secrets": document.secrets})
        for key, value in auth.items()
        if isinstance(value, str)
    }
    if not given.get("username"):
        return None
    return RegistryLogin(given["username"], given.get("password", ""), given.get("registryuri", ""))


def split_registry(image: str) -> tuple[str, str]:
    """Return the registry in an image's name, or an empty string, and the rest of the name."""
    first, slash, rest = image.partition("/")
    is_registry = slash and ("." in first or ":" in first or first == "localhost")
    return (first, rest) if is_registry else ("", image)


def full_image_name(image: str) -> str:
    """Return the image's full name as docker completes it; podman does not."""
    registry, name = split_registry(image)
    if registry not in _HUB_NAMES:
        return image
    return f"{HUB}/{name if '/' in name else f'library/{name}'}"


def registry_config(known: RegistryLogin) -> str:
    """Return the credentials in the format of docker's ``config.json``, which podman also reads."""
    host = known.registry.strip().removeprefix("https://").removeprefix("http://").split("/")[0].lower()
    key = _HUB_KEY if host in _HUB_NAMES else host
    secret = base64.b64encode(f"{known.user}:{known.password}".encode()).decode()
    return json.dumps({"auths": {key: {"auth": secret}}})
