"""What programs of this machine print: git, docker, podman, kubectl, ssh, Slurm's, ps and umount."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.errors import PaiError
from openpai_tasks.loopback import process
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.sdk import git
from openpai_tasks.sdk.files import mounting
from openpai_tasks.server.engines import gpus
from openpai_tasks.server.engines.container_program import DOCKER, PODMAN, ContainerProgram
from openpai_tasks.server.engines.container_supervisor import ContainerFailed, Supervisor
from openpai_tasks.server.engines.kubernetes import engine as kubernetes
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl, reason
from openpai_tasks.server.engines.slurm import images, partitions
from openpai_tasks.server.engines.slurm import programs as slurm
from openpai_tasks.tunnel.openssh import SharedConnection
from tests.fuzz.feeding import programs
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target


def _split(data: bytes) -> tuple[int, bytes, bytes]:
    """Return an exit code, an output and errors: the first byte, and what is around an empty line."""
    out, _, errors = data[1:].partition(b"\n\n")
    return (data[0] if data else 0) % 3, out, errors


def _git(data: bytes) -> object:
    """Read the answers about a repository, separated by form feeds, and files of a commit."""
    filters, status, files = [*data.split(b"\f", 2), b"", b""][:3]
    folder = empty_folder("repository")
    (folder / ".git").mkdir()
    top = str(folder).encode() + b"\n"
    with programs((0, top, b""), (0, filters, b""), (0, status, b"")):
        found = git.revision(folder)
        str(found.commit).encode()
    with programs((0, b"", b""), (0, files, b"")):
        return found, git.read_files(folder, "0" * 40, ["a.py", "b c.py"])


def _containers(data: bytes) -> object:
    """Read what docker and podman print: their containers, their errors, and why a task did not start."""
    answer = _split(data)
    for dialect in (DOCKER, PODMAN):
        with programs(answer):
            program = ContainerProgram(dialect)
            program.memory()
            with contextlib.suppress(PaiError):
                [Path(folder) for folder in program.containers("/home").values()]
            if dialect is DOCKER:
                program.remove("a")
    supervisor = _Supervisor(empty_folder("task"), answer[0], answer[1].decode(errors="replace"))
    for begin in (supervisor.create, supervisor.inspect):
        with contextlib.suppress(ContainerFailed):
            begin()
    return supervisor.usage()


class _Supervisor(Supervisor):
    """The supervisor of a container whose program fails with this output."""

    def __init__(self, folder: Path, code: int, output: str) -> None:
        self.folder, self._answer = str(folder), (code, output)
        plan = SimpleNamespace(name="c", image="i", wanted="i", options=[], command=[], patience=-1)
        plan.call_limit = plan.pull_limit = 1
        self.plan = cast(Any, plan)
        self.signals = cast(Any, SimpleNamespace(term=False, sleep=lambda seconds: None))
        (folder / "notes").touch()

    def call(self, *arguments: str, **options: Any) -> tuple[int, str]:
        return self._answer


def _kubectl(data: bytes) -> object:
    """Read what kubectl prints, also what its plug-ins for logging in do."""
    answer = _split(data)
    with programs(answer), contextlib.suppress(PaiError):
        Kubectl("", "").namespace().encode()
    engine = kubernetes.KubernetesEngine.__new__(kubernetes.KubernetesEngine)
    folder = empty_folder("kubernetes")
    (folder / "kubectl.log").write_bytes(data)
    engine._socket = folder / "kubectl"
    (folder / kubernetes.ID).write_bytes(data)
    here = kubernetes.platform.node()
    kubernetes._is_orphan("home", f"{here}:{folder}")
    kubernetes._is_orphan("home", f"{here}:{answer[1].decode(errors='replace')}")
    return engine._proxy_error(), reason(answer[2].decode("utf-8", "replace"))


def _ssh(data: bytes) -> object:
    """Read what ssh prints if it cannot forward, and if a command on the machine fails."""
    code, out, errors = _split(data)
    found = []
    connection = SharedConnection(parse_ssh("me@login"))
    socket = empty_folder("ssh") / "socket"
    uses: tuple[Callable[[], object], ...] = (
        lambda: connection.forward(socket, "/remote", replaces=True),
        lambda: connection.run("true", 1.0).last_line,
    )
    for use in uses:
        with programs((255 if code else 0, out, errors)), contextlib.suppress(PaiError):
            found.append(use())
    return found


def _slurm(data: bytes) -> object:
    """Ask each program of Slurm, which prints this, or fails with it."""
    uses: tuple[Callable[[], object], ...] = (
        slurm.queue,
        lambda: slurm.submit("script"),
        lambda: slurm.cancel(["7"]),
        lambda: partitions.parse_nodes(partitions.node_list()),
        lambda: partitions.choices(["gpu"]),
        lambda: list(images._installed([images.PYXIS])),
    )
    for use in uses:
        with programs(_split(data)), contextlib.suppress(PaiError):
            use()
    return None


def _others(data: bytes) -> object:
    """Read the list of processes, why a folder was not unmounted, and tables of nvidia-smi."""
    answer = _split(data)
    with programs(answer):
        found = process._listed(1)
        with contextlib.suppress(PaiError):
            mounting._run_unmount("/mnt/a", "a")
        return found, gpus.output("true")


OBJECT = b"%s blob %d\n%s\n" % (b"0" * 40, 5, b"hello")
GIT = (
    b"filter.lfs.clean\0filter.lfs.smudge\0filter.a b.process\0\f# branch.oid " + b"0" * 40 + b"\n"
    b"# branch.head main\n1 .M N... 100644 100644 100644 a b a.py\n? b.py\n\f"
    + OBJECT
    + b"0000:./b c.py missing\n"
)
CONTAINERS = (
    b"\0pai-1\t/home/jobs/1\npai-2\t/home/jobs/2\n",
    b"\1Error: no such image\nError response from daemon: Conflict. The container name is already in use\n"
    b"\n\nCannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n",
)
KUBECTL = (b"\0lab", b"\1\n\nerror: current-context must exist\n", b"\1\n\nerror: exec: login failed\n")
SSH = (
    b"\0done\n\nmux_client_forward: forwarding request failed: port in use\n",
    b"\1\n\nPermission denied\n",
)
SLURM = (
    b"\0"
    + b"7|PENDING|None|N/A||openpai-tasks:a\n123;cluster\n--container-image\nPartitionName=gpu AllowQos=a\n",
    b"\1\n\nsbatch: error: Unable to contact slurm controller (connect failure)\n",
)
OTHERS = (b"\0python -m openpai_tasks.server --home /h\n", b"\1\n\numount: /mnt/a: target is busy.\n")
TARGETS = (
    Target("git-output", _git, (GIT,)),
    Target("container-programs", _containers, CONTAINERS),
    Target("kubectl-output", _kubectl, KUBECTL),
    Target("ssh-output", _ssh, SSH),
    Target("slurm-programs", _slurm, SLURM),
    Target("other-programs", _others, OTHERS),
)
